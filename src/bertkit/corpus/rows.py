"""The rows of csv, tsv and jsonl files as they stand, bad ones with what is wrong with them."""

import csv
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_LARGEST_FIELD = 1 << 26  # characters; a quote that is never closed makes no field larger than that


class Line(NamedTuple):
    """A line of a file."""

    number: int  # from 1
    text: str  # with its line end
    invalid: str  # where bytes are not UTF-8, which stand in the text as replacement characters


class Fields(NamedTuple):
    """A row of a table."""

    line: int  # where it begins
    fields: list[str]  # as many as the first row has, unless there is a problem
    problem: str = ""  # what an error says after the place
    invalid: str = ""  # as that of its lines


class Value(NamedTuple):
    """A line of a jsonl file."""

    line: int
    value: Any  # the line's text if there is a problem
    problem: str = ""
    invalid: str = ""


def read_lines(file: Iterable[bytes]) -> Iterator[Line]:
    """The lines of a file that is UTF-8, with or without a byte order mark."""
    for number, line in enumerate(file, start=1):
        codec = "utf-8-sig" if number == 1 else "utf-8"
        try:
            yield Line(number, line.decode(codec), "")
        except UnicodeDecodeError as error:
            advice = "convert the file (iconv -f latin1 -t utf-8)"
            yield Line(number, line.decode(codec, "replace"), f": byte {error.start} is not UTF-8; {advice}")


def csv_rows(lines: Iterator[Line], delimiter: str) -> Iterator[Fields]:
    """Rows with fields in quotes where need be (RFC 4180), the header first; none of a file without any row."""
    csv.field_size_limit(_LARGEST_FIELD)
    invalid: list[str] = []  # of the lines that the reader has taken for the row at hand

    def texts() -> Iterator[str]:
        for line in lines:
            if line.invalid:
                invalid.append(line.invalid)
            yield line.text

    reader = csv.reader(texts(), delimiter=delimiter, strict=True)
    width = blank = 0
    while True:
        first = reader.line_num + 1
        invalid.clear()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # the reader goes on with the next line
            yield Fields(first, [], f": {error}")
            continue
        if not row and width:  # blank lines may stand at the end of a file, nowhere else
            blank = blank or first
            continue
        if blank:
            yield Fields(blank, [], f" has 0 fields, the header {width}")
            blank = 0
        width = width or len(row)
        if len(row) != width:
            yield Fields(first, row, f" has {len(row)} fields, the header {width}")
        else:
            yield Fields(first, row, invalid=invalid[0] if invalid else "")


def json_rows(lines: Iterator[Line]) -> Iterator[Value]:
    """A JSON value on each line."""
    blank = 0
    for number, line, invalid in lines:
        if not line.strip():
            blank = blank or number
            continue
        if blank:
            yield Value(blank, "", " is not JSON: ")
            blank = 0
        try:
            yield Value(number, json.loads(line), invalid=invalid)
        except (ValueError, RecursionError):
            yield Value(number, line.strip(), f" is not JSON: {line.strip():.60}")
