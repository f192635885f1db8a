"""Vector store in a folder."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self, cast

import numpy as np

from bertkit.device import is_cpu, resolve_device
from bertkit.errors import StoreError, UsageError, check_type, checked_count, checked_path
from bertkit.locate import was_moved
from bertkit.neighbors.block_sizes import BLOCK_BYTES, ScanName
from bertkit.search.filters import Filter, checked_ids
from bertkit.search.records import Embed, Hit, Identity, Record, RepairReport, SearchReport, check_records
from bertkit.search.store import maintenance
from bertkit.search.store.database import INDEX_FILE, Database, create_database, has_store
from bertkit.search.store.generation import Generation, delete_other_generations, write_generation
from bertkit.search.store.record_rows import batches_of, delete_records, insert_records
from bertkit.search.store.schema import HOW_TO_REPAIR, TABLES, TextIndex, file_name
from bertkit.search.store.shared_pass import SharedPasses
from bertkit.search.store.snapshot import Asked, Snapshot
from bertkit.search.store.state import State
from bertkit.search.store.view import Views
from bertkit.search.store.writer_lock import WriterLock


class VectorStore(AbstractContextManager["VectorStore"]):
    """Records that are searched by vector, in a folder: SQLite for records, append-only files for vectors.

    Any number of processes and threads may search; one at a time may write, from its first change until `close`. A
    method that changes the store is one commit: it is applied completely or not at all, and on disk when it returns.
    Vectors are written and synced before the SQLite commit that makes them valid.
    """

    def __init__(self, folder: Path, text_index: TextIndex | None, device: str = "cpu") -> None:
        self.folder, self._text_index = folder, text_index
        self._database, self._writer_lock = Database(folder), WriterLock(folder)
        self._change = threading.RLock()  # held while a thread changes the store
        self._state: State | None = None  # state of the transaction in progress
        self._views = Views(folder, None if is_cpu(device) else resolve_device(device))
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
        if not is_cpu(device):
            resolve_device(device)  # an unknown one is refused before any work
        folder = checked_path("the folder of a store", folder)
        check_type("the identity", identity, Identity)

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
        if not has_store(folder := checked_path("the folder of a store", folder)):
            raise StoreError(f"{folder} is not a store: {INDEX_FILE} is missing or empty; create a store first")
        store = cls(folder, text_index, device)
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

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """One state of the store, unchanged until the block ends, without a transaction in progress."""
        while True:
            with self._database.reading() as connection:
                state = State.read(connection)
                try:
                    view = self._views.at(state, connection)
                except (FileNotFoundError, ValueError):  # missing or too short; or a newer commit replaced the files
                    with self._database.reading() as other:
                        if State.read(other).commit_number == state.commit_number:
                            raise StoreError(f"{self.folder} lacks vectors: {HOW_TO_REPAIR}") from None
                    continue
                yield Snapshot(connection, view, self._passes)
                return

    def get(self, ids: Sequence[str]) -> list[Record]:
        """Records by id, in the order of the ids; unknown ids are skipped.

        Raises:
            UsageError: a str in place of several ids, or an id that no record can have.
        """
        with self.snapshot() as snapshot:
            return snapshot.get(ids)

    def records(self, where: Filter | None = None) -> Iterator[Record]:
        """Every record, or those that a filter matches, in order of writing, of one state of the store."""
        with self.snapshot() as snapshot:
            yield from snapshot.all_records(where)

    def expected(self) -> AbstractContextManager[None]:
        """Announce a search of a snapshot that comes after the block, so that others wait to share its pass."""
        return self._passes.expected()

    def search(
        self,
        query: np.ndarray,
        identity: Identity,
        k: int = 10,
        where: Filter | None = None,
        report: SearchReport | None = None,
    ) -> list[Hit]:
        """The ``k`` records most similar to a query; or all if there are fewer. For equal scores, the record written
        first comes first.

        Args:
            query: (dimensions,) float.
            identity: identity of the query's embedding.
            where: compare only records that match.
            report: counts are added to it.

        Raises:
            UsageError: a query of another identity or shape, not finite or, for the cosine, zero; or ``k`` below 1.
        """
        return self.search_many(np.asarray(query)[None], identity, k, where, report)[0]

    def search_many(
        self,
        queries: np.ndarray,
        identity: Identity,
        k: int = 10,
        where: Filter | None = None,
        report: SearchReport | None = None,
    ) -> list[list[Hit]]:
        """As `search`, for (num_queries, dimensions) queries: one list for each."""

        def run(every: list[Asked]) -> list[list[list[Hit]] | Exception]:
            with self.snapshot() as snapshot:
                return snapshot.hits(every, where)

        if where is not None:
            with self.snapshot() as snapshot:
                snapshot.mask(where)  # in this thread: others need not wait for it
        return self._passes.share(repr(where), Asked(queries, identity, k, report), run)

    def count(self, where: Filter | None = None) -> int:
        """Number of records, or of those that a filter matches."""
        with self.snapshot() as snapshot:
            return snapshot.count(where)

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
        """Add records.

        Raises:
            UsageError: an id that exists in the store or is given twice, or a record that cannot be stored.
        """
        with self.transaction() as connection:
            for batch in batches_of(check_records(records, self._now().identity)):
                self._append(connection, batch)

    def upsert(self, records: Iterable[Record]) -> None:
        """Add records, replacing those with the same ids.

        Raises:
            UsageError: an id given twice, or a record that cannot be stored.
        """
        with self.transaction() as connection:
            for batch in batches_of(check_records(records, self._now().identity)):
                self._remove(connection, [record.id for record in batch])
                self._append(connection, batch)

    def delete(self, ids: Iterable[str]) -> int:
        """Remove records; unknown ids are ignored. Returns the number of removed records.

        Raises:
            UsageError: as `get`.
        """
        ids = checked_ids("ids", ids)
        with self.transaction() as connection:
            return sum(self._remove(connection, batch) for batch in batches_of(ids))

    def switch(self, identity: Identity, embed: Embed, batch_size: int = 1024) -> None:
        """Embed every text again with another model. Searches use the old vectors until all new ones are stored.

        Raises:
            UsageError: ``batch_size`` below 1, or ``embed`` returned a wrong number of vectors, or invalid ones.
        """
        batch_size = checked_count("batch_size", batch_size)
        with self.transaction() as connection:
            vectors = maintenance.new_vectors(connection, identity, embed, batch_size)
            self._replace_vectors(connection, identity, vectors)

    def rename_moved_model(self, name: str) -> None:
        """Store another name of the same model if its folder is no longer there."""
        if was_moved(self.identity.model_name):
            with self.transaction():
                self._state = replace(self._now(), identity=replace(self._now().identity, model_name=name))

    def compact(self) -> None:
        """Free the space of removed records: live vectors are copied into a new file, and the database is packed."""
        with self._change:  # another thread could begin a transaction before the database is packed
            with self.transaction() as connection:
                state, generation = self._now(), self._generation()
                vectors = maintenance.kept_vectors(connection, generation, state.num_positions)
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
            maintenance.index_texts_again(connection, text_index)
        return True

    def verify(self) -> list[str]:
        """Check all stored data. Returns the problems, one sentence each; empty if there are none."""
        with self._database.reading() as connection:
            try:
                state = State.read(connection)
            except StoreError as error:
                return [str(error)]
            generation = Generation.of(self.folder, state.generation, state.identity, state.scan)
            return maintenance.problems(connection, generation, state.num_positions, self._text_index)

    def repair(self, embed: Embed) -> RepairReport:
        """Fix what `verify` finds: blocks with damaged vectors are embedded again from their texts.

        Raises:
            StoreError: the damage cannot be repaired.
        """
        report = RepairReport()
        with self.transaction() as connection:
            maintenance.check_database(connection)
            state, generation = self._now(), self._generation()
            live = maintenance.LiveRows.read(connection, state.num_positions)
            report.removed += maintenance.remove_damaged(connection, self._text_index)
            vectors = maintenance.repaired_vectors(
                connection, generation, live, state.num_positions, state.identity, embed, report.embedded_again
            )
            self._replace_vectors(connection, state.identity, vectors)
        return report

    def close(self) -> None:
        """Release files and connections."""
        self._database.close()
        self._writer_lock.release()
        self._views.close()
        self._is_writer = False

    def __exit__(self, *exception: object) -> None:
        self.close()

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
        numbers = delete_records(connection, ids)
        if not numbers:
            return 0
        if self._text_index is not None:
            self._text_index.remove(connection, numbers)
        positions = np.searchsorted(self._generation().numbers.rows(self._now().num_positions)[:, 0], numbers)
        connection.executemany("INSERT INTO removed (position) VALUES (?)", [(int(one),) for one in positions])
        return len(numbers)
