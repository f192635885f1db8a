"""Rows of new records in the database: one in ``record``, and one in ``value`` for each metadata value."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, cast

from bertkit.errors import UsageError
from bertkit.search.checksums import record_checksum
from bertkit.search.records import Record
from bertkit.search.store.schema import COLUMNS, kinds_and_values

RECORDS_AT_ONCE = 1024

Item = TypeVar("Item")


def insert_records(connection: sqlite3.Connection, records: Iterable[Record]) -> list[int]:
    """Insert records without their vectors; returns their numbers.

    Raises:
        UsageError: an id that is in the store.
    """
    numbers: list[int] = []
    for record in records:
        metadata = json.dumps(dict(record.metadata), ensure_ascii=False)
        row = (record.id, record.document_id, record.start, record.end, *record.lines, record.text, metadata)
        try:
            cursor = connection.execute(
                f"INSERT INTO record ({COLUMNS}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, record_checksum(*row)),
            )
        except sqlite3.IntegrityError:
            raise UsageError(f"record {record.id!r} is in the store already: upsert it to replace it") from None
        numbers.append(cast(int, cursor.lastrowid))
        connection.executemany(
            "INSERT INTO value (key, kind, value, number) VALUES (?, ?, ?, ?)",
            value_rows(numbers[-1], metadata),
        )
    return numbers


def value_rows(number: int, metadata: str) -> list[tuple[str, str, str | int | float, int]]:
    """The rows of ``value`` for the metadata of a record, as JSON."""
    values = json.loads(metadata).items()
    return [(key, kind, one, number) for key, value in values for kind, one in kinds_and_values(value)]


def delete_records(connection: sqlite3.Connection, ids: Sequence[str]) -> list[int]:
    """Delete records and their metadata values; returns the numbers of those that there were."""
    rows = connection.execute(
        "SELECT number, metadata FROM record WHERE id IN (SELECT value FROM json_each(?))", [json.dumps(ids)]
    ).fetchall()
    connection.executemany(
        "DELETE FROM value WHERE key = ? AND kind = ? AND value = ? AND number = ?",
        [row for number, metadata in rows for row in value_rows(number, metadata)],
    )
    connection.executemany("DELETE FROM record WHERE number = ?", [(number,) for number, _ in rows])
    return [number for number, _ in rows]


def batches_of(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items in lists of up to RECORDS_AT_ONCE."""
    items = iter(items)
    while batch := list(islice(items, RECORDS_AT_ONCE)):
        yield batch
