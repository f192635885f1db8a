"""Tables of labeled rows, csv, tsv, jsonl and parquet files and lists of objects in json files, with column roles such
as "text" and "label".

A tsv file, and any other file with a tab on its first line, is tab-separated, and quotes in it are text, as in GLUE
files; other tables are separated by commas, or by semicolons if the first line has some and no comma, with quoted
fields where needed. A table without a header has column numbers as names, "1" for the first.
"""

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from bertkit.errors import DataError, UsageError
from bertkit.files.bad_rows import BadRow
from bertkit.files.lines import Line, extension, location, open_lines
from bertkit.files.tables import (
    Fields,
    Row,
    column_names,
    delimited_fields,
    header_of,
    json_list_rows,
    json_rows,
    named_rows,
    named_twice,
    parquet_names,
    parquet_rows,
)

WITH_TABS = "lines with tabs are one text each: choose columns by number if it is a table, or name a CoNLL file .conll"
"""A note on a txt file without columns."""


@dataclass(frozen=True)
class Table:
    """A file of rows. ``names`` are column names, or the keys of the first readable, non-empty object; () without such
    an object: then each row has a problem."""

    path: str | Path
    names: tuple[str, ...]
    rows: Iterator[Row]

    def column(self, role: str, wanted: str | None, known: Iterable[str]) -> str | None:
        """The column of a role: ``wanted``, else the only column with a name in ``known``.

        Raises:
            DataError: no such column, or several known names.
        """
        if not self.names:
            return wanted or next(iter(known), None)
        has = ", ".join(filter(None, self.names))
        if wanted is not None:
            if wanted not in self.names:
                raise DataError(f"{self.path} has no column {wanted!r} for the {role}; it has {has}")
            return wanted
        matches = [name for name in known if name in self.names]
        if len(matches) > 1:
            raise DataError(f"{self.path} has {' and '.join(matches)}: choose one with --columns {role}=NAME")
        return matches[0] if matches else None

    def pair(self, roles: tuple[str, str], known: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
        """The only pair of ``known`` names that the table has both of, for two roles; None without one.

        Raises:
            DataError: several such pairs.
        """
        matches = [pair for pair in known if set(pair) <= set(self.names)]
        if len(matches) > 1:
            shown = "; ".join(" and ".join(pair) for pair in matches)
            raise DataError(
                f"{self.path} has several pairs of columns ({shown}): choose one with --columns "
                + " ".join(f"{role}=NAME" for role in roles)
            )
        return matches[0] if matches else None

    def require(self, role: str, wanted: str | None, known: Sequence[str]) -> str:
        """As ``column``, for a required role.

        Raises:
            DataError: no such column, or several.
        """
        name = self.column(role, wanted, known)
        if name is None:
            raise DataError(
                f"{self.path} has no column with a name known for the {role} ({', '.join(known)}); it has "
                f"{', '.join(filter(None, self.names))}: choose one with --columns {role}=NAME"
            )
        return name

    def with_known_names(self, known: Collection[str]) -> "Table":
        """The table with the names of `_known_names`."""
        if not (renamed := _known_names(self.names, known)):
            return self
        rows = (
            row._replace(values={renamed.get(name, name): value for name, value in row.values.items()})
            for row in self.rows
        )
        return Table(self.path, tuple(renamed.get(name, name) for name in self.names), rows)


@contextmanager
def open_table(
    path: str | Path, asked: Collection[str], known: Iterable[str], shapes: Mapping[int, int] | None = None
) -> Iterator[Table]:
    """Open the table in a file. Standard input, "-", and txt files without columns have the single column "text".

    Args:
        asked: names of requested columns. If all are numbers, the first line is a row, not a header.
        known: known column names; a column with one of them in another case is read as if it had that name.
        shapes: tab-separated tables known to have no header: number of columns -> the column, from 1, that holds a
            number.

    Raises:
        DataError: no such file, an empty file, or a first line without any of these columns.
        DependencyError: parquet without pyarrow.
    """
    numbered = bool(asked) and all(name.isdecimal() for name in asked)
    known, suffix = [*known, *asked], extension(path)
    if suffix == ".parquet":
        names = _distinct(path, parquet_names(Path(path)))
        yield Table(path, names, parquet_rows(Path(path), names)).with_known_names(known)
        return
    with open_lines(path) as lines:
        first = next(lines, None)
        if first is None:
            raise DataError(f"{path} is empty")
        lines = chain([first], lines)
        if suffix in (".jsonl", ".ndjson", ".json"):
            is_list = suffix == ".json" and first.text.lstrip()[:1] == "["
            table = named_by_first(path, json_list_rows(path, lines) if is_list else map(_valid, json_rows(lines)))
            yield table.with_known_names(known)
        elif _is_text(path, first, numbered, known, shapes or {}):
            yield Table(path, ("text",), map(text_row, lines))
        else:
            numbers = asked if numbered else ()
            table = _delimited_table(path, *delimited_fields(path, lines), known, numbers, shapes or {})
            yield table.with_known_names(known)


def check_roles(columns: Mapping[str, str], roles: Sequence[str]) -> None:
    """Check that columns are named only for roles that exist.

    Raises:
        UsageError: an unknown role.
    """
    for role in columns:
        if role not in roles:
            raise UsageError(f"columns: unknown {role!r}, expected one of {', '.join(roles)}")


def text_of(values: Mapping[str, Any], name: str) -> tuple[str, str]:
    """The text in a column, and "" or the problem, as in ``Row.problem``."""
    value = values.get(name)
    if value is None:
        return "", f" has no {name!r}: add it, or remove the row"
    if not isinstance(value, str):
        return "", f": {name!r} is {type(value).__name__} ({value!r:.40}), expected text"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "", f": {name!r} is not valid Unicode: it holds an unpaired surrogate"
    return value, ""


def id_of(values: Mapping[str, Any], name: str = "id") -> str:
    """The id in a column; "" without one. Unpaired surrogates, which no file can hold, become "?"."""
    value = values.get(name)
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


def needed_text(values: Mapping[str, Any], name: str) -> str:
    """The text in a column.

    Raises:
        BadRow: there is none.
    """
    text, problem = text_of(values, name)
    if problem:
        raise BadRow(problem)
    return text


def whole_number(value: Any) -> int | None:
    """An integer, also as text or as a float, as tables have it in a column with gaps; None for another value."""
    if isinstance(value, str):
        return int(match[1]) if (match := re.fullmatch(r"\s*(-?\d+)(\.0+)?\s*", value)) else None
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return int(value) if is_whole else None


def named_classes(values: Sequence[Any], name: str, class_names: Sequence[str] | None) -> list[str]:
    """Names of classes that are numbers; a name stays.

    Args:
        class_names: the names of 0, 1, ...; None: not known.

    Raises:
        BadRow: a value that is no number of a name.
    """
    if class_names is None:
        raise BadRow(f": {name!r} holds integers ({values!r:.40}): name them, from 0 on, with class_names=")
    names = []
    for value in values:
        number = class_names.index(value) if value in class_names else whole_number(value)
        if number is None or number >= len(class_names):
            expected = f"0 to {len(class_names) - 1}, the label names in order, or one of them"
            raise BadRow(f" has {value!r:.40} in {name!r}: expected {expected}")
        if number < 0:
            raise BadRow(f" has {number} in {name!r}, which means no label: fill it in, or remove the row")
        names.append(class_names[number])
    return names


def unknown_label(label: str, label_names: Sequence[str]) -> str:
    """Error message for an unknown label."""
    shown = ", ".join(label_names[:10]) + (", ..." if len(label_names) > 10 else "")
    near = difflib.get_close_matches(label, label_names, 1)
    as_shown = repr
    if near and unicodedata.normalize("NFKC", label) == unicodedata.normalize("NFKC", near[0]):
        as_shown = ascii  # they look the same
    meant = f"; did you mean {as_shown(near[0])}?" if near else ""
    return (
        f" has the label {as_shown(label):.60}, which is not among the {len(label_names)} known labels ({shown})"
        f"{meant}: correct it, or remove the row"
    )


def text_row(line: Line) -> Row:
    """A line as the row of a table with the column "text"."""
    return Row(line.number, {"text": line.content}, line.invalid)


def named_by_first(path: str | Path, rows: Iterator[Row]) -> Table:
    """A table of objects, with the keys of the first one that can be read."""
    first = []
    for row in rows:
        first.append(row)
        if row.values:
            break
    if not first:
        raise DataError(f"{path} holds no examples")
    return Table(path, tuple(first[-1].values), chain(first, rows))


def _valid(row: Row) -> Row:
    """The row, with invalid UTF-8 as its problem."""
    return row._replace(values={}, problem=row.invalid) if row.invalid and not row.problem else row


def _is_text(path: str | Path, first: Line, numbered: bool, known: Sequence[str], shapes: Mapping[int, int]) -> bool:
    """True for a file with a text on each line: standard input, and txt files without columns that are known."""
    fields = first.text.rstrip("\r\n").split("\t")
    is_table = len(fields) > 1 and (
        numbered or _has_known(fields, known) or _is_number(fields, shapes.get(len(fields)))
    )
    return str(path) == "-" or (extension(path) == ".txt" and not is_table)


def _delimited_table(
    path: str | Path,
    rows: Iterator[Fields],
    delimiter: str,
    known: Sequence[str],
    numbers: Collection[str],
    shapes: Mapping[int, int],
) -> Table:
    """The table, without a header if columns are asked for by ``numbers``."""
    quoted = delimiter != "\t"
    first = header_of(path, rows)
    names, header = tuple(first.fields), column_names(first.fields)
    has_names = not numbers and _has_known(header, known)
    chosen = [header[int(number) - 1] for number in numbers if 0 < int(number) <= len(header)]
    if len(chosen) > 1 and {*known}.issuperset(chosen):
        raise DataError(f"{location(path, 1)} is a header: choose columns by name ({', '.join(header)}), not by number")
    if has_names:
        names = _distinct(location(path, 1), header)
    elif numbers or (not quoted and _is_number(names, shapes.get(len(names)))):
        names = tuple(str(number) for number in range(1, len(names) + 1))
        rows = chain([first], rows)
    else:
        raise DataError(
            f"{location(path, 1)} has no known column name; it has {', '.join(names):.100}: choose columns with "
            "--columns role=NAME, or role=NUMBER if there is no header"
            if any(names)
            else f"{location(path, 1)} is empty: expected column names"
        )
    named = named_rows(rows, names, delimiter, quoted=quoted, may_be_wider=not has_names and not quoted)
    return Table(path, names, map(_valid, named))


def _known_names(names: Collection[str], known: Collection[str]) -> dict[str, str]:
    """The known names of columns whose own differ from them only in case, such as text for Text. A name that is known
    itself, or that is one of two like this, has none."""
    others = Counter(name.casefold() for name in names)
    by_case = {name.casefold(): name for name in known if others[name.casefold()] == 1}
    return {name: by_case[name.casefold()] for name in names if name.casefold() in by_case and name not in known}


def _has_known(names: Collection[str], known: Collection[str]) -> bool:
    return bool({*known}.intersection(names) or _known_names(names, known))


def _distinct(where: str | Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names; "" may occur several times: such columns are read by no one.

    Raises:
        DataError: another name occurs twice.
    """
    if twice := named_twice(names):
        raise DataError(f"{where}{twice}")
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
