"""Rows of new records in the database: one in ``record``, and one in ``value`` for each metadata value."""

import json
import sqlite3
from collections.abc import Iterable
from typing import cast

from bertkit.errors import UsageError
from bertkit.search.checksums import record_checksum
from bertkit.search.embedded.schema import kind_and_value
from bertkit.search.store import Record


def insert_records(connection: sqlite3.Connection, records: Iterable[Record]) -> list[int]:
    """Insert records without their vectors; returns their numbers.

    Raises:
        UsageError: an id that is in the store.
    """
    numbers: list[int] = []
    for record in records:
        metadata = json.dumps(dict(record.metadata), ensure_ascii=False)
        row = (record.id, record.document_id, record.start, record.end, record.text, metadata)
        try:
            cursor = connection.execute(
                "INSERT INTO record (id, document_id, start, end, text, metadata, checksum) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
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
    return [(key, *kind_and_value(value), number) for key, value in json.loads(metadata).items()]
