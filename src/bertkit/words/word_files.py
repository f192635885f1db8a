"""Files of word vectors: word2vec's text and binary formats, GloVe, and fastText's ``.vec``.

A line of text is a word and its numbers, with spaces between; a first line of two whole numbers has the number of words
and of their numbers (word2vec, fastText), and GloVe has no such line. The binary format has that line, then each word,
a space and its float32 numbers, the least significant byte first (Mikolov et al. 2013, ``word2vec.c``).
"""

import codecs
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from bertkit.errors import DataError, warn
from bertkit.executor import map_on_cores
from bertkit.files.lines import other_encoding
from bertkit.words.number_lines import (
    MISALIGNED,
    NOT_A_NUMBER,
    NOT_FINITE,
    POWERS,
    count_lines,
    read_binary,
    read_lines,
)
from bertkit.words.room import empty_quantized, release

_BYTES_AT_A_TIME = 1 << 24
_HEADER = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")
_NUMBER = re.compile(rb"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf))")
_FASTTEXT_MODEL = b"\xba\x16\x4f\x2f"


class WordVectors(NamedTuple):
    """Words and their vectors. Shape letters: N words, M vectors of D components."""

    words: list[str]
    vectors: np.ndarray  # (M, D) float32
    rows: np.ndarray  # (N,) int32, index of the vector of each word; words may share vectors


def read_word_file(path: Path) -> WordVectors:
    """The words and vectors of a file; the format is detected from the content.

    A repeated word keeps its first vector; a warning reports the number of repetitions.

    Raises:
        DataError: a line with a wrong number of columns, something that is not a number, NaN or infinity, no words,
            another number of words than the first line names, or another kind of file.
    """
    with path.open("rb") as file:
        begin = file.read(1 << 16)
        start = len(codecs.BOM_UTF8) if begin.startswith(codecs.BOM_UTF8) else 0
        begin = begin[start:]
        if begin.startswith((b"\x1f\x8b", b"PK\x03\x04")):
            raise DataError(
                f"{path} is compressed: expected word vectors as text or binary; decompress it (gunzip, unzip)"
            )
        if advice := other_encoding(begin[:4]):
            raise DataError(f"{path}: {advice}")
        if begin[:4] == _FASTTEXT_MODEL:
            raise DataError(f"{path} is a whole fastText model: expected word vectors; give its .vec file")
        first, _, rest = begin.partition(b"\n")
        header = _HEADER.fullmatch(first)
        if header is None:
            return _read_text(path, file, start, _num_columns(path, first), None)
        num_words, dim = int(header[1]), int(header[2])
        if num_words < 1 or dim < 1:
            raise DataError(f"{path} names {num_words} words of {dim} numbers in line 1: expected at least 1 of each")
        start += len(first) + 1
        if _is_binary(rest, dim):
            return _read_binary(path, file, start, num_words, dim)
        return _read_text(path, file, start, dim, num_words)


def _fields(line: bytes) -> list[bytes]:
    """The fields of a line. Only spaces and tabs separate them; other white space may be in a word."""
    return re.findall(rb"[^ \t]+", line.rstrip(b"\r\n"))


def _num_columns(path: Path, line: bytes) -> int:
    """Numbers in the first line, whose word may contain spaces."""
    fields = _fields(line)
    if not fields:
        raise DataError(f"{path} holds no word vectors in line 1: expected a word and its numbers")
    first = next((at for at, field in enumerate(fields) if at and _NUMBER.fullmatch(field)), len(fields))
    if first == len(fields):
        text = line.decode("utf-8", "replace").strip()
        raise DataError(f"{path}, line 1: {text!r:.60} has no numbers: expected a word and its numbers")
    return len(fields) - first


def _is_binary(rest: bytes, dim: int) -> bool:
    """True unless the line after the header is text, with any number of columns.

    With less than ``dim`` columns the line may end at a newline byte within a binary number: the bytes after it decide.
    """
    line = rest.partition(b"\n")[0]
    if not line:
        return False
    fields = _fields(line)
    are_numbers = all(map(_NUMBER.fullmatch, fields[max(1, len(fields) - dim) :]))  # words may contain spaces
    if not fields or not are_numbers or b"\0" in line:
        return True
    if len(fields) > dim:
        return False
    if b"\0" in rest:
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(rest)  # the end may be within a character
    except UnicodeDecodeError:
        return True
    return False


def _read_text(path: Path, file: BinaryIO, start: int, dim: int, named: int | None) -> WordVectors:
    """Args: named: the number of words in line 1, if it has one."""
    parts = list(pairwise(_line_starts(file, start)))
    first_rows = np.cumsum([0, *map_on_cores(lambda part: count_lines(_lines(file, *part)), parts)])
    num_words = int(first_rows[-1])
    if not num_words:
        raise DataError(f"{path} holds no words: expected lines of a word and {dim} numbers")
    if named not in (None, num_words):
        raise DataError(
            f"{path} has {num_words} lines of words, line 1 names {named} words: copy it again, or correct line 1"
        )
    vectors, first_line = empty_quantized(num_words, dim), 1 if named is None else 2

    def read(number: int) -> list[bytes]:
        first, data = int(first_rows[number]), _lines(file, *parts[number])
        bounds = np.empty((int(first_rows[number + 1]) - first, 2), np.int64)
        done, problem = read_lines(data, dim, vectors[first : first + len(bounds)], bounds, POWERS)
        if problem:
            line = data.tobytes().split(b"\n")[done]
            raise DataError(f"{path}, line {first_line + first + done}: {_why(line, dim, problem)}")
        return _words(data, bounds)

    words: list[bytes] = []
    for part in map_on_cores(read, range(len(parts))):
        words += part
        release(vectors)
    return _distinct(path, words, vectors)


