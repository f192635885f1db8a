"""The rows of csv, tsv and jsonl files by the names of their columns, and what is done with those that are bad.

A tsv file, and any other but jsonl whose first line holds a tab, is tab-separated, and quotes in it are text, as GLUE's
files have it; other tables are comma-separated, with fields in quotes where need be. A table without a line of names
has the numbers of its columns as their names, "1" for the first.
"""

import difflib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bertkit.corpus.documents import SetAside
from bertkit.corpus.rows import Fields, Line, csv_rows, json_rows, read_lines
from bertkit.corpus.texts import place
from bertkit.errors import DataError, UsageError

_BEGINNING = 200  # characters kept of a row that is set aside


class BadRows:
    """Rows that cannot be used: each is an error, or with ``skip`` set aside.

    Attributes:
        rows: those set aside, with file, line, reason and how they begin.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        self.rows: list[SetAside] = []

    def add(self, path: str | Path, line: int, why: str, row: object = "") -> None:
        """A bad row; ``why`` is what an error says after the place.

        Raises:
            DataError: unless rows are skipped.
        """
        if not self.skip:
            raise DataError(place(path, line) + why)
        beginning = str(row)[:_BEGINNING].encode("utf-8", "replace").decode()
        self.rows.append(SetAside(str(path), line, why, beginning))

    def none_left(self, path: str | Path) -> DataError:
        """The error for a file without a single row that can be used."""
        of_path = [row for row in self.rows if row.path == str(path)]
        if of_path:
            return DataError(f"{path} holds no row that can be used; {len(of_path)} set aside, the first: {of_path[0]}")
        return DataError(f"{path} holds no examples")


class Row(NamedTuple):
    """A row of a table or an object of a jsonl file."""

    line: int
    values: Mapping[str, Any]
    problem: str = ""  # why there are no values: what an error says after the place


@dataclass(frozen=True)
class Table:
    """A file of rows; ``names`` are those of its columns, or the keys of the first object that can be read and has any;
    () where there is none such: then each row says why."""

    path: str | Path
    names: tuple[str, ...]
    rows: Iterator[Row]

    def column(self, role: str, wanted: str | None, known: Iterable[str]) -> str | None:
        """The column that plays a role: the one wanted, else the only one there is of the names known for it.

        Raises:
            DataError: there is no such column, or several of the known names.
        """
        if not self.names:
            return wanted or next(iter(known), None)
        has = ", ".join(self.names)
        if wanted is not None:
            if wanted not in self.names:
                raise DataError(f"{self.path} has no column {wanted!r} for the {role}; it has {has}")
            return wanted
        found = [name for name in known if name in self.names]
        if len(found) > 1:
            raise DataError(f"{self.path} has {' and '.join(found)}: say which is the {role}, {role}=NAME")
        return found[0] if found else None

    def require(self, role: str, wanted: str | None, known: Sequence[str]) -> str:
        """As ``column``, for a role that must be played.

        Raises:
            DataError: there is no such column, or several.
        """
        found = self.column(role, wanted, known)
        if found is None:
            raise DataError(
                f"{self.path} has no column known to be the {role} ({', '.join(known)}); it has "
                f"{', '.join(self.names)}: say which it is, {role}=NAME"
            )
        return found


@contextmanager
def open_table(
    path: str | Path, asked: Collection[str], known: Iterable[str], shapes: Mapping[int, int] | None = None
) -> Iterator[Table]:
    """The table in a file; one with a column "text" of standard input, "-", and of txt files without columns.

    Args:
        asked: the names of columns asked for. Where all are numbers the first line is a row, not a line of names.
        known: names that columns are known by.
        shapes: of tab-separated tables that are known to have no line of names: number of columns to the column, from
            1, that holds a number.

    Raises:
        DataError: no such file, an empty one, or one whose first line names none of these columns.
        UsageError: a parquet file.
    """
    numbered = bool(asked) and all(name.isdecimal() for name in asked)
    known = {*known, *asked}
    if Path(path).suffix == ".parquet":
        raise UsageError(f"{path}: labeled data are read from csv, tsv and jsonl files: write it as jsonl")
    with open_lines(path) as lines:
        first = next(lines, None)
        if first is None:
            raise DataError(f"{path} is empty")
        lines = chain([first], lines)
        if Path(path).suffix == ".jsonl":
            yield _jsonl(path, lines)
        elif _is_text(path, first, numbered, known, shapes or {}):
            yield Table(path, ("text",), map(text_row, lines))
        elif "\t" in first.text or Path(path).suffix == ".tsv":
            yield _with_names(path, _tab_rows(lines), known, numbered, shapes or {})
        else:
            yield _with_names(path, csv_rows(lines, ","), known, numbered, {})


@contextmanager
def open_lines(path: str | Path) -> Iterator[Iterator[Line]]:
    """The lines of a file, "-" for standard input.

    Raises:
        DataError: no such file.
    """
    if str(path) == "-":
        yield read_lines(sys.stdin.buffer)
        return
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    file: BinaryIO
    with open(path, "rb") as file:
        yield read_lines(file)


def check_roles(columns: Mapping[str, str], roles: Sequence[str]) -> None:
    """Check that columns are asked for only in roles that there are.

    Raises:
        UsageError: another one.
    """
    for role in columns:
        if role not in roles:
            raise UsageError(f"columns: unknown {role!r}, expected one of {', '.join(roles)}")


def text_of(values: Mapping[str, Any], name: str) -> tuple[str, str]:
    """The text in a column, and as ``Row.problem`` why there is none."""
    value = values.get(name)
    if value is None:
        return "", f" has no {name!r}: add it, or take the row out"
    if not isinstance(value, str):
        return "", f": {name!r} is {type(value).__name__} ({value!r:.40}), expected text"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "", f": {name!r} is not valid Unicode: it holds an unpaired surrogate"
    return value, ""


def unknown_label(label: str, label_names: Sequence[str]) -> str:
    """Why a label that is none of a model's is a problem."""
    shown = ", ".join(label_names[:10]) + (", ..." if len(label_names) > 10 else "")
    near = difflib.get_close_matches(label, label_names, 1)
    meant = f"; is {near[0]!r} meant?" if near else ""
    return f" has the label {label!r:.60}, which is none of the {len(label_names)} known ones ({shown}){meant}"


