"""Options for what a command reads and writes; results on stdout: a table for a person, JSON lines for a program."""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Event
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.files.json_files import json_lines, json_value

InputFile = Annotated[str, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)]
"""A file or folder, or "-" for standard input; also without the name of the option."""

OutPath = Annotated[Path, Parameter(name=["--out", "-o"])]
"""The file or folder that a command writes."""

Files = Annotated[list[str], Parameter(consume_multiple=True)]
Values = Annotated[list[str] | None, Parameter(consume_multiple=True)]
"""Several after one option."""

ModelName = Annotated[str, Parameter(help="A folder, a hub name, or the import name of an installed model package.")]
Column = Annotated[str | None, Parameter(help="The column or key that holds the text.")]
Columns = Annotated[
    list[str] | None,
    Parameter(
        help="Columns by role, such as text=sentence label=polarity, where their names are not recognized.",
        consume_multiple=True,
    ),
]
LabelNames = Annotated[
    list[str] | None,
    Parameter(help="Names of labels that are integers in the files, in order from 0.", consume_multiple=True),
]
SkipBad = Annotated[bool, Parameter(help="Skip rows that cannot be used, and count them.")]
Device = Annotated[str, Parameter(help="auto, cpu, cuda or mps.")]

printed = Event()
"""Set when this process has printed results or a note."""


def emit(rows: Iterable[dict[str, Any]], *, as_json: bool = False) -> None:
    """Print rows as they come: an aligned table on a terminal, else or ``as_json`` JSON lines, with NaN as null."""
    if as_json or not sys.stdout.isatty():
        for row in rows:
            sys.stdout.writelines(json_lines([json_value(row)]))
        return
    rows = list(rows)
    printed.set()
    if not rows:
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(columns))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def plain(text: str) -> str:
    """A text without control characters, which a terminal would obey."""
    return re.sub(r"[\0-\x08\x0b-\x1f\x7f-\x9f]", "", text)


def bold(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """A `plain` text for a terminal with spans of its characters in bold, unless NO_COLOR is set."""
    start, end = ("", "") if os.environ.get("NO_COLOR") else ("\x1b[1m", "\x1b[0m")
    parts, before = list[str](), 0
    for first, last in spans:
        parts += [plain(text[before:first]), start, plain(text[first:last]), end]
        before = last
    return "".join([*parts, plain(text[before:])])


def note(message: str) -> None:
    """Print a line to stderr, separate from the results, and above a progress bar."""
    from tqdm import tqdm

    printed.set()
    tqdm.write(plain(message), file=sys.stderr)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, list | tuple):
        return " ".join(_cell(item) for item in value)
    return re.sub(r"\s", " ", plain(str(value)))
