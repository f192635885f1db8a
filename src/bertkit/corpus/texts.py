"""Stream the rows of a txt, jsonl, csv, tsv or parquet file, one at a time, and the texts in them.

``read_rows`` says of each row that cannot be read where it stands and why, and goes on: for those who set it aside.
``read_texts`` gives exactly one text for every row, so that the n-th result belongs to the n-th row; a row that cannot
be read ends it.
"""

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from bertkit.corpus.python_docs import Passage, python_docs
from bertkit.corpus.rows import Fields, Line, csv_rows, json_rows, read_lines
from bertkit.errors import DataError, DependencyError, UsageError

FORMATS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
PYTHON_DOCS = "python-docs"
"""The name under which the documentation of the running Python is read like a file."""


class Row(NamedTuple):
    """One row of a file, whether it can be read or not."""

    line: int  # where it begins, from 1; in parquet and python-docs the number of the row
    text: str  # or, where that cannot be read, what stands there as far as it is known
    problem: str = ""  # why it cannot be read: what an error says after the place
    invalid: str = ""  # where bytes are not UTF-8, which stand in the text as replacement characters; said likewise


def read_texts(source: str | Path, column: str | None = None) -> Iterator[str]:
    """The texts of a file or of all files below a folder; "-" is standard input, a text on each line.

    Args:
        source: also "python-docs", the documentation of the running Python.
        column: which key or column holds the text; None: "text", or the only column there is. Not for txt.

    Raises:
        DataError: the file is missing, holds no texts, is not UTF-8, or lacks the column.
        UsageError: an extension that is not one of FORMATS.
        DependencyError: parquet without pyarrow.
    """
    name = "standard input" if str(source) == "-" else str(source)
    empty = True
    for path in [source] if str(source) == "-" else find_files(source, column)[0]:
        for row in read_rows(path, column):
            if row.problem or row.invalid:
                raise DataError(place(path, row.line) + (row.problem or row.invalid))
            empty = False
            yield row.text
    if empty:
        raise DataError(f"{name} holds no texts")


def find_files(source: str | Path, column: str | None = None) -> tuple[list[Path], list[Path]]:
    """The file of that name, or all below the folder of that name, in the order of their paths.

    Returns:
        The files, and those below the folder that have another extension than FORMATS; hidden ones are in neither.

    Raises:
        DataError: there is no such file, or no file to read in the folder.
        UsageError: an extension that is not one of FORMATS, or a ``column`` for a txt file.
    """
    path = Path(source)
    if str(path) == PYTHON_DOCS:
        return [path], []
    if path.is_dir():
        visible = [file for file in path.rglob("*") if not _is_hidden(file.relative_to(path)) and file.is_file()]
        visible.sort(key=lambda file: file.relative_to(path).parts)
        files = [file for file in visible if file.suffix in FORMATS]
        if not files:
            raise DataError(f"the folder {path} holds no {', '.join(FORMATS)} file")
        return files, [file for file in visible if file.suffix not in FORMATS]
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: unknown extension {path.suffix!r}, expected one of {', '.join(FORMATS)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if column is not None and path.suffix == ".txt":
        raise UsageError(f"{path} holds a text on each line and has no column {column!r}; leave it out")
    return [path], []


def read_rows(path: str | Path, column: str | None = None) -> Iterator[Row]:
    """Every row of one file that ``find_files`` gave, or of standard input ("-").

    Raises:
        DataError: a table that lacks the column, or is none at all.
        UsageError: a ``column`` of standard input.
        DependencyError: parquet without pyarrow.
    """
    path = Path(path)
    if str(path) == "-":
        if column is not None:
            raise UsageError(f"standard input holds a text on each line and has no column {column!r}; leave it out")
        yield from map(_row_of_line, read_lines(sys.stdin.buffer))
    elif str(path) == PYTHON_DOCS:
        yield from _python_docs()
    elif path.suffix == ".parquet":
        yield from _parquet(path, column)
    else:
        with open(path, "rb") as file:
            lines = read_lines(file)
            if path.suffix == ".txt":
                yield from map(_row_of_line, lines)
            elif path.suffix == ".jsonl":
                yield from _jsonl(lines, column)
            else:
                yield from _csv(lines, path, column, "\t" if path.suffix == ".tsv" else ",")


def place(path: str | Path, line: int) -> str:
    """How errors and reports name a row."""
    name = "standard input" if str(path) == "-" else str(path)
    return f"{name}, {'row' if Path(path).suffix == '.parquet' or name == PYTHON_DOCS else 'line'} {line}"


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _row_of_line(line: Line) -> Row:
    return Row(line.number, line.text.removesuffix("\n").removesuffix("\r"), invalid=line.invalid)


def _jsonl(lines: Iterator[Line], column: str | None) -> Iterator[Row]:
    chosen = column  # as the first object has it
    for number, row, problem, invalid in json_rows(lines):
        if problem:
            yield Row(number, row, problem)
        elif isinstance(row, str) and column is None:
            yield Row(number, row, invalid=invalid)
        elif not isinstance(row, dict):
            yield Row(number, json.dumps(row), f" is a JSON {type(row).__name__}: expected an object or a string")
        else:
            name, problem = _column(list(row), chosen)
            if problem:
                yield Row(number, json.dumps(row), problem)
            else:
                chosen = name
                yield Row(number, *_text(row[name], name), invalid)


def _csv(lines: Iterator[Line], path: Path, column: str | None, delimiter: str) -> Iterator[Row]:
    rows = csv_rows(lines, delimiter)
    header = next(rows, Fields(1, []))
    if header.problem:
        raise DataError(place(path, header.line) + header.problem)
    name, problem = _column(header.fields, column)
    if problem:
        raise DataError(f"{path}{problem}")
    index = header.fields.index(name)
    for line, fields, problem, invalid in rows:
        yield Row(line, delimiter.join(fields) if problem else fields[index], problem, invalid)


def _parquet(path: Path, column: str | None) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise DependencyError("parquet needs pyarrow: pip install 'bertkit[parquet]'") from None
    try:
        file = ParquetFile(path)
        name, problem = _column(file.schema_arrow.names, column)
        if problem:
            raise DataError(f"{path}{problem}")
        number = 0
        for batch in file.iter_batches(batch_size=128, columns=[name]):
            for value in batch.column(0).to_pylist():
                number += 1
                yield Row(number, *_text(value, name))
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {str(error).splitlines()[0]}") from None


def _python_docs() -> Iterator[Row]:
    """A topic, a module or a built-in is a row, its paragraphs a line each."""

    def subject(passage: Passage) -> str:
        return passage.source if passage.source.startswith("topic: ") else passage.file or passage.source.split(".")[0]

    for number, (_, passages) in enumerate(groupby(python_docs(), subject), start=1):
        yield Row(number, "\n".join(passage.text for passage in passages))


def _column(names: list[str], wanted: str | None) -> tuple[str, str]:
    """Which of the columns holds the text, and as ``Row.problem`` if none does."""
    if wanted is None and len(names) == 1:
        return names[0], ""
    if len(set(names)) < len(names):
        return "", f" names a column twice: {', '.join(names)}"
    if not names:
        return "", " is empty: expected a first line with the names of the columns"
    name = wanted or "text"
    if name not in names:
        return "", f" has no column {name!r}, it has {', '.join(names)}: choose one with --column"
    return name, ""


def _text(value: object, column: str) -> tuple[str, str]:
    if isinstance(value, str):
        return value, ""
    return "", f": {column!r} is {type(value).__name__} ({value!r:.40}), expected text"
