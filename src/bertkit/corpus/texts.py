"""Stream the texts of txt, jsonl, csv, tsv and parquet files, one per row.

``read_rows`` yields every row; for an unreadable one, with the reason, so that callers can skip it.
``read_texts`` yields exactly one text per row, so that the n-th text belongs to the n-th row; an unreadable row
raises an error.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.corpus.python_docs import Passage, python_docs
from bertkit.errors import DataError, UsageError, warn
from bertkit.files.lines import Line, extension, location, open_lines, what_it_is
from bertkit.files.tables import (
    delimited_rows,
    json_rows,
    named_twice,
    parquet_names,
    parquet_rows,
)

FORMATS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
PYTHON_DOCS = "python-docs"
"""The source name for the documentation of the running Python."""
_MOST_NAMES = 3
_REMEDIES = {
    ".gz": "decompress it (gzip -d)",
    ".zst": "decompress it (zstd -d)",
    ".bz2": "decompress it (bzip2 -d)",
    ".xz": "decompress it (xz -d)",
    ".zip": "decompress it (unzip)",
    ".json": "if it is a list of objects, write one on each line (jq -c '.[]') and name it .jsonl",
}
"""Advice on files with other extensions."""


class TextRow(NamedTuple):
    """The text of one row of a file, or the reason why it cannot be read."""

    line: int  # line where the row starts, from 1; for parquet and python-docs the row number
    text: str  # for an unreadable row, the raw content as far as known
    problem: str = ""  # why the row is unreadable: the part of the error message after the location
    invalid: str = ""  # same for bytes that are not UTF-8, which the text replaces by replacement characters


def read_texts(source: str | Path, column: str | None = None) -> Iterator[str]:
    """Texts of a file or of all files in a folder and its subfolders; "-" is standard input, with a text on each line.

    Args:
        source: a file, a folder, "-", or "python-docs", the documentation of the running Python.
        column: the key or column of the text; None: "text", or the only column. Not for txt.

    Warns:
        UserWarning: files in the folder with other extensions than FORMATS, which are skipped.

    Raises:
        DataError: the file is missing, holds no texts, is not UTF-8, or lacks the column; a text with an unpaired
            surrogate, as JSON can hold.
        UsageError: an extension that is not one of FORMATS.
        DependencyError: parquet without pyarrow.
    """
    name, paths, left_out = "standard input", [source], list[Path]()
    if str(source) != "-":
        name, (paths, left_out) = str(source), find_files(source, column)
    if left_out:
        warn(files_skipped(left_out))
    empty = True
    for path in paths:
        for row in read_rows(path, column):
            if problem := row.problem or row.invalid or surrogate_in(row.text):
                raise DataError(location(path, row.line) + problem)
            empty = False
            yield row.text
    if empty:
        raise DataError(f"{name} holds no texts")


def find_files(source: str | Path, column: str | None = None) -> tuple[list[Path], list[Path]]:
    """The file at a path, or all files below the folder there, sorted by path; links to folders are followed.

    Returns:
        The files, and those in the folder whose extension is not in FORMATS; hidden files are in neither list.

    Raises:
        DataError: no such file, or no file to read in the folder.
        UsageError: an extension that is not one of FORMATS, or a ``column`` for a txt file.
    """
    path = Path(source)
    if not str(source):
        raise UsageError("the path of the texts is empty: expected a file, a folder or -")
    if str(path) == PYTHON_DOCS:
        return [path], []
    if path.is_dir():
        visible = sorted(_visible_files(path), key=lambda file: file.relative_to(path).parts)
        files = [file for file in visible if extension(file) in FORMATS]
        if not files:
            raise DataError(f"the folder {path} holds no {', '.join(FORMATS)} file")
        return files, [file for file in visible if extension(file) not in FORMATS]
    if not path.is_file():
        raise DataError(f"{path}{what_it_is(path, 'file or folder')}")
    if extension(path) not in FORMATS:
        advice = _REMEDIES.get(extension(path), "if it is plain text, rename it to .txt")
        raise UsageError(f"{path}: unknown extension {path.suffix!r}, expected one of {', '.join(FORMATS)}; {advice}")
    if column is not None and extension(path) == ".txt":
        raise UsageError(f"{path} holds a text on each line and has no column {column!r}; omit the column")
    return [path], []


def files_skipped(left_out: Sequence[str | Path]) -> str:
    """One line on files with other extensions: their number, and the names of the first."""
    names = ", ".join(map(str, left_out[:_MOST_NAMES])) + (", ..." if len(left_out) > _MOST_NAMES else "")
    return f"files skipped because of their extension: {len(left_out):,} ({names})"


def check_names(paths: Sequence[Path]) -> None:
    """Check that the names of files can be written to a manifest.

    Raises:
        DataError: a name that is not UTF-8.
    """
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise DataError(f"{str(path)!a}: the file name is not UTF-8: rename the file") from None


def read_rows(path: str | Path, column: str | None = None) -> Iterator[TextRow]:
    """All rows of a file from ``find_files``, or of standard input ("-").

    Raises:
        DataError: a table without the column, or a malformed table.
        UsageError: a ``column`` for standard input.
        DependencyError: parquet without pyarrow.
    """
    path = Path(path)
    if str(path) == "-" and column is not None:
        raise UsageError(f"standard input holds a text on each line and has no column {column!r}; omit the column")
    if str(path) == PYTHON_DOCS:
        yield from _python_docs()
    elif extension(path) == ".parquet":
        name = _required_column(path, parquet_names(path), column)
        for row in parquet_rows(path, [name]):
            yield TextRow(row.line, *text_of(row.values, name))
    else:
        with open_lines(path) as lines:
            if extension(path) == ".jsonl":
                yield from _jsonl(path, lines, column)
            elif extension(path) in (".csv", ".tsv"):
                yield from _delimited(path, lines, column)
            else:
                yield from (TextRow(line.number, line.content, invalid=line.invalid) for line in lines)


def _visible_files(folder: Path) -> Iterator[Path]:
    """Files that are not hidden in a folder, its subfolders and those they link to; each folder once."""
    waiting, known = [str(folder)], set[str]()
    for start in waiting:  # links come last, so that a folder inside keeps its path
        for parent, folders, files in os.walk(start):
            if (real := os.path.realpath(parent)) in known:
                folders.clear()
                continue
            known.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            waiting += filter(os.path.islink, (os.path.join(parent, name) for name in folders))
            visible = (Path(parent, name) for name in files if not name.startswith("."))
            yield from (file for file in visible if file.is_file())


def _jsonl(path: Path, lines: Iterator[Line], column: str | None) -> Iterator[TextRow]:
    chosen = column  # as in the first object
    for row in json_rows(lines):
        name, problem = ("", row.problem) if row.problem else text_column(list(row.values), chosen)
        if problem:
            yield TextRow(row.line, row.text if row.problem else json.dumps(dict(row.values)), problem)
        elif column is None and name != "text" and "text" in row.values:
            raise DataError(
                f"{location(path, row.line)} has a key 'text', but texts are read from {name!r}, the only key of the "
                "first object: choose one with --column"
            )
        else:
            chosen = name
            yield TextRow(row.line, *text_of(row.values, name), row.invalid)


def _delimited(path: Path, lines: Iterator[Line], column: str | None) -> Iterator[TextRow]:
    names, rows = delimited_rows(path, lines)
    name = _required_column(path, names, column)
    for row in rows:
        yield TextRow(row.line, row.text if row.problem else row.values[name], row.problem, row.invalid)


def _python_docs() -> Iterator[TextRow]:
    """One row per topic, module or built-in, with one line per paragraph."""

    def subject(passage: Passage) -> str:
        return passage.source if passage.source.startswith("topic: ") else passage.file or passage.source.split(".")[0]

    for number, (_, passages) in enumerate(groupby(python_docs(), subject), start=1):
        yield TextRow(number, "\n".join(passage.text for passage in passages))


def _required_column(path: Path, names: Sequence[str], wanted: str | None) -> str:
    name, problem = text_column(names, wanted)
    if problem:
        raise DataError(f"{path}{problem}")
    return name


def text_column(names: Sequence[str], wanted: str | None) -> tuple[str, str]:
    """The column of the text; or "" and a problem as in ``TextRow.problem``."""
    if wanted is None and len(names) == 1:
        return names[0], ""
    if twice := named_twice(names):
        return "", twice
    if not any(names):
        return "", " is empty: expected column names on the first line"
    name = wanted or "text"
    if name not in names:
        return "", f" has no column {name!r}, it has {', '.join(filter(None, names))}: choose one with --column"
    return name, ""


def surrogate_in(text: str) -> str:
    """The problem of a text that has no UTF-8, or ""."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f": the text is not valid Unicode: character {error.start + 1} is an unpaired surrogate"
    return ""


def text_of(values: Mapping[str, Any], column: str) -> tuple[str, str]:
    """The text in a column of a row; or "" and a problem as in ``TextRow.problem``."""
    value = values[column]
    if isinstance(value, str):
        return value, ""
    return "", f": {column!r} is {type(value).__name__} ({value!r:.40}), expected text"
