"""Verification and repair of a store."""

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from bertkit.errors import StoreError
from bertkit.search.records import Embed, Identity, embedded
from bertkit.search.store.generation import Generation
from bertkit.search.store.record_rows import insert_values, record_checksum, value_rows
from bertkit.search.store.row_files import BLOCK_ROWS
from bertkit.search.store.schema import COLUMNS, HOW_TO_REPAIR, TextIndex, file_name

ROWS_AT_ONCE = 1024
_LISTED = "number IN (SELECT value FROM json_each(?)) ORDER BY number"
_RECORD = f"SELECT number, {COLUMNS}, checksum FROM record ORDER BY number"


@dataclass(frozen=True)
class LiveRows:
    """Records and the positions of their vectors."""

    numbers: np.ndarray  # (num_records,) int64, ascending, from the records
    positions: np.ndarray  # (num_live,) int64, ascending, without removed ones

    @classmethod
    def read(cls, connection: sqlite3.Connection, num_positions: int) -> "LiveRows":
        is_live = np.ones(num_positions, bool)
        is_live[[one for (one,) in connection.execute("SELECT position FROM removed") if one < num_positions]] = False
        return cls(_numbers(connection), np.flatnonzero(is_live))

    def agree(self, numbers_by_position: np.ndarray) -> bool:
        return np.array_equal(numbers_by_position[self.positions], self.numbers)


def problems(
    connection: sqlite3.Connection, generation: Generation, num_positions: int, text_index: TextIndex | None
) -> list[str]:
    """Problems of a store, one sentence each."""
    try:
        results = database_problems(connection)
        damaged = damaged_records(connection)
        results += [f"the text or metadata of record {id!r} is damaged" for _, id in damaged]
        if not damaged and values_differ(connection):
            results.append("the table of metadata values differs from the metadata of the records")
        if text_index is not None:
            results += text_index.verify(connection)
        live = LiveRows.read(connection, num_positions)
        for file in (generation.vectors, generation.numbers):
            for block in generation.damaged_blocks(connection, file, num_positions):
                first, last = block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, num_positions) - 1
                results.append(f"rows {first} to {last} of {file.path.name} are damaged or missing")
        if not results:
            results += [
                f"rows from {first} on of {generation.blocks.path.name} are damaged or missing"
                for first in generation.wrong_codes(num_positions)
            ]
        if not results and not live.agree(generation.numbers.rows(num_positions)[:, 0]):
            results.append("vectors and records do not match")
    except sqlite3.DatabaseError as error:
        results = [f"the database is damaged: {error}"]
    return results


def database_problems(connection: sqlite3.Connection) -> list[str]:
    """Problems that SQLite reports about its pages and indices."""
    rows = connection.execute("PRAGMA integrity_check").fetchall()
    return [] if rows == [("ok",)] else [f"the database is damaged: {line}" for (line,) in rows]


