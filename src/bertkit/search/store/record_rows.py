"""Rows of new records in the database: one in ``record``, and one in ``value`` for each metadata value."""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, cast

from bertkit.errors import UsageError
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
        insert_values(connection, [(numbers[-1], metadata)])
    return numbers


def record_checksum(*parts: str | int) -> int:
    """CRC-32 of the columns of a record, without its number."""
    return zlib.crc32("\0".join(map(str, parts)).encode("utf-8"))


def insert_values(connection: sqlite3.Connection, records: Iterable[tuple[int, str]]) -> None:
    """Insert the metadata values of records, given as numbers and JSON."""
    rows = [row for number, metadata in records for row in value_rows(number, metadata)]
    connection.executemany("INSERT INTO value (key, kind, value, number) VALUES (?, ?, ?, ?)", rows)


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


def batches_of(items: Iterable[Item], size: int = RECORDS_AT_ONCE) -> Iterator[list[Item]]:
    """Items in lists of up to ``size``."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch
