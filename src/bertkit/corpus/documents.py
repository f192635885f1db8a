"""Files to documents and their sentences: txt, jsonl, csv, tsv and parquet files, folders of them, python-docs.

A txt file with a sentence on each line has documents separated by empty lines (google-research/bert,
create_pretraining_data.py); any other txt file is one document of running text. In other files each row is a document.
Files are read in parts of about a megabyte, each processed by one thread, so that a file of any size takes little
memory. Part boundaries depend only on the file. A sentence longer than a megabyte is cut at white space.
"""

from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from bertkit.corpus.layouts import SAMPLE_BYTES, guess_layout
from bertkit.corpus.sentences import (
    AFTER_EMPTY_LINE,
    STARTS_TEXT,
    TextLayout,
    cut_sentences,
    sentence_text,
)
from bertkit.corpus.texts import TextRow, find_files, read_rows
from bertkit.errors import DataError, UsageError
from bertkit.files.bad_rows import SkippedRow
from bertkit.files.lines import TO_UTF8, ZERO_BYTES, extension, other_encoding

TextLayoutSetting = Literal["auto", TextLayout]
"""A `TextLayout`, or "auto": guessed from the first megabyte of each file."""

_PART_BYTES = 1 << 20
_AHEAD_BYTES = 1 << 12
"""Bytes read beyond the end of a part, to see whether a sentence ends there."""
_BOM, _REPLACEMENT = "\ufeff".encode(), "\ufffd".encode()
_LINE_END = 0x0A
_MOST_ZEROS = 0.01
"""Share of zero bytes in a text; UTF-16 has one for each ASCII character, white space included."""
_ROW_BYTES = 64
"""Size counted for each row in addition to its text, so that a part of very short or unreadable rows stays small."""


@dataclass(frozen=True)
class Reading:
    """Settings for reading files."""

    layout: TextLayoutSetting = (
        "auto"  # for txt files, and for the text in rows; auto: guessed from the first megabyte of each file
    )
    column: str | None = None  # key or column of the text; None: "text", or the only column

    def __post_init__(self) -> None:
        if self.layout not in get_args(TextLayoutSetting):
            raise UsageError(f"layout={self.layout!r}: expected one of {', '.join(get_args(TextLayoutSetting))}")


