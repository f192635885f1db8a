"""Stream the texts of a txt, jsonl, csv, tsv or parquet file, one at a time.

Every row gives exactly one text, so that the n-th result belongs to the n-th row. A row that cannot be read ends the
stream with its file and line.
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bertkit.errors import DataError, DependencyError, UsageError

FORMATS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")


def read_texts(path: str | Path, column: str | None = None) -> Iterator[str]:
    """The texts of a file; "-" is standard input, a text on each line.

    Args:
        column: which key or column holds the text; None: "text", or the only column there is. Not for txt.

    Raises:
        DataError: the file is missing, holds no texts, is not UTF-8, or lacks the column.
        UsageError: an extension that is not one of FORMATS.
        DependencyError: parquet without pyarrow.
    """
    empty = True
    for text in _rows(path, column):
        empty = False
        yield text
    if empty:
        raise DataError(f"{'standard input' if str(path) == '-' else path} holds no texts")


def _rows(path: str | Path, column: str | None) -> Iterator[str]:
    path = Path(path)
    if column is not None and (str(path) == "-" or path.suffix == ".txt"):
        raise UsageError(f"{path} holds a text on each line and has no column {column!r}; leave it out")
    if str(path) == "-":
        yield from map(_without_line_end, _lines(sys.stdin.buffer, "standard input"))
        return
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: unknown extension {path.suffix!r}, expected one of {', '.join(FORMATS)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix == ".parquet":
        yield from _parquet(path, column)
        return
    with open(path, "rb") as file:
        lines = _lines(file, str(path))
        if path.suffix == ".txt":
            yield from map(_without_line_end, lines)
        elif path.suffix == ".jsonl":
            yield from _jsonl(lines, path, column)
        else:
            yield from _csv(lines, path, column, "\t" if path.suffix == ".tsv" else ",")


def _lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """Decoded lines with their line ends."""
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}: byte {error.start} is not UTF-8; convert the file (iconv -f latin1 -t utf-8)"
            ) from None


def _without_line_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _jsonl(lines: Iterator[str], path: Path, column: str | None) -> Iterator[str]:
    blank = 0  # number of the first blank line: they may stand at the end of a file, nowhere else
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            blank = blank or number
            continue
        place = f"{path}, line {blank or number}"
        try:
            row = json.loads("" if blank else line)
        except (ValueError, RecursionError):
            raise DataError(f"{place} is not JSON: {'' if blank else line.strip():.60}") from None
        if isinstance(row, str) and column is None:
            yield row
            continue
        if not isinstance(row, dict):
            raise DataError(f"{place} is a JSON {type(row).__name__}: expected an object or a string")
        column = _column(list(row), column, place)
        yield _text(row[column], column, place)


def _csv(lines: Iterator[str], path: Path, column: str | None, delimiter: str) -> Iterator[str]:
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        column = _column(header, column, str(path))
        place = header.index(column)
        blank = 0
        for row in reader:
            if not row:
                blank = blank or reader.line_num
                continue
            if blank or len(row) != len(header):
                number, found = (blank, 0) if blank else (reader.line_num, len(row))
                raise DataError(f"{path}, line {number} has {found} fields, the header {len(header)}")
            yield row[place]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None


def _parquet(path: Path, column: str | None) -> Iterator[str]:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise DependencyError("parquet needs pyarrow: pip install 'bertkit[parquet]'") from None
    try:
        file = ParquetFile(path)
        column = _column(file.schema_arrow.names, column, str(path))
        number = 0
        for batch in file.iter_batches(batch_size=1_024, columns=[column]):
            for value in batch.column(0).to_pylist():
                number += 1
                yield _text(value, column, f"{path}, row {number}")
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {str(error).splitlines()[0]}") from None


def _column(names: list[str], wanted: str | None, place: str) -> str:
    if wanted is None and len(names) == 1:
        return names[0]
    if len(set(names)) < len(names):
        raise DataError(f"{place} names a column twice: {', '.join(names)}")
    if not names:
        raise DataError(f"{place} is empty: expected a first line with the names of the columns")
    if (wanted or "text") not in names:
        raise DataError(
            f"{place} has no column {wanted or 'text'!r}, it has {', '.join(names)}: choose one with --column"
        )
    return wanted or "text"


def _text(value: object, column: str, place: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place}: {column!r} is {type(value).__name__} ({value!r:.40}), expected text")
    return value
