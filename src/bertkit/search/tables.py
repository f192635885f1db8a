"""The tables of an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.errors import UsageError
from bertkit.locate import was_moved
from bertkit.search.lexical import LexicalIndex
from bertkit.search.source_table import create_source_table
from bertkit.search.sparse import SparseIndex
from bertkit.search.store.snapshot import Snapshot

if TYPE_CHECKING:
    from bertkit.search.store.vector_store import VectorStore


class Tables(LexicalIndex):
    """The tables of an index in addition to its records: words, learned sparse vectors if any, and source files.

    Args:
        folder: folder of the store.
        sparse: learned sparse vectors of a new index; None: those of the store.
        device: of their model.
        language: see `LexicalIndex`.
    """

    def __init__(
        self, folder: str | Path, sparse: SparseIndex | None = None, device: str = "auto", language: str | None = None
    ) -> None:
        super().__init__(folder, language)
        self._sparse, self._device, self._is_known = sparse, device, sparse is not None

    def sparse(self, connection: sqlite3.Connection) -> SparseIndex | None:
        """The learned sparse vectors of the store; None if it lacks them."""
        if not self._is_known:
            self._sparse, self._is_known = SparseIndex.of_store(self._folder, connection, self._device), True
        return self._sparse

    def check_sparse(self, connection: sqlite3.Connection, given: SparseIndex) -> None:
        """Check that the sparse model of the store is a given one, which is used from where it is now.

        Raises:
            UsageError: it is another one, or there is none.
        """
        known = self.sparse(connection)
        if known is None or known.model_hash != given.model_hash:
            has = "no sparse model" if known is None else f"the sparse model {known.model_name}"
            raise UsageError(f"{self._folder} has {has}, not {given.model_name}: omit it, or index into a new folder")
        known.model_name = given.model_name

    def rename_moved_model(self, store: VectorStore, snapshot: Snapshot) -> None:
        """Store another name of the sparse model if its folder is no longer there."""
        sparse, stored = self.sparse(snapshot.connection), SparseIndex.of_store(self._folder, snapshot.connection)
        if sparse and stored and stored.model_name != sparse.model_name and was_moved(stored.model_name):
            with store.transaction() as connection:
                connection.execute("UPDATE sparse_model SET name = ?", (sparse.model_name,))

    def create(self, connection: sqlite3.Connection) -> None:
        super().create(connection)
        if sparse := self.sparse(connection):
            sparse.create(connection)
        create_source_table(connection)

    def add(self, connection: sqlite3.Connection, rows: Sequence[tuple[int, str, str]]) -> None:
        super().add(connection, rows)
        if sparse := self.sparse(connection):
            sparse.add(connection, rows)

    def remove(self, connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
        super().remove(connection, numbers)
        if sparse := self.sparse(connection):
            sparse.remove(connection, numbers)

    def verify(self, connection: sqlite3.Connection) -> list[str]:
        sparse = self.sparse(connection)
        return super().verify(connection) + (sparse.verify(connection) if sparse else [])

    def clear(self, connection: sqlite3.Connection) -> None:
        super().clear(connection)
        if sparse := self.sparse(connection):
            sparse.clear(connection)

    def write_postings(self, snapshot: Snapshot) -> None:
        super().write_postings(snapshot)
        if sparse := self.sparse(snapshot.connection):
            sparse.write_postings(snapshot)
