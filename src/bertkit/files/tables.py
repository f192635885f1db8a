"""Rows of csv, tsv, jsonl and parquet files by column, each with its line, or the reason why it is unreadable.

Blank lines are allowed at the end of a file; elsewhere they are bad rows.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.errors import DataError, required
from bertkit.files.lines import Line, extension, location, what_it_is

_LARGEST_FIELD = 1 << 26  # characters; a limit for fields with an unclosed quote
_PARQUET_ROWS = 128  # read at a time
_QUOTED = re.compile(r'(?:(?<=,)|^)"(?:[^"]|"")*"(?=,|\r?\n?$)')  # a field of a csv file
_BETWEEN_ITEMS = re.compile(r"[\s,]*")
_BLANK = " is empty: remove it"  # the problem of a blank line between rows


class Row(NamedTuple):
    """One row of a file."""

    line: int  # line where the row starts, from 1; for parquet the row number
    values: Mapping[str, Any] = {}  # by column; empty if there is a problem
    problem: str = ""  # why the row is unreadable: the part of the error message after the location
    invalid: str = ""  # same for bytes that are not UTF-8, which became replacement characters in the values
    text: str = ""  # if there is a problem, the raw content as far as known
    is_blank: bool = False
    path: str = ""  # its file, for a table of several files


class Fields(NamedTuple):
    """One row of a delimited file, before its columns have names."""

    line: int
    fields: list[str]
    problem: str = ""
    invalid: str = ""


def quoted_fields(lines: Iterator[Line], delimiter: str = ",") -> Iterator[Fields]:
    """Rows of a csv file, with fields in quotes where needed (RFC 4180).

    After a quote that is never closed, reading continues at the next line.
    """
    csv.field_size_limit(_LARGEST_FIELD)
    taken: list[Line] = []  # lines consumed for the current row

    def texts() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line.text

    reader = csv.reader(texts(), delimiter=delimiter, strict=True)
    while True:
        taken.clear()
        fields, problem = [], ""
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # the reader continues with the next line
            problem = f": {error}"
            if "new-line character" in problem:
                problem = " holds a CR inside a field: put the field in quotes"
            elif "unexpected end" in problem or "field larger" in problem:
                problem = f"{problem}; is a quote not closed?"
                lines = chain(taken[1:], lines)
                del taken[1:]
                reader = csv.reader(texts(), delimiter=delimiter, strict=True)
            elif len(taken) > 1:
                problem = f"{problem}; the quoted text takes the lines to {taken[-1].number}"
        invalid = next((line.invalid for line in taken if line.invalid), "")
        yield Fields(taken[0].number, fields, problem and (invalid or problem), invalid)


def delimited_fields(path: str | Path, lines: Iterator[Line]) -> tuple[Iterator[Fields], str]:
    """Rows of a delimited file, and the delimiter.

    It is a tab in a tsv file or if the first line has one outside quotes; a semicolon, as where commas are decimal, or
    else a vertical bar, if the first line has it and no comma; else a comma. With tabs, quotes are text unless each
    field of the first line is in quotes.
    """
    first = next(lines, None)
    if first is not None:
        lines = chain([first], lines)
    if extension(path) == ".tsv" or (first is not None and "\t" in _QUOTED.sub("", first.text)):
        if first is not None and are_all_quoted(first.content.split("\t")):
            return quoted_fields(lines, "\t"), "\t"
        return tab_fields(lines), "\t"
    text = "" if first is None or "," in first.text else first.text
    delimiter = next((mark for mark in ";|" if mark in text), ",")
    return quoted_fields(lines, delimiter), delimiter


def are_all_quoted(fields: Sequence[str]) -> bool:
    """Whether several fields of a line are all in quotes."""
    return len(fields) > 1 and all(len(field) > 1 and field[0] == field[-1] == '"' for field in fields)


def tab_fields(lines: Iterator[Line]) -> Iterator[Fields]:
    """Rows of a tab-separated file in which quotes are text."""
    for line in lines:
        content = line.text.rstrip("\r\n")
        yield Fields(line.number, content.split("\t") if content else [], invalid=line.invalid)


def named_rows(
    rows: Iterator[Fields], names: Sequence[str], delimiter: str, *, quoted: bool, may_be_wider: bool = False
) -> Iterator[Row]:
    """Rows of fields by column name.

    Args:
        quoted: fields may be quoted; errors then mention quotes.
        may_be_wider: accept rows with more fields than names, and drop the extra fields.
    """
    header = [] if names[:1] == ("1",) else list(names)  # else columns have numbers

    def named(row: Fields) -> Row:
        problem, width, is_blank = row.problem, len(row.fields), not (row.fields or row.problem)
        if not problem and (width < len(names) or (width > len(names) and not may_be_wider)):
            if is_blank:
                problem = _BLANK
            elif quoted:
                problem = f" has {width} fields, but the header has {len(names)}"
            else:
                problem = f" has {width} fields, but the first line has {len(names)}: check for extra tabs or quotes"
        elif width > 1 and row.fields[1:] == header[1:] and row.fields[0].removeprefix("\ufeff") == header[0]:
            problem = " repeats the header, as in joined files: remove it"
        if problem:
            return Row(row.line, problem=problem, text=delimiter.join(row.fields), is_blank=is_blank)
        return Row(row.line, dict(zip(names, row.fields, strict=False)), invalid=row.invalid)

    return _without_blank_end(map(named, rows))


def delimited_rows(path: str | Path, lines: Iterator[Line]) -> tuple[tuple[str, ...], Iterator[Row]]:
    """The columns of a delimited file with a header, see `delimited_fields`, and its rows.

    Raises:
        DataError: the header is malformed, or not UTF-8.
    """
    rows, delimiter = delimited_fields(path, lines)
    names = column_names(header_of(path, rows).fields)
    return names, named_rows(rows, names, delimiter, quoted=delimiter != "\t")


def json_rows(lines: Iterator[Line]) -> Iterator[Row]:
    """Objects of a jsonl file; a string is an object with the only key "text", as in a pair with another object."""
    return _without_blank_end(map(_json_row, lines))


def _json_row(line: Line) -> Row:
    content = line.text.strip()
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError):
        problem = f" is not JSON: {content:.60}; expected an object on each line" if content else _BLANK
        return Row(line.number, problem=problem, text=content, is_blank=not content)
    value = {"text": value} if isinstance(value, str) else _of_pair(value)
    if not isinstance(value, dict):
        problem = f" is a JSON {type(value).__name__}: expected an object or a string"
        return Row(line.number, problem=problem, text=content)
    return Row(line.number, value, invalid=line.invalid)


def _of_pair(value: Any) -> Any:
    """A text and an object, as in training data of spaCy, as one object; other values unchanged."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
        return {"text": value[0], **value[1]}
    return value


