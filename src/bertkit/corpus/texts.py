"""Stream the texts of txt, jsonl, csv, tsv and parquet files, one for each row.

``read_rows`` yields every row, with the line and the reason for those that cannot be read, for callers that skip them.
``read_texts`` yields exactly one text for each row, so that the n-th result belongs to the n-th row; a row that cannot
be read raises an error.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.corpus.python_docs import Passage, python_docs
from bertkit.errors import DataError, UsageError
from bertkit.files.lines import Line, location, open_lines
from bertkit.files.tables import header_of, json_rows, named_rows, parquet_names, parquet_rows, quoted_fields

FORMATS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
PYTHON_DOCS = "python-docs"
"""The name under which the documentation of the running Python is read like a file."""


class TextRow(NamedTuple):
    """The text of one row of a file, or the reason why it cannot be read."""

    line: int  # where it begins, from 1; in parquet and python-docs the number of the row
    text: str  # or, if it cannot be read, the raw content as far as known
    problem: str = ""  # why it cannot be read: what an error says after the location
    invalid: str = ""  # why bytes are not UTF-8, for which the text holds replacement characters; worded likewise


def read_texts(source: str | Path, column: str | None = None) -> Iterator[str]:
    """The texts of a file or of all files below a folder; "-" is standard input, a text on each line.

    Args:
        source: also "python-docs", the documentation of the running Python.
        column: which key or column holds the text; None: "text", or the only column. Not for txt.

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
                raise DataError(location(path, row.line) + (row.problem or row.invalid))
            empty = False
            yield row.text
    if empty:
        raise DataError(f"{name} holds no texts")


def find_files(source: str | Path, column: str | None = None) -> tuple[list[Path], list[Path]]:
    """The file of that name, or all below the folder of that name, in the order of their paths.

    Returns:
        The files, and those below the folder whose extension is not one of FORMATS; hidden files are in neither.

    Raises:
        DataError: no such file, or no file to read in the folder.
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


def read_rows(path: str | Path, column: str | None = None) -> Iterator[TextRow]:
    """Every row of a file that ``find_files`` gave, or of standard input ("-").

    Raises:
        DataError: a table that lacks the column, or no table.
        UsageError: a ``column`` of standard input.
        DependencyError: parquet without pyarrow.
    """
    path = Path(path)
    if str(path) == "-" and column is not None:
        raise UsageError(f"standard input holds a text on each line and has no column {column!r}; leave it out")
    if str(path) == PYTHON_DOCS:
        yield from _python_docs()
    elif path.suffix == ".parquet":
        name = _required_column(path, parquet_names(path), column)
        for row in parquet_rows(path, [name]):
            yield TextRow(row.line, *_text(row.values, name))
    else:
        with open_lines(path) as lines:
            if path.suffix == ".jsonl":
                yield from _jsonl(lines, column)
            elif path.suffix in (".csv", ".tsv"):
                yield from _delimited(path, lines, column)
            else:
                yield from (TextRow(line.number, line.content, invalid=line.invalid) for line in lines)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _jsonl(lines: Iterator[Line], column: str | None) -> Iterator[TextRow]:
    chosen = column  # as the first object has it
    for row in json_rows(lines):
        name, problem = ("", row.problem) if row.problem else _column(list(row.values), chosen)
        if problem:
            yield TextRow(row.line, row.text or json.dumps(dict(row.values)), problem)
        else:
            chosen = name
            yield TextRow(row.line, *_text(row.values, name), row.invalid)


def _delimited(path: Path, lines: Iterator[Line], column: str | None) -> Iterator[TextRow]:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    rows = quoted_fields(lines, delimiter)
    names = header_of(path, rows).fields
    name = _required_column(path, names, column)
    for row in named_rows(rows, names, delimiter, quoted=True):
        yield TextRow(row.line, row.text if row.problem else row.values[name], row.problem, row.invalid)


def _python_docs() -> Iterator[TextRow]:
    """A topic, a module or a built-in is a row, its paragraphs a line each."""

    def subject(passage: Passage) -> str:
        return passage.source if passage.source.startswith("topic: ") else passage.file or passage.source.split(".")[0]

    for number, (_, passages) in enumerate(groupby(python_docs(), subject), start=1):
        yield TextRow(number, "\n".join(passage.text for passage in passages))


def _required_column(path: Path, names: Sequence[str], wanted: str | None) -> str:
    name, problem = _column(names, wanted)
    if problem:
        raise DataError(f"{path}{problem}")
    return name


def _column(names: Sequence[str], wanted: str | None) -> tuple[str, str]:
    """Which of the columns holds the text, and as ``TextRow.problem`` if none does."""
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


def _text(values: Mapping[str, Any], column: str) -> tuple[str, str]:
    value = values[column]
    if isinstance(value, str):
        return value, ""
    return "", f": {column!r} is {type(value).__name__} ({value!r:.40}), expected text"
