"""Files of word vectors: word2vec's text and binary formats, GloVe, and fastText's ``.vec``.

A line of text is a word and its numbers, with spaces between; a first line of two whole numbers has the number of words
and of their numbers (word2vec, fastText), and GloVe has no such line. The binary format has that line, then each word,
a space and its float32 numbers, the least significant byte first (Mikolov et al. 2013, ``word2vec.c``).
"""

import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from bertkit.errors import DataError
from bertkit.executor import map_on_cores
from bertkit.words.number_lines import NOT_A_NUMBER, NOT_FINITE, powers_of_ten, read_binary, read_lines
from bertkit.words.room import release, room_for

_BYTES_AT_A_TIME = 1 << 24
_HEADER = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")
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
        DataError: a line with a wrong number of columns, something that is not a number, NaN or infinity, no words, a
            file that ends early, or another kind of file.
    """
    with path.open("rb") as file:
        begin = file.read(1 << 16)
        if begin[:2] == b"\x1f\x8b":
            raise DataError(f"{path} is compressed: expected word vectors as text or binary; decompress it (gunzip)")
        if begin[:4] == _FASTTEXT_MODEL:
            raise DataError(f"{path} is a whole fastText model: expected word vectors; give its .vec file")
        first, _, rest = begin.partition(b"\n")
        header = _HEADER.fullmatch(first)
        if header is None:
            return _read_text(path, file, 0, _num_columns(path, first))
        num_words, dim = int(header[1]), int(header[2])
        if num_words < 1 or dim < 1:
            raise DataError(f"{path} names {num_words} words of {dim} numbers in line 1: expected at least 1 of each")
        if _is_binary(rest, dim):
            return _read_binary(path, file, len(first) + 1, num_words, dim)
        result = _read_text(path, file, len(first) + 1, dim)
        return result


def _num_columns(path: Path, line: bytes) -> int:
    dim = len(line.split()) - 1
    if not line.strip():
        raise DataError(f"{path} holds no word vectors in line 1: expected a word and its numbers")
    if dim < 1:
        raise DataError(f"{path}, line 1: {line[:60]!r} has no numbers: expected a word and its numbers")
    return dim


def _is_binary(rest: bytes, dim: int) -> bool:
    """True unless the line after the header is text, with any number of columns."""
    line = rest.partition(b"\n")[0]
    if not line:
        return False
    fields = line.split()
    return not (b"\0" not in line and fields and all(re.fullmatch(rb"[-+.\deE]+|nan|-?inf", one) for one in fields[1:]))


def _read_text(path: Path, file: BinaryIO, start: int, dim: int) -> WordVectors:
    parts = list(_line_parts(file, start))
    first_rows = np.cumsum([0, *(num_lines for _, _, num_lines in parts)])
    num_words = int(first_rows[-1])
    if not num_words:
        raise DataError(f"{path} holds no words: expected lines of a word and {dim} numbers")
    vectors, first_line = room_for(num_words, dim), 1 + (start > 0)

    def read(number: int) -> list[bytes]:
        (begin, end, num_lines), first = parts[number], int(first_rows[number])
        content = os.pread(file.fileno(), end - begin, begin)
        data = np.frombuffer(content if content.endswith(b"\n") else content + b"\n", np.uint8)
        bounds = np.empty((num_lines, 2), np.int64)
        done, problem = read_lines(data, dim, vectors[first : first + num_lines], bounds, powers_of_ten())
        if problem:
            line = data.tobytes().split(b"\n")[done]
            raise DataError(f"{path}, line {first_line + first + done}: {_why(line, dim, problem)}")
        return [content[a:b] for a, b in bounds.tolist()]

    words: list[bytes] = []
    for part in map_on_cores(read, range(len(parts))):
        words += part
        release(vectors)
    return _distinct(path, words, vectors)


def _why(line: bytes, dim: int, problem: int) -> str:
    word = line.split()[0].decode("utf-8", "replace") if line.split() else ""
    if problem == NOT_FINITE:
        return f"a number of {word!r} is NaN or infinite; remove the word"
    if problem == NOT_A_NUMBER and len(line.split()) == dim + 1:
        return f"a column of {word!r} is not a number"
    return f"{max(len(line.split()) - 1, 0)} numbers after {word!r:.40}, expected {dim} as in the first line"


def _line_parts(file: BinaryIO, start: int) -> Iterator[tuple[int, int, int]]:
    """Begin, end and number of lines of parts of a file, split at line ends."""
    size, begin = os.fstat(file.fileno()).st_size, start
    while begin < size:
        length = _BYTES_AT_A_TIME
        while True:
            content = os.pread(file.fileno(), length, begin)
            cut = content.rfind(b"\n") + 1
            if begin + len(content) >= size:
                cut = len(content)
            if cut:
                break
            length *= 2
        part = content[:cut]
        yield begin, begin + cut, part.count(b"\n") + (not part.endswith(b"\n"))
        begin += cut


def _read_binary(path: Path, file: BinaryIO, start: int, num_words: int, dim: int) -> WordVectors:
    size = os.fstat(file.fileno()).st_size
    if size < start + num_words * (4 * dim + 2):
        raise DataError(
            f"{path} has {size} bytes, too few for the {num_words} words of {dim} numbers that line 1 names: copy it "
            "again"
        )
    vectors, words = room_for(num_words, dim), []
    bits = vectors.view(np.uint32)
    while len(words) < num_words:
        content = os.pread(file.fileno(), max(_BYTES_AT_A_TIME, 8 * dim + 4096), start)
        data, first = np.frombuffer(content, np.uint8), len(words)
        count = min(num_words - first, len(data) // (4 * dim + 2))
        bounds = np.empty((count, 2), np.int64)
        done, end, problem = read_binary(data, count, dim, bits[first : first + count], bounds)
        if problem:
            raise DataError(f"{path}: a number of word {first + done + 1} is NaN or infinite; remove the word")
        if not done:
            raise DataError(f"{path} ends within word {first + 1} of {num_words}: copy it again")
        words += [content[a:b] for a, b in bounds[:done].tolist()]
        start += end
        release(vectors)
    return _distinct(path, words, vectors)


def _distinct(path: Path, words: list[bytes], vectors: np.ndarray) -> WordVectors:
    """Words as str, with the first vector of each."""
    spelled = [word.decode("utf-8", "replace") for word in words]
    rows: dict[str, int] = {}
    for row, word in enumerate(spelled):
        rows.setdefault(word, row)
    if len(rows) < len(spelled):
        number = len(spelled) - len(rows)
        again = next(word for row, word in enumerate(spelled) if rows[word] != row)
        warnings.warn(
            f"{path}: {number} lines repeat a word, {again!r} first; the first vector of each word is kept",
            stacklevel=4,
        )
    return WordVectors(list(rows), vectors, np.fromiter(rows.values(), np.int32, len(rows)))


def write_word2vec(path: Path, words: list[str], vectors: np.ndarray) -> None:
    """Write word2vec's text format, atomically; numbers have nine significant digits, to be exact for float32."""
    from bertkit.files.whole_files import whole_file

    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n")
        for word, vector in zip(words, vectors, strict=True):
            file.write(word + " " + " ".join(f"{number:.9g}" for number in vector.tolist()) + "\n")
