"""Tables of labeled rows: csv, tsv, jsonl and parquet files whose columns play roles such as "text" and "label".

A tsv file, and any other whose first line holds a tab, is tab-separated, and quotes in it are text, as in GLUE's files;
other tables are comma-separated, with fields in quotes where needed. A table without a line of names has the numbers
of its columns as their names, "1" for the first.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from bertkit.errors import DataError, UsageError
from bertkit.files.lines import Line, location, open_lines
from bertkit.files.tables import (
    Fields,
    Row,
    header_of,
    json_rows,
    named_rows,
    parquet_names,
    parquet_rows,
    quoted_fields,
    tab_fields,
)


@dataclass(frozen=True)
class Table:
    """A file of rows; ``names`` are those of its columns, or the keys of the first object that can be read and has any;
    () without such an object: then each row says why."""

    path: str | Path
    names: tuple[str, ...]
    rows: Iterator[Row]

    def column(self, role: str, wanted: str | None, known: Iterable[str]) -> str | None:
        """The column that plays a role: the one wanted, else the only one whose name is known for the role.

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
        matches = [name for name in known if name in self.names]
        if len(matches) > 1:
            raise DataError(f"{self.path} has {' and '.join(matches)}: say which is the {role}, {role}=NAME")
        return matches[0] if matches else None

    def require(self, role: str, wanted: str | None, known: Sequence[str]) -> str:
        """As ``column``, for a role that must be played.

        Raises:
            DataError: there is no such column, or several.
        """
        name = self.column(role, wanted, known)
        if name is None:
            raise DataError(
                f"{self.path} has no column known to be the {role} ({', '.join(known)}); it has "
                f"{', '.join(self.names)}: say which it is, {role}=NAME"
            )
        return name


@contextmanager
def open_table(
    path: str | Path, asked: Collection[str], known: Iterable[str], shapes: Mapping[int, int] | None = None
) -> Iterator[Table]:
    """The table in a file; standard input, "-", and txt files without columns are one with the only column "text".

    Args:
        asked: the names of the columns wanted. If all are numbers, the first line is a row, not a line of names.
        known: names by which columns are known.
        shapes: of tab-separated tables that are known to have no line of names: number of columns to the column, from
            1, that holds a number.

    Raises:
        DataError: no such file, an empty one, or one whose first line names none of these columns.
        DependencyError: parquet without pyarrow.
    """
    numbered = bool(asked) and all(name.isdecimal() for name in asked)
    known, suffix = {*known, *asked}, Path(path).suffix
    if suffix == ".parquet":
        names = _distinct(path, parquet_names(Path(path)))
        yield Table(path, names, parquet_rows(Path(path), names))
        return
    with open_lines(path) as lines:
        first = next(lines, None)
        if first is None:
            raise DataError(f"{path} is empty")
        lines = chain([first], lines)
        if suffix == ".jsonl":
            yield _json_table(path, lines)
        elif _is_text(path, first, numbered, known, shapes or {}):
            yield Table(path, ("text",), map(text_row, lines))
        elif "\t" in first.text or suffix == ".tsv":
            yield _delimited_table(path, tab_fields(lines), known, numbered, shapes or {}, quoted=False)
        else:
            yield _delimited_table(path, quoted_fields(lines, ","), known, numbered, {}, quoted=True)


def check_roles(columns: Mapping[str, str], roles: Sequence[str]) -> None:
    """Check that columns are named only for roles that exist.

    Raises:
        UsageError: an unknown role.
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
    """Why a label that is not one of the model's is a problem."""
    shown = ", ".join(label_names[:10]) + (", ..." if len(label_names) > 10 else "")
    near = difflib.get_close_matches(label, label_names, 1)
    meant = f"; is {near[0]!r} meant?" if near else ""
    return f" has the label {label!r:.60}, which is none of the {len(label_names)} known ones ({shown}){meant}"


def text_row(line: Line) -> Row:
    """A line as the row of a table with the column "text"."""
    return Row(line.number, {"text": line.content}, line.invalid)


def _json_table(path: str | Path, lines: Iterator[Line]) -> Table:
    rows, first = map(_valid, json_rows(lines)), []
    for row in rows:
        first.append(row)
        if row.values:
            break
    if not first:
        raise DataError(f"{path} holds no examples")
    return Table(path, tuple(first[-1].values), chain(first, rows))


def _valid(row: Row) -> Row:
    """The row; bytes that are not UTF-8 are a problem."""
    return row._replace(values={}, problem=row.invalid) if row.invalid and not row.problem else row


def _is_text(path: str | Path, first: Line, numbered: bool, known: set[str], shapes: Mapping[int, int]) -> bool:
    """True for a file with a text on each line: standard input, and txt files without columns that are known."""
    fields = first.text.rstrip("\r\n").split("\t")
    is_table = len(fields) > 1 and (
        numbered or known.intersection(fields) or _is_number(fields, shapes.get(len(fields)))
    )
    return str(path) == "-" or (Path(path).suffix == ".txt" and not is_table)


def _delimited_table(
    path: str | Path,
    rows: Iterator[Fields],
    known: set[str],
    numbered: bool,
    shapes: Mapping[int, int],
    *,
    quoted: bool,
) -> Table:
    first = header_of(path, rows)
    if first.invalid:
        raise DataError(location(path, first.line) + first.invalid)
    names = tuple(first.fields)
    has_names = not numbered and bool(known.intersection(names))
    if has_names:
        _distinct(location(path, 1), names)
    elif numbered or _is_number(names, shapes.get(len(names))):
        names = tuple(str(number) for number in range(1, len(names) + 1))
        rows = chain([first], rows)
    else:
        raise DataError(
            f"{location(path, 1)} names no column that is known; it has {', '.join(names):.100}: say which column is "
            "which, role=NAME, or by number where there is no line of names"
        )
    delimiter = "," if quoted else "\t"
    named = named_rows(rows, names, delimiter, quoted=quoted, may_be_wider=not has_names and not quoted)
    return Table(path, names, map(_valid, named))


def _distinct(where: str | Path, names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise DataError(f"{where} names a column twice: {', '.join(names)}")
    return names


def _is_number(fields: Sequence[str], column: int | None) -> bool:
    """True if a column, from 1, holds a number or nothing."""
    if column is None:
        return False
    try:
        float(fields[column - 1] or "0")
    except ValueError:
        return False
    return True