def _jsonl(path: str | Path, lines: Iterator[Line]) -> Table:
    rows, first = map(_object, json_rows(lines)), []
    for row in rows:
        first.append(row)
        if row.values:
            break
    if not first:
        raise DataError(f"{path} holds no examples")
    return Table(path, tuple(first[-1].values), chain(first, rows))


def _object(found: Any) -> Row:
    line, value, problem, invalid = found
    if not problem and not isinstance(value, dict):
        problem = f" is a JSON {type(value).__name__}: expected an object"
    problem = problem or invalid
    return Row(line, {} if problem else value, problem)


def text_row(line: Line) -> Row:
    """A line as the row of a table with a column "text"."""
    return Row(line.number, {"text": line.text.removesuffix("\n").removesuffix("\r")}, line.invalid)


def _is_text(path: str | Path, first: Line, numbered: bool, known: set[str], shapes: Mapping[int, int]) -> bool:
    """Whether a file is no table, but a text on each line: standard input, and txt files that do not look like one."""
    fields = first.text.rstrip("\r\n").split("\t")
    is_table = len(fields) > 1 and (
        numbered or known.intersection(fields) or _is_number(fields, shapes.get(len(fields)))
    )
    return str(path) == "-" or (Path(path).suffix == ".txt" and not is_table)


def _tab_rows(lines: Iterator[Line]) -> Iterator[Fields]:
    blank = 0
    for number, text, invalid in lines:
        fields = text.rstrip("\r\n").split("\t")
        if fields == [""] and number > 1:  # blank lines may stand at the end of a file, nowhere else
            blank = blank or number
            continue
        if blank:
            yield Fields(blank, [], " is empty: take it out")
            blank = 0
        yield Fields(number, fields, invalid=invalid)


def _with_names(
    path: str | Path, rows: Iterator[Fields], known: set[str], numbered: bool, shapes: Mapping[int, int]
) -> Table:
    first = next(rows, Fields(1, []))
    if first.problem or first.invalid:
        raise DataError(place(path, first.line) + (first.problem or first.invalid))
    names = tuple(first.fields)
    if numbered or not known.intersection(names):
        if not numbered and not _is_number(names, shapes.get(len(names))):
            raise DataError(
                f"{place(path, 1)} names no column that is known; it has {', '.join(names):.100}: say which column is "
                "which, role=NAME, or by number where there is no line of names"
            )
        names = tuple(str(number) for number in range(1, len(names) + 1))
        return Table(path, names, (_named(row, names, may_be_wider=True) for row in chain([first], rows)))
    if len(set(names)) < len(names):
        raise DataError(f"{place(path, 1)} names a column twice: {', '.join(names)}")
    return Table(path, names, (_named(row, names, may_be_wider=False) for row in rows))


def _named(row: Fields, names: tuple[str, ...], *, may_be_wider: bool) -> Row:
    """A row by the names; beyond them it may hold more only where the table does not name its columns."""
    problem, width = row.problem or row.invalid, len(row.fields)
    if not problem and (width < len(names) or (width > len(names) and not may_be_wider)):
        problem = f" has {width} fields, the first line {len(names)}: is there a tab or a quote too many?"
    return Row(row.line, {} if problem else dict(zip(names, row.fields, strict=False)), problem)


def _is_number(fields: Sequence[str], place: int | None) -> bool:
    """Whether there is a number, or nothing, at a place from 1."""
    if place is None:
        return False
    try:
        float(fields[place - 1] or "0")
    except ValueError:
        return False
    return True