def json_list_rows(path: str | Path, lines: Iterable[Line]) -> Iterator[Row]:
    """The items of a JSON list, each with its line: objects, or pairs of a text and an object.

    Raises:
        DataError: a line is not UTF-8.
    """
    lines = list(lines)
    for one in lines:
        if one.invalid:
            raise DataError(location(path, one.number) + one.invalid)
    text = "".join(one.text for one in lines)
    decoder, position, line = json.JSONDecoder(), text.index("[") + 1, 1
    counted = 0
    while match := _BETWEEN_ITEMS.match(text, position):
        line, counted = line + text.count("\n", counted, match.end()), match.end()
        if text[counted : counted + 1] == "]":
            if rest := text[counted + 1 :].strip():
                yield Row(line, problem=f" has text after the end of the list: {rest:.60}; expected one list")
            return
        if counted == len(text):
            yield Row(line, problem=" ends the file, but not the list (no ]): is the file truncated?")
            return
        try:
            value, position = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            yield Row(line, problem=f" is not JSON: {text[match.end() : match.end() + 60]!r}")
            return
        value = _of_pair(value)
        if isinstance(value, dict):
            yield Row(line, value)
        else:
            yield Row(line, problem=f" is a JSON {type(value).__name__}: expected an object", text=str(value))


def _without_blank_end(rows: Iterator[Row]) -> Iterator[Row]:
    """Drop blank rows at the end; elsewhere keep the first of consecutive blank rows."""
    blank = None
    for row in rows:
        if row.is_blank:
            blank = blank or row
            continue
        if blank is not None:
            yield blank
            blank = None
        yield row


def parquet_names(path: Path) -> tuple[str, ...]:
    """The names of the columns of a parquet file.

    Raises:
        DataError: the file cannot be read as parquet.
        DependencyError: pyarrow is not installed.
    """
    with open_parquet(path) as file:
        return tuple(file.schema_arrow.names)


def parquet_rows(path: Path, names: Sequence[str]) -> Iterator[Row]:
    """The rows of a parquet file, with the columns of these names, and class names instead of their numbers where the
    metadata of Hugging Face's datasets has them; raises as `parquet_names`."""
    with open_parquet(path) as file:
        number, classes = 0, _class_names(file.schema_arrow.metadata or {})
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=list(names)):
            for values in batch.to_pylist():
                number += 1
                for name in classes.keys() & values.keys():
                    values[name] = _with_names(values[name], classes[name])
                yield Row(number, values)


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """The class names of the columns of a parquet file that Hugging Face's datasets wrote."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    classes = {}
    for name, feature in features.items():
        while isinstance(feature, list | dict) and (
            inner := feature[0] if isinstance(feature, list) else feature.get("feature")
        ):
            feature = inner
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names"):
            classes[name] = list(map(str, feature["names"]))
    return classes


def _with_names(value: Any, names: Sequence[str]) -> Any:
    """Class numbers, also in lists, as names; None for -1, which means no class."""
    if isinstance(value, list):
        return [_with_names(part, names) for part in value]
    if type(value) is not int or value >= len(names):
        return value
    return names[value] if value >= 0 else None


def required_parquet() -> Any:
    """The module pyarrow.parquet; raises a DependencyError without it."""
    return required("pyarrow.parquet", "parquet needs pyarrow", "parquet")


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A pyarrow ParquetFile; raises as `parquet_names`."""
    parquet = required_parquet()
    import pyarrow

    if not path.is_file():
        raise DataError(f"{path}{what_it_is(path)}")
    try:
        yield parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {str(error).splitlines()[0]}") from None


def column_names(fields: Sequence[str]) -> tuple[str, ...]:
    """The names in a header, without white space around them."""
    return tuple(field.strip() for field in fields)


def named_twice(names: Sequence[str]) -> str:
    """Problem of a name that two columns have; "" without one. Spreadsheets write columns without a name, "".

    >>> named_twice(["text", "label", "text"])
    " names the column 'text' twice: rename or remove one"
    """
    twice = next((name for name in names if name and names.count(name) > 1), "")
    return f" names the column {twice!r} twice: rename or remove one" if twice else ""


def header_of(path: str | Path, rows: Iterator[Fields]) -> Fields:
    """The header row of a delimited file, without fields if the file is empty.

    Raises:
        DataError: the header is malformed, or not UTF-8.
    """
    first = next(rows, Fields(1, []))
    if problem := first.problem or first.invalid:
        raise DataError(location(path, first.line) + problem)
    return first
