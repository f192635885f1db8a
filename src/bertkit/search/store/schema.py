"""The tables of a store, and filters as SQL."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from bertkit.documents.metadata import Scalar, Value
from bertkit.search.filters import And, Between, Contains, Equal, Filter, InDocument, Not, OneOf, Or, not_a_filter

FORMAT = 3
"""Format of the tables and files, and of the words that texts are split into; kept as SQLite's user_version."""

COLUMNS = "id, document_id, start, end, first_line, last_line, text, metadata"
"""The columns of a record, without its number and checksum."""

START_OF_TEXT = "length(text), substr(text, 1, 24)"
"""The columns of the index by which equal texts are found."""

HOW_TO_REPAIR = "repair it with VectorStore.repair, or index the documents into a new folder"
"""Advice in errors of a damaged store."""

_IN_A_ROW = 30

TABLES = (
    """CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        commit_number INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        num_positions INTEGER NOT NULL,
        scan TEXT NOT NULL,
        identity TEXT NOT NULL,
        terms_cleared INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE record (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        document_id TEXT NOT NULL,
        start INTEGER NOT NULL,
        end INTEGER NOT NULL,
        first_line INTEGER NOT NULL,
        last_line INTEGER NOT NULL,
        text TEXT NOT NULL,
        metadata TEXT NOT NULL,
        checksum INTEGER NOT NULL
    )""",
    "CREATE INDEX record_document ON record (document_id)",
    f"CREATE INDEX record_text ON record ({START_OF_TEXT})",
    """CREATE TABLE value (
        key TEXT NOT NULL,
        kind TEXT NOT NULL,
        value NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (key, kind, value, number)
    ) WITHOUT ROWID""",
    "CREATE TABLE removed (position INTEGER PRIMARY KEY)",
    """CREATE TABLE block (
        file TEXT NOT NULL,
        block INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (file, block)
    ) WITHOUT ROWID""",
)


class TextIndex(Protocol):
    """An index of the texts in tables of the same database, kept up to date in the same commits."""

    def create(self, connection: sqlite3.Connection) -> None:
        """Create its tables, if missing."""

    def covers(self, connection: sqlite3.Connection) -> bool:
        """Whether it has the texts of the store: it lacks those that were added without it."""

    def add(self, connection: sqlite3.Connection, rows: Sequence[tuple[int, str, str]]) -> None:
        """Add record numbers, texts, and the names of their files, see `file_name`."""

    def remove(self, connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
        """Remove texts by record number."""

    def verify(self, connection: sqlite3.Connection) -> list[str]:
        """Problems, one sentence each; empty if there are none."""

    def clear(self, connection: sqlite3.Connection) -> None:
        """Remove everything; a repair then adds every text again."""


def file_name(metadata: Mapping[str, object]) -> str:
    """The name of the file of a record, "" without one."""
    return str(metadata.get("source") or "")


def kinds_and_values(value: Value) -> Iterable[tuple[str, str | int | float]]:
    """Kind and value of metadata for comparison; of a list, those of each different item, which only `Contains` finds.

    >>> list(kinds_and_values("a")), list(kinds_and_values(["a", 1, 1.0])), list(kinds_and_values([]))
    ([('text', 'a')], [('text in list', 'a'), ('number in list', 1)], [('empty list', 0)])
    """
    if not isinstance(value, list):
        return [kind_and_value(value)]
    items = ((f"{kind} in list", compared) for kind, compared in map(kind_and_value, value))
    return dict.fromkeys(items) or [("empty list", 0)]


def kind_and_value(value: Scalar) -> tuple[str, str | int | float]:
    """Kind and value of metadata for comparison: True and 1 differ, 1 and 1.0 do not."""
    if value is None:
        return "null", 0
    if isinstance(value, bool):
        return "bool", int(value)
    return ("text", value) if isinstance(value, str) else ("number", value)


def as_sql(where: Filter) -> tuple[str, list[Any]]:
    """A filter as a condition on ``record``, and the values of its placeholders.

    Raises:
        UsageError: it is not a filter.
    """
    if isinstance(where, Equal):
        kind, value = kind_and_value(where.value)
        kind += " in list" if isinstance(where, Contains) else ""
        return _has("key = ? AND kind = ? AND value = ?"), [where.key, kind, value]
    if isinstance(where, OneOf):
        by_kind: dict[str, list] = {}
        parts = []
        for value in where.values:
            kind, compared = kind_and_value(value)
            if isinstance(compared, str) and "\0" in compared:  # json_each would end it there
                parts.append(as_sql(Equal(where.key, value)))
            else:
                by_kind.setdefault(kind, []).append(compared)
        condition = _has("key = ? AND kind = ? AND value IN (SELECT value FROM json_each(?))")
        parts += [(condition, [where.key, kind, json.dumps(values)]) for kind, values in by_kind.items()]
        return _joined(" OR ", parts, "0")
    if isinstance(where, Between):
        ends = [(sign, end) for sign, end in ((">=", where.low), ("<=", where.high)) if end is not None]
        conditions = "".join(f" AND value {sign} ?" for sign, _ in ends)
        kind = "text" if any(isinstance(end, str) for _, end in ends) else "number"
        return _has(f"key = ? AND kind = ?{conditions}"), [where.key, kind, *(end for _, end in ends)]
    if isinstance(where, InDocument):
        return "document_id IN (SELECT value FROM json_each(?))", [json.dumps(where.document_ids)]
    if isinstance(where, And):
        return _joined(" AND ", map(as_sql, where.parts), "1")
    if isinstance(where, Or):
        return _joined(" OR ", map(as_sql, where.joined()), "0")
    if isinstance(where, Not):
        condition, values = as_sql(where.part)
        return f"NOT {condition}", values
    raise not_a_filter(where)


def _has(condition: str) -> str:
    return f"number IN (SELECT number FROM value WHERE {condition})"


def _joined(operator: str, parts: Iterable[tuple[str, list[Any]]], empty: str) -> tuple[str, list[Any]]:
    parts = list(parts)
    condition = _in_rows(operator, [condition for condition, _ in parts]) if parts else empty
    return condition, [value for _, values in parts for value in values]


def _in_rows(operator: str, conditions: Sequence[str]) -> str:
    """Conditions joined in rows of thirty, and these likewise: SQLite allows a thousand levels of expressions, and each
    condition in a row adds one; and its parser a hundred tokens that wait for others, and each bracket adds three."""
    while len(conditions) > 1:
        rows = [conditions[start : start + _IN_A_ROW] for start in range(0, len(conditions), _IN_A_ROW)]
        conditions = [f"({operator.join(row)})" if len(row) > 1 else row[0] for row in rows]
    return conditions[0]
