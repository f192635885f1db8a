"""A format of files, as a table with the columns that readers know."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertkit.files import extension
from bertkit.files.labeled_tables import Table
from bertkit.files.lines import Line
from bertkit.files.tables import Row, delimited_fields

TABLES = (".csv", ".tsv")
_SAMPLE_BYTES = 1 << 16


@dataclass(frozen=True)
class Sample:
    """The beginning of a file, or a folder."""

    path: Path

    @cached_property
    def text(self) -> str:
        """The first characters; "" for a folder, or no file."""
        if not self.path.is_file():
            return ""
        with open(self.path, "rb") as file:
            return file.read(_SAMPLE_BYTES).decode("utf-8-sig", "replace")

    @cached_property
    def lines(self) -> list[str]:
        """The first lines, the last of which may be cut."""
        return self.text.splitlines()

    @cached_property
    def row(self) -> Mapping[str, Any]:
        """The first object of a json or jsonl file, or row of a csv or tsv file, that can be read; {} without one."""
        text = self.text.lstrip()
        if extension(self.path) in TABLES:
            lines = (Line(number, line) for number, line in enumerate(StringIO(text, newline=""), start=1))
            rows = [row.fields for row in islice(delimited_fields(self.path, lines)[0], 2)]
            return dict(zip(*rows, strict=False)) if len(rows) == 2 else {}
        if extension(self.path) not in (".json", ".jsonl"):
            return {}
        if text[:1] == "[" and len(self.text) == _SAMPLE_BYTES:  # the first item may be larger
            text = self.path.read_text(encoding="utf-8-sig", errors="replace").lstrip()
        try:
            value, _ = json.JSONDecoder().raw_decode(text.removeprefix("[").lstrip())
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Format:
    """A format: its name, how it is recognized, and its rows, or a function that changes the rows of a table."""

    name: str
    recognizes: Callable[[Sample], bool]
    rows: Callable[[Path], Iterable[Row]] | None = None
    """The rows of a file, with the columns text and spans, words and tags, or text and label; and optionally id and
    word_spans, the character spans of the words of a text."""
    translate: Callable[[dict[str, Any]], tuple[dict[str, Any], str]] = lambda values: (values, "")
    """An object of the format as one of these rows, and a problem or ""."""

    def translated(self, table: Table) -> Table:
        """A table with all rows translated."""

        def rows() -> Iterator[Row]:
            for row in table.rows:
                values, problem = ({}, "") if row.problem else self.translate(dict(row.values))
                yield row._replace(values=values, problem=row.problem or problem)

        first, others = [], rows()
        for row in others:
            first.append(row)
            if row.values:
                break
        names = tuple(first[-1].values) if first else table.names
        return Table(f"{table.path}, read as {self.name},", names, chain(first, others))