def _why(line: bytes, dim: int, problem: int) -> str:
    fields = _fields(line)
    word = fields[0].decode("utf-8", "replace") if fields else ""
    if problem == NOT_FINITE:
        return f"a number of {word!r} is NaN or infinite; remove the word"
    if problem == NOT_A_NUMBER and len(fields) == dim + 1:
        return f"a column of {word!r} is not a number"
    return f"{max(len(fields) - 1, 0)} numbers after {word!r:.40}, expected {dim} as in the first line"


def _line_starts(file: BinaryIO, start: int) -> Iterator[int]:
    """Begins of parts of a file, each some whole lines, and its end."""
    size = os.fstat(file.fileno()).st_size
    while start < size:
        yield start
        start, tail = start + _BYTES_AT_A_TIME, b""
        while start < size and not tail.endswith(b"\n"):
            part = os.pread(file.fileno(), 1 << 16, start)
            tail = part[: part.find(b"\n") + 1] or part
            start += len(tail)
    yield size


def _lines(file: BinaryIO, begin: int, end: int) -> np.ndarray:
    """(num_bytes,) uint8 of whole lines, each with a newline at its end."""
    content = os.pread(file.fileno(), end - begin, begin)
    return np.frombuffer(content if content.endswith(b"\n") else content + b"\n", np.uint8)


def _words(data: np.ndarray, bounds: np.ndarray) -> list[bytes]:
    content = data.tobytes()
    return [content[a:b] for a, b in zip(*bounds.T.tolist(), strict=True)]


def _read_binary(path: Path, file: BinaryIO, start: int, num_words: int, dim: int) -> WordVectors:
    size = os.fstat(file.fileno()).st_size
    if size < start + num_words * (4 * dim + 2):
        raise DataError(
            f"{path} has {size} bytes, too few for the {num_words} words of {dim} numbers that line 1 names: copy it "
            "again"
        )
    vectors, words, newlines = empty_quantized(num_words, dim), [], set[int]()
    numbers, bits = vectors.view(np.uint8), vectors.view(np.uint32)
    while len(words) < num_words:
        content = os.pread(file.fileno(), max(_BYTES_AT_A_TIME, 8 * dim + 8192), start)
        data, first = np.frombuffer(content, np.uint8), len(words)
        count = min(num_words - first, len(data) // (4 * dim + 2))
        bounds = np.empty((count, 2), np.int64)
        done, end, problem = read_binary(
            data, start + len(data) == size, count, numbers[first : first + count], bits[first : first + count], bounds
        )
        before = bounds[:done, 0] - np.r_[0, bounds[:done, 1] + 4 * dim + 1][:done]  # newlines before each word
        newlines.update(np.unique(before[first == 0 :]).tolist())
        if problem == MISALIGNED or len(newlines) > 1:  # words of a file begin all or never after a newline
            raise DataError(
                f"{path}: word {first + done + 1} or one near it cannot be distinguished from the numbers, as words "
                "hold spaces or control characters: save the vectors as text, or without such words"
            )
        if problem:
            raise DataError(f"{path}: a number of word {first + done + 1} is NaN or infinite; remove the word")
        if not done:
            raise DataError(f"{path} ends within word {first + 1} of {num_words}: copy it again")
        words += _words(data, bounds[:done])
        start += end
        release(vectors)
    if os.pread(file.fileno(), _BYTES_AT_A_TIME, start).strip():
        raise DataError(
            f"{path} continues after the {num_words} words that line 1 names, from byte {start}: copy it again, or "
            "correct line 1"
        )
    return _distinct(path, words, vectors)


def _distinct(path: Path, words: list[bytes], vectors: np.ndarray) -> WordVectors:
    """Words as str, with the first vector of each."""
    spelled = [word.decode("utf-8", "replace") for word in words]
    pairs = zip(spelled, words, strict=True)
    if invalid := [one for one, word in pairs if "\ufffd" in one and one.encode() != word]:
        warn(
            f"{path}: {len(invalid)} words are not UTF-8, {invalid[0]!r} first; such bytes become U+FFFD, and words "
            "that differ only in them become one: convert the file (iconv -f latin1 -t utf-8)"
        )
    if len(set(spelled)) == len(spelled):
        return WordVectors(spelled, vectors, np.arange(len(spelled), dtype=np.int32))
    rows: dict[str, int] = {}
    for row, word in enumerate(spelled):
        rows.setdefault(word, row)
    number = len(spelled) - len(rows)
    again = next(word for row, word in enumerate(spelled) if rows[word] != row)
    warn(f"{path}: {number} lines repeat a word, {again!r} first; the first vector of each word is kept")
    return WordVectors(list(rows), vectors, np.fromiter(rows.values(), np.int32, len(rows)))