def damaged_records(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    """Number and id of records with a wrong checksum."""
    with _any_bytes_as_text(connection):
        return [
            (number, id)
            for number, id, *rest, checksum in connection.execute(_RECORD)
            if _checksum(id, *rest) != checksum
        ]


@contextmanager
def _any_bytes_as_text(connection: sqlite3.Connection) -> Iterator[None]:
    """Allow reading damaged text, as a value that differs from all undamaged text."""
    text_factory = connection.text_factory
    connection.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        connection.text_factory = text_factory


def _checksum(*row: object) -> int | None:
    try:
        return record_checksum(*row)  # type: ignore[arg-type]
    except UnicodeEncodeError:
        return None


def values_differ(connection: sqlite3.Connection) -> bool:
    """Whether the table ``value`` differs from the metadata of the records."""
    with _any_bytes_as_text(connection):
        actual = sum(_value_hash(row) for row in connection.execute("SELECT key, kind, value, number FROM value"))
    rows = connection.execute("SELECT number, metadata FROM record")
    return actual != sum(_value_hash(row) for number, metadata in rows for row in value_rows(number, metadata))


def _value_hash(row: Sequence[object]) -> int:
    return zlib.crc32(repr(tuple(row)).encode("utf-8", "surrogatepass"))


def check_database(connection: sqlite3.Connection) -> None:
    """Make the indexes of a database again if they are damaged.

    Raises:
        StoreError: the tables are damaged.
    """
    if database_problems(connection):
        connection.execute("REINDEX")
    if lines := database_problems(connection):
        raise StoreError(f"the store cannot be repaired: create it again from the documents: {lines[0]}")


def remove_damaged(connection: sqlite3.Connection, text_index: TextIndex | None) -> list[str]:
    """Delete damaged records, and make what is derived from the others again where it differs; returns their ids."""
    damaged = damaged_records(connection)
    if damaged or values_differ(connection):
        connection.executemany("DELETE FROM record WHERE number = ?", [(number,) for number, _ in damaged])
        connection.execute("DELETE FROM value")
        insert_values(connection, connection.execute("SELECT number, metadata FROM record").fetchall())
    if text_index is not None and (damaged or text_index.verify(connection)):
        index_texts_again(connection, text_index)
    return [id for _, id in damaged]


def index_texts_again(connection: sqlite3.Connection, text_index: TextIndex) -> None:
    """Clear a text index and add every text, with a bar after two seconds on a terminal."""
    text_index.clear(connection)
    numbers = _numbers(connection)
    with tqdm(total=len(numbers), desc="indexing words", delay=2, disable=None, leave=False) as bar:
        for batch in _batches(numbers):
            rows = connection.execute(
                f"SELECT number, text, metadata FROM record WHERE {_LISTED}", [json.dumps(batch.tolist())]
            )
            text_index.add(connection, [(number, text, file_name(json.loads(one))) for number, text, one in rows])
            bar.update(len(batch))


def kept_vectors(
    connection: sqlite3.Connection, generation: Generation, num_positions: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers and vectors of the records, without removed ones."""
    live = LiveRows.read(connection, num_positions)
    numbers, vectors = generation.numbers.rows(num_positions)[:, 0], generation.vectors.rows(num_positions)
    if not live.agree(numbers):
        raise StoreError(f"{generation.folder} is damaged: {HOW_TO_REPAIR}")
    for positions in _batches(live.positions):
        yield numbers[positions], vectors[positions]


def new_vectors(
    connection: sqlite3.Connection, identity: Identity, embed: Embed, batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers of the records and vectors of their texts, embedded from scratch."""
    for batch in _batches(_numbers(connection), batch_size):
        yield batch, embedded(_values(connection, "text", batch), identity, embed)


def repaired_vectors(
    connection: sqlite3.Connection,
    generation: Generation,
    live: LiveRows,
    num_positions: int,
    identity: Identity,
    embed: Embed,
    changed: list[str],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers and vectors of the records: undamaged ones are kept, the others embedded from scratch.

    Args:
        live: the rows before damaged records were removed.
        changed: receives the ids of embedded records.
    """
    is_good = np.ones(num_positions, bool)
    for block in generation.damaged_blocks(connection, generation.vectors, num_positions):
        is_good[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS] = False
    if len(live.numbers) != len(live.positions):  # vectors cannot be assigned to records
        is_good[:] = False
    rows = np.searchsorted(live.numbers, _numbers(connection))
    readable = generation.vectors.rows(num_positions) if is_good.any() else None
    for batch in _batches(rows):
        numbers = live.numbers[batch]
        vectors = np.empty((len(batch), identity.dimensions), np.float32)
        good = np.zeros(len(batch), bool)
        if readable is not None:
            good = is_good[live.positions[batch]]
            vectors[good] = readable[live.positions[batch][good]]
        if not good.all():
            vectors[~good] = embedded(_values(connection, "text", numbers[~good]), identity, embed)
            changed += _values(connection, "id", numbers[~good])
        yield numbers, vectors


def _numbers(connection: sqlite3.Connection) -> np.ndarray:
    """(num_records,) int64: the numbers of all records, ascending."""
    rows = connection.execute("SELECT number FROM record ORDER BY number").fetchall()
    return np.array([number for (number,) in rows], np.int64)


def _values(connection: sqlite3.Connection, column: str, numbers: np.ndarray) -> list[str]:
    """A column of the records with these numbers."""
    rows = connection.execute(f"SELECT {column} FROM record WHERE {_LISTED}", [json.dumps(numbers.tolist())])
    return [value for (value,) in rows]


def _batches(rows: np.ndarray, size: int = ROWS_AT_ONCE) -> Iterator[np.ndarray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