class Sentence(NamedTuple):
    """A sentence and its location."""

    text: str  # without line breaks
    starts_document: bool
    path: str
    line: int  # the line number where the sentence's line, or its row, begins


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the text of one file."""

    path: Path
    layout: TextLayout
    data: np.ndarray  # (num_bytes,) uint8
    texts: np.ndarray  # (D + 1,) int64, first byte of each text, and the end
    lines: np.ndarray  # (D,) int64, line number where each text begins
    is_rows: bool  # each text is a document
    starts_document: bool  # the first text starts a document, instead of continuing that of the previous part
    position: int  # start of the next part: a byte offset, or the number of rows before it
    line: int  # line number of that start
    set_aside: list[SkippedRow] = field(default_factory=list)  # unreadable rows, also those that are not UTF-8

    def sentences(self) -> tuple[np.ndarray, np.ndarray]:
        """(S + 1,) int64 first byte of each sentence, and the end; and (S,) bool, True where a document starts."""
        bounds, flags = cut_sentences(self.data, self.texts, self.layout)
        if self.is_rows:
            return bounds, flags & STARTS_TEXT != 0
        starts = flags & AFTER_EMPTY_LINE != 0 if self.layout == "lines" else np.zeros(len(flags), np.bool_)
        starts[:1] |= self.starts_document
        return bounds, starts

    def lines_of(self, offsets: np.ndarray) -> np.ndarray:
        """Line number of each byte at ``offsets``, or of the start of its row."""
        if self.is_rows:
            return self.lines[np.searchsorted(self.texts, offsets, "right") - 1]
        return self.lines[0] + np.searchsorted(np.flatnonzero(self.data == _LINE_END), offsets)

    def invalid(self, start: int, end: int, line: int) -> SkippedRow:
        """The record of a skipped sentence with bytes that are not UTF-8."""
        text = sentence_text(self.data[start:end].tobytes())
        return SkippedRow.of(self.path, int(line), f": the sentence holds bytes that are not UTF-8; {TO_UTF8}", text)


def read_sentences(
    sources: str | Path | Sequence[str | Path],
    reading: Reading = Reading(),
    set_aside: MutableSequence[SkippedRow] | None = None,
) -> Iterator[Sentence]:
    """Sentences of all documents in files, folders and "python-docs", in order.

    Args:
        set_aside: receives unreadable rows, and sentences with bytes that are not UTF-8; pass a ``deque(maxlen=0)`` to
            ignore them. None: such a row raises.

    Raises:
        DataError, UsageError, DependencyError: as ``find_files`` and ``read_parts``.
    """
    for path in chain.from_iterable(find_files(source)[0] for source in as_list(sources)):
        starts_document = True
        for part in read_parts(path, reading):
            skipped = list(part.set_aside)
            bounds, starts = part.sentences()
            lines = part.lines_of(bounds[:-1])
            for start, end, starts_one, line in zip(bounds[:-1], bounds[1:], starts, lines, strict=True):
                starts_document |= bool(starts_one)
                data = part.data[start:end].tobytes()
                text = sentence_text(data)
                if text.count("\ufffd") > data.count(_REPLACEMENT):
                    skipped.append(part.invalid(start, end, line))
                elif text:
                    yield Sentence(text, starts_document, str(path), int(line))
                    starts_document = False
            if set_aside is not None:
                set_aside.extend(skipped)
            elif skipped:
                raise DataError(str(skipped[0]))


def readable_sentences(sources: str | Path | Sequence[str | Path], reading: Reading) -> Iterator[Sentence]:
    """`read_sentences` without unreadable rows; these are counted, and only the first is kept.

    Raises:
        DataError: from the end of the iterator, if `check_readable` raises it.
        DataError, UsageError, DependencyError: as `read_sentences`.
    """
    skipped = list[SkippedRow]()
    first, num_skipped, num_sentences = "", 0, 0

    def count() -> None:
        nonlocal first, num_skipped
        first = first or (str(skipped[0]) if skipped else "")
        num_skipped += len(skipped)
        skipped.clear()

    for sentence in read_sentences(sources, reading, skipped):
        count()
        num_sentences += 1
        yield sentence
    count()
    check_readable(num_sentences, num_skipped, first)


def check_readable(num_sentences: int, num_skipped: int, first: str) -> None:
    """Check that at least as many rows and sentences were read as skipped: else the encoding, the column or the format
    of the text is probably another one.

    Raises:
        DataError: more were skipped; with ``first``, the first of them and its problem.
    """
    if num_skipped > num_sentences:
        raise DataError(
            f"{num_skipped:,} of {num_sentences + num_skipped:,} rows and sentences cannot be read, and no option "
            f"skips more than half: correct or remove them; the first: {first}"
        )


def as_list(sources: str | Path | Sequence[str | Path]) -> list[str | Path]:
    """One source or several, as a list."""
    return [sources] if isinstance(sources, str | Path) else list(sources)


def read_parts(path: Path, reading: Reading, position: int = 0, line: int = 1) -> Iterator[Part]:
    """The parts of a file from ``find_files``, starting at the ``position`` and ``line`` of an earlier part.

    Raises:
        DataError: a table without the column.
        DependencyError: parquet without pyarrow.
    """
    if extension(path) == ".txt":
        yield from _text_parts(path, reading, position, line)
    else:
        yield from _row_parts(path, reading, position)


def _text_parts(path: Path, reading: Reading, position: int, line: int) -> Iterator[Part]:
    with open(path, "rb") as file:
        start = file.read(SAMPLE_BYTES)
        has_cr_ends = b"\r" in start and b"\n" not in start  # as in old files of Macintosh

        def read(start: int, size: int) -> np.ndarray:
            file.seek(start)
            data = file.read(size)
            return np.frombuffer(data.replace(b"\r", b"\n") if has_cr_ends else data, np.uint8)

        sample = read(0, SAMPLE_BYTES)
        _check_is_text(path, sample)
        layout = guess_layout(sample) if reading.layout == "auto" else reading.layout
        if position == 0 and read(0, len(_BOM)).tobytes() == _BOM:
            position = len(_BOM)
        while len(window := read(position, _PART_BYTES + _AHEAD_BYTES)):
            before = read(max(0, position - _AHEAD_BYTES), min(position, _AHEAD_BYTES)).tobytes().removeprefix(_BOM)
            data = window[: _part_end(window, layout)]
            position += len(data)
            texts, lines = np.array([0, len(data)]), np.array([line])
            line += int(np.count_nonzero(data == _LINE_END))
            yield Part(path, layout, data, texts, lines, False, _begins_document(before, layout), position, line)


def _check_is_text(path: Path, sample: np.ndarray) -> None:
    """Refuse UTF-16, with or without its mark, and compressed files; letters of UTF-16 may be valid UTF-8."""
    if advice := other_encoding(sample[:16].tobytes()):
        raise DataError(f"{path}: {advice}")
    if np.count_nonzero(sample == 0) > len(sample) * _MOST_ZEROS:
        raise DataError(f"{path}: {ZERO_BYTES}; expected UTF-8")


def _part_end(window: np.ndarray, layout: TextLayout) -> int:
    """The end of the part that starts at a window: between sentences if possible, else at white space."""
    if len(window) <= _PART_BYTES:
        return len(window)
    if layout == "running":
        for start in (_PART_BYTES * 15 // 16, 0):
            first = 2 if start else 1  # starting within a sentence, the first cut may be wrong
            ends = cut_sentences(window, np.array([start, len(window)]), layout)[0][first:-1]
            ends = ends[ends <= _PART_BYTES]
            if len(ends):
                return int(ends[-1])
    elif len(ends := np.flatnonzero(window[:_PART_BYTES] == _LINE_END)):
        return int(ends[-1]) + 1
    if len(ends := np.flatnonzero(window[:_PART_BYTES] <= 0x20)):
        return int(ends[-1]) + 1
    end = _PART_BYTES
    while end > _PART_BYTES - 4 and window[end] & 0xC0 == 0x80:  # within a character
        end -= 1
    return end


def _begins_document(before: bytes, layout: TextLayout) -> bool:
    """Whether a document starts after these bytes of a txt file."""
    lines = before.split(b"\n")
    after_empty_line = len(lines) > 1 and not lines[-1] and not lines[-2].strip()
    return not before or (layout == "lines" and after_empty_line)


def _row_parts(path: Path, reading: Reading, num_rows: int) -> Iterator[Part]:
    rows, layout = _with_layout(path, reading)
    texts: list[bytes] = []
    lines: list[int] = []
    set_aside: list[SkippedRow] = []
    size = 0

    def part() -> Part:
        starts = np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)])
        data = np.frombuffer(b"".join(texts), np.uint8)
        return Part(path, layout, data, starts, np.array(lines, np.int64), True, True, num_rows, 1, set_aside)

    for row in islice(rows, num_rows, None):
        text, why = b"", row.invalid or row.problem
        try:
            text = row.text.encode()
        except UnicodeEncodeError:
            why = row.invalid or ": the text is not valid Unicode: it holds an unpaired surrogate"
        if why:
            set_aside.append(SkippedRow.of(path, row.line, why, row.text))
        else:
            texts.append(text)
            lines.append(row.line)
        num_rows += 1
        size += len(text) + _ROW_BYTES
        if size >= _PART_BYTES:
            yield part()
            texts, lines, set_aside, size = [], [], [], 0
    if texts or set_aside:
        yield part()


def _with_layout(path: Path, reading: Reading) -> tuple[Iterator[TextRow], TextLayout]:
    """The rows of a table, and the layout of their text, guessed from the first megabyte."""
    rows = read_rows(path, reading.column)
    if reading.layout != "auto":
        return rows, reading.layout
    first: list[TextRow] = []
    size = 0
    for row in rows:
        first.append(row)
        size += len(row.text) + _ROW_BYTES
        if size >= SAMPLE_BYTES:
            break
    sample = "\n\n".join(row.text for row in first).encode("utf-8", "replace")[:SAMPLE_BYTES]
    wrapped = guess_layout(np.frombuffer(sample, np.uint8)) == "running"
    return chain(first, rows), "running" if wrapped else "paragraphs"
