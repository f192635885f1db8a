"""Embedded vector store in a folder."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Self, TypeVar, cast

import numpy as np

from bertkit import neighbors
from bertkit.device import resolve_device
from bertkit.errors import StoreError, UsageError, checked_count
from bertkit.neighbors.block_sizes import BLOCK_BYTES, ScanName
from bertkit.search.embedded.database import NAME, Database, create_database, has_store
from bertkit.search.embedded.generation import Generation, delete_other_generations, write_generation
from bertkit.search.embedded.maintenance import (
    LiveRows,
    damaged_records,
    database_problems,
    index_texts_again,
    kept_vectors,
    new_vectors,
    problems,
    remove_records,
    repaired_vectors,
    values_differ,
)
from bertkit.search.embedded.record_rows import insert_records, value_rows
from bertkit.search.embedded.schema import HOW_TO_REPAIR, TABLES, TextIndex, file_name
from bertkit.search.embedded.shared_pass import SharedPasses
from bertkit.search.embedded.snapshot import Asked, Snapshot
from bertkit.search.embedded.view import State, View
from bertkit.search.embedded.writer_lock import WriterLock
from bertkit.search.filters import Filter, checked_ids
from bertkit.search.store import Embed, Hit, Identity, Record, RepairReport, SearchReport, VectorStore, check_records

RECORDS_AT_ONCE = 1024

Item = TypeVar("Item")


class EmbeddedStore(VectorStore):
    """A `VectorStore` in a folder: SQLite for records, append-only files for vectors.

    Any number of processes and threads may search; one at a time may write, from its first change until `close`. A
    change is on disk when its method returns: vectors are written and synced before the SQLite commit that makes them
    valid.
    """

    def __init__(self, folder: Path, text_index: TextIndex | None, device: str = "cpu") -> None:
        self.folder, self._text_index = folder, text_index
        self._device = None if device == "cpu" else resolve_device(device)
        self._database, self._writer_lock = Database(folder), WriterLock(folder)
        self._change = threading.RLock()  # held while a thread changes the store
        self._state: State | None = None  # state of the transaction in progress
        self._view: View | None = None
        self._passes = SharedPasses()
        self._is_writer = False

    @classmethod
    def create(
        cls,
        folder: str | Path,
        identity: Identity,
        text_index: TextIndex | None = None,
        scan: str = "int8",
        device: str = "cpu",
    ) -> Self:
        """Create a store in a new or empty folder.

        Args:
            scan: how a search reads the vectors. "int8" and "float32" find exactly the nearest; "int8" takes a quarter
                more disk, and a third of the time. "1-bit" compares signs, and in float32 only the best of these: it is
                the fastest, and approximate.
            device: "cpu", "cuda", "mps" or "auto". After the first 32 queries a GPU keeps a copy of the vectors and
                scans them, for any ``scan``; if they do not fit, the CPU does.

        Raises:
            UsageError: the folder is not empty, or there is no such scan or device.
            StoreError: the folder is not writable, or another process writes a store in it.
        """
        if scan not in BLOCK_BYTES:
            raise UsageError(f"scan={scan!r}: expected one of {', '.join(map(repr, BLOCK_BYTES))}")
        resolve_device(device)  # an unknown one is refused before any work
        folder = Path(folder)

        def fill(connection: sqlite3.Connection) -> None:
            for table in TABLES:
                connection.execute(table)
            State(0, 1, 0, cast(ScanName, scan), identity).write(connection)
            if text_index is not None:
                text_index.create(connection)

        create_database(folder, fill)
        return cls(folder, text_index, device)

    @classmethod
    def open(cls, folder: str | Path, text_index: TextIndex | None = None, device: str = "cpu") -> Self:
        """Open the store in a folder, to search it or to change it.

        Args:
            device: as in `create`.

        Raises:
            StoreError: there is none, or it has a later format.
        """
        if not has_store(Path(folder)):
            raise StoreError(f"{folder} is not a store: {NAME} is missing or empty; create a store first")
        store = cls(Path(folder), text_index, device)
        try:
            _ = store.identity
        except BaseException:
            store.close()
            raise
        return store

    @property
    def identity(self) -> Identity:
        """Identity of the embedding."""
        with self._database.reading() as connection:
            return State.read(connection).identity

    @property
    def scan(self) -> ScanName:
        """How a search reads the vectors, as given to `create`."""
        with self._database.reading() as connection:
            return State.read(connection).scan

    # ---- read

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """One state of the store, unchanged until the block ends, without a transaction in progress."""
        while True:
            with self._database.reading() as connection:
                state = State.read(connection)
                view = self._view
                if view is None or view.state.commit_number != state.commit_number:
                    try:
                        view = self._view = View(self.folder, state, connection, self._device_scan(state, view))
                    except (FileNotFoundError, ValueError):
                        # missing or too short; or a newer commit replaced the files
                        if self._is_current(state):
                            raise StoreError(f"{self.folder} lacks vectors: {HOW_TO_REPAIR}") from None
                        continue
                yield Snapshot(connection, view, self._passes)
                return

    def _device_scan(self, state: State, last: View | None) -> neighbors.DeviceScan | None:
        """A scan on the GPU: that of the last view, if its vectors are the first ones of this state."""
        if self._device is None or self._device.type == "cpu":
            return None
        if last is not None and last.state.generation == state.generation:
            return last.device_scan
        return neighbors.DeviceScan(self._device)

    def _is_current(self, state: State) -> bool:
        with self._database.reading() as connection:
            return State.read(connection).commit_number == state.commit_number

    def get(self, ids: Sequence[str]) -> list[Record]:
        """See `VectorStore.get`."""
        with self.snapshot() as snapshot:
            return snapshot.get(ids)

    def records(self, where: Filter | None = None) -> Iterator[Record]:
        """See `VectorStore.records`; reads one state of the store."""
        with self.snapshot() as snapshot:
            yield from snapshot.all_records(where)

    def expected(self) -> AbstractContextManager[None]:
        """Announce a search of a snapshot that comes after the block, so that others wait to share its pass."""
        return self._passes.expected()

    def search_many(
        self,
        queries: np.ndarray,
        identity: Identity,
        k: int = 10,
        where: Filter | None = None,
        report: SearchReport | None = None,
    ) -> list[list[Hit]]:
        """See `VectorStore.search_many`. For equal scores, the record written first comes first."""

        def run(every: list[Asked]) -> list[list[list[Hit]] | Exception]:
            with self.snapshot() as snapshot:
                return snapshot.hits(every, where)

        if where is not None:
            with self.snapshot() as snapshot:
                snapshot.mask(where)  # in this thread: others need not wait for it
        return self._passes.share(repr(where), Asked(queries, identity, k, report), run)

    def count(self, where: Filter | None = None) -> int:
        """See `VectorStore.count`."""
        with self.snapshot() as snapshot:
            return snapshot.count(where)

    # ---- change

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Several changes as one commit. Blocks may be nested; the outermost commits, an exception rolls back.

        Raises:
            StoreError: another process writes to the store, or the disk is full.
        """
        with self._change:
            before = self._state
            if before is not None:
                connection = self._database.writer()
                connection.execute("SAVEPOINT change")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK TO change")
                    self._state = before
                    raise
                finally:
                    connection.execute("RELEASE change")
                return
            self._become_writer()
            try:
                with self._database.committing() as connection:
                    self._state = before = State.read(connection)
                    if self._text_index is not None:
                        self._text_index.create(connection)
                    yield connection
                    if self._now().num_positions != before.num_positions:
                        self._generation().sync()
                    replace(self._now(), commit_number=before.commit_number + 1).write(connection)
                if self._now().generation != before.generation:
                    delete_other_generations(self.folder, self._now().generation)
            finally:
                self._state = None

    def add(self, records: Iterable[Record]) -> None:
        """See `VectorStore.add`."""
        with self.transaction() as connection:
            for batch in _batches(check_records(records, self._now().identity)):
                self._append(connection, batch)

    def upsert(self, records: Iterable[Record]) -> None:
        """See `VectorStore.upsert`."""
        with self.transaction() as connection:
            for batch in _batches(check_records(records, self._now().identity)):
                self._remove(connection, [record.id for record in batch])
                self._append(connection, batch)

    def delete(self, ids: Iterable[str]) -> int:
        """See `VectorStore.delete`."""
        ids = checked_ids("ids", ids)
        with self.transaction() as connection:
            return sum(self._remove(connection, batch) for batch in _batches(ids))

    def switch(self, identity: Identity, embed: Embed, batch_size: int = 1024) -> None:
        """See `VectorStore.switch`; one commit replaces all vectors."""
        batch_size = checked_count("batch_size", batch_size)
        with self.transaction() as connection:
            self._replace_vectors(connection, identity, new_vectors(connection, identity, embed, batch_size))

    def compact(self) -> None:
        """See `VectorStore.compact`: live vectors are copied into a new file, and the database is packed."""
        with self._change:  # another thread could begin a transaction before the database is packed
            with self.transaction() as connection:
                state, generation = self._now(), self._generation()
                vectors = kept_vectors(connection, generation, state.num_positions)
                self._replace_vectors(connection, state.identity, vectors)
            if self._state is None:
                self._database.pack()

    def complete_text_index(self) -> bool:
        """Index every text again if some were added without the text index; returns whether.

        Raises:
            StoreError: as `transaction`.
        """
        text_index = self._text_index
        with self._database.reading() as connection:
            if text_index is None or text_index.covers(connection):
                return False
        with self.transaction() as connection:
            index_texts_again(connection, text_index)
        return True

    def verify(self) -> list[str]:
        """See `VectorStore.verify`; reads everything."""
        with self._database.reading() as connection:
            try:
                state = State.read(connection)
            except StoreError as error:
                return [str(error)]
            generation = Generation.of(self.folder, state.generation, state.identity, state.scan)
            return problems(connection, generation, state.num_positions, self._text_index)

    def repair(self, embed: Embed) -> RepairReport:
        """See `VectorStore.repair`: whole blocks of vectors are embedded again."""
        report = RepairReport()
        with self.transaction() as connection:
            if database_problems(connection):
                connection.execute("REINDEX")
            if lines := database_problems(connection):
                raise StoreError(f"{self.folder} cannot be repaired: create it again from the documents: {lines[0]}")
            state, generation = self._now(), self._generation()
            live = LiveRows.read(connection, state.num_positions)
            damaged = damaged_records(connection)
            if damaged or values_differ(connection):
                remove_records(connection, [number for number, _ in damaged])
                report.removed += [id for _, id in damaged]
            if self._text_index is not None and (damaged or self._text_index.verify(connection)):
                index_texts_again(connection, self._text_index)
            vectors = repaired_vectors(
                connection, generation, live, state.num_positions, state.identity, embed, report.embedded_again
            )
            self._replace_vectors(connection, state.identity, vectors)
        return report

    def close(self) -> None:
        """See `VectorStore.close`."""
        self._database.close()
        self._writer_lock.release()
        self._view, self._is_writer = None, False

    def _now(self) -> State:
        assert self._state is not None
        return self._state

    def _generation(self) -> Generation:
        state = self._now()
        return Generation.of(self.folder, state.generation, state.identity, state.scan)

    def _become_writer(self) -> None:
        if self._is_writer:
            return
        try:
            self._writer_lock.acquire()
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be written: {error.strerror}; it can be searched") from None
        self._is_writer = True
        with self._database.reading() as connection:
            delete_other_generations(self.folder, State.read(connection).generation)
        for unfinished in self.folder.glob(".*.partial"):  # arrays of words that a killed process was writing
            shutil.rmtree(unfinished, ignore_errors=True)

    def _replace_vectors(
        self, connection: sqlite3.Connection, identity: Identity, batches: Iterable[tuple[np.ndarray, np.ndarray]]
    ) -> None:
        """Write a new generation, which becomes valid with the commit."""
        state = self._now()
        generation = Generation.of(self.folder, state.generation + 1, identity, state.scan)
        num_positions = write_generation(connection, generation, batches)
        self._state = replace(state, generation=generation.number, num_positions=num_positions, identity=identity)

    def _append(self, connection: sqlite3.Connection, records: Sequence[Record]) -> None:
        numbers = insert_records(connection, records)
        if self._text_index is not None:
            rows = [(n, one.text, file_name(one.metadata)) for n, one in zip(numbers, records, strict=True)]
            self._text_index.add(connection, rows)
        state = self._now()
        first = state.num_positions
        vectors = np.stack([record.vector for record in records])
        self._generation().append(connection, first, np.array(numbers, np.int64), vectors)
        self._state = replace(state, num_positions=first + len(records))

    def _remove(self, connection: sqlite3.Connection, ids: Sequence[str]) -> int:
        rows = connection.execute(
            "SELECT number, metadata FROM record WHERE id IN (SELECT value FROM json_each(?))",
            [json.dumps(ids)],
        ).fetchall()
        if not rows:
            return 0
        numbers = [number for number, _ in rows]
        if self._text_index is not None:
            self._text_index.remove(connection, numbers)
        connection.executemany(
            "DELETE FROM value WHERE key = ? AND kind = ? AND value = ? AND number = ?",
            [row for number, metadata in rows for row in value_rows(number, metadata)],
        )
        connection.executemany("DELETE FROM record WHERE number = ?", [(number,) for number in numbers])
        positions = np.searchsorted(self._generation().numbers.rows(self._now().num_positions)[:, 0], numbers)
        connection.executemany("INSERT INTO removed (position) VALUES (?)", [(int(one),) for one in positions])
        return len(rows)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    items = iter(items)
    while batch := list(islice(items, RECORDS_AT_ONCE)):
        yield batch
