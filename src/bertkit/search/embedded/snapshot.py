"""One consistent state of a store, read beside any writer."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import StoreError
from bertkit.neighbors import RowMask, nearest
from bertkit.search.embedded.generation import Generation
from bertkit.search.embedded.schema import as_sql
from bertkit.search.filters import Filter
from bertkit.search.store import Identity, Record, SearchReport, checked_queries

RECORDS_AT_ONCE = 1000
MASKS_KEPT = 16
COLUMNS = "number, id, document_id, start, end, text, metadata"


@dataclass(frozen=True)
class State:
    """The row of ``state``."""

    commit_number: int
    generation: int  # of the files that hold the vectors
    num_positions: int  # rows of those files, removed ones included
    scan: str
    identity: Identity

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> "State":
        """The state that a connection sees.

        Raises:
            StoreError: it is damaged.
        """
        rows = connection.execute("SELECT commit_number, generation, num_positions, scan, identity FROM state")
        try:
            ((commit_number, generation, num_positions, scan, identity),) = rows.fetchall()
            return cls(commit_number, generation, num_positions, scan, Identity(**json.loads(identity)))
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise StoreError(f"the database is damaged: {error}") from None

    def write(self, connection: sqlite3.Connection) -> None:
        values = (self.commit_number, self.generation, self.num_positions, self.scan, json.dumps(asdict(self.identity)))
        connection.execute(
            "REPLACE INTO state (one, commit_number, generation, num_positions, scan, identity) "
            "VALUES (1, ?, ?, ?, ?, ?)",
            values,
        )


class View:
    """The vectors of one commit, mapped into memory. Threads may share it."""

    def __init__(self, folder: Path, state: State, connection: sqlite3.Connection) -> None:
        """Raises FileNotFoundError or ValueError if the files are not those of the commit."""
        generation = Generation.of(folder, state.generation, state.identity)
        self.state = state
        self.vectors = generation.vectors.rows(state.num_positions)  # (num_positions, dimensions) float32
        self.numbers = generation.numbers.rows(state.num_positions)[:, 0]  # (num_positions,) int64, ascending
        self.blocks = generation.encoded(state.num_positions)
        self.is_live = np.ones(state.num_positions, bool)
        self.is_live[[position for (position,) in connection.execute("SELECT position FROM removed")]] = False
        self._masks: dict[str, RowMask] = {}  # by the text of the filter: as values True and 1 would be equal

    def positions(self, numbers: np.ndarray) -> np.ndarray:
        """Positions of live records by number."""
        return np.searchsorted(self.numbers, numbers)

    def mask(self, where: Filter | None, numbers: Callable[[], np.ndarray]) -> RowMask:
        """The rows that a filter matches; kept for the filters that were used last.

        Args:
            numbers: returns the numbers of the records that it matches.
        """
        mask = self._masks.get(repr(where))
        if mask is None:
            if where is None:
                is_counted = self.is_live
            else:
                is_counted = np.zeros(len(self.numbers), bool)
                is_counted[self.positions(numbers())] = True
            mask = RowMask.of(len(self.numbers), is_counted)
            if len(self._masks) >= MASKS_KEPT:
                self._masks.clear()
            self._masks[repr(where)] = mask
        return mask


class Snapshot:
    """The records of one commit. Everything that is read through one snapshot belongs together."""

    def __init__(self, connection: sqlite3.Connection, view: View) -> None:
        self.connection, self._view = connection, view

    @property
    def identity(self) -> Identity:
        """How the vectors were made."""
        return self._view.state.identity

    @property
    def commit_number(self) -> int:
        """Number of the commit: two snapshots of one number hold the same."""
        return self._view.state.commit_number

    def numbers(self, where: Filter | None = None) -> np.ndarray:
        """(n,) int64, ascending: the numbers of all records, or of those that a filter matches."""
        if where is None:
            return self._view.numbers[self._view.is_live]
        condition, values = as_sql(where)
        rows = self.connection.execute(f"SELECT number FROM record WHERE {condition} ORDER BY number", values)
        return np.fromiter((number for (number,) in rows), np.int64)

    def count(self, where: Filter | None = None) -> int:
        """Number of records, or of those that a filter matches."""
        return int(self._view.is_live.sum()) if where is None else len(self.numbers(where))

    def search(
        self,
        queries: np.ndarray,
        identity: Identity,
        k: int = 10,
        where: Filter | None = None,
        report: SearchReport | None = None,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """As `VectorStore.search_many`, without the records: (n,) int64 numbers and (n,) float64 scores, best first."""
        view = self._view
        queries = checked_queries(queries, view.state.identity, identity, k)
        mask = view.mask(where, lambda: self.numbers(where))
        results = nearest(queries, view.vectors, view.blocks, k, identity.similarity, mask)
        if report is not None:
            report.num_queries += len(queries)
            report.num_searched += len(queries) * mask.num_rows
            report.num_scored_again += sum(result.num_scored_again for result in results)
        return [(view.numbers[result.positions], result.scores) for result in results]

    def get(self, ids: Sequence[str]) -> list[Record]:
        """Records by id, in the order of the ids; ids that the store lacks are left out."""
        values = json.dumps(list(ids))
        rows = self.connection.execute(
            f"SELECT {COLUMNS} FROM record WHERE id IN (SELECT value FROM json_each(?))", [values]
        )
        by_id = {record.id: record for record in self._records(rows.fetchall())}
        return [by_id[id] for id in ids if id in by_id]

    def records(self, numbers: Sequence[int] | np.ndarray) -> list[Record]:
        """Records by number, in the order of the numbers; numbers that the store lacks are left out."""
        values = json.dumps([int(number) for number in numbers])
        rows = self.connection.execute(
            f"SELECT {COLUMNS} FROM record WHERE number IN (SELECT value FROM json_each(?))", [values]
        ).fetchall()
        by_number = {row[0]: record for row, record in zip(rows, self._records(rows), strict=True)}
        return [by_number[int(number)] for number in numbers if int(number) in by_number]

    def all_records(self, where: Filter | None = None) -> Iterator[Record]:
        """Every record, or those that a filter matches, in the order of their numbers."""
        numbers = self.numbers(where)
        for start in range(0, len(numbers), RECORDS_AT_ONCE):
            yield from self.records(numbers[start : start + RECORDS_AT_ONCE])

    def _records(self, rows: Sequence[tuple[Any, ...]]) -> list[Record]:
        positions = self._view.positions(np.array([row[0] for row in rows], np.int64))
        records = []
        for position, (number, id, document_id, start, end, text, metadata) in zip(positions, rows, strict=True):
            if position == len(self._view.numbers) or self._view.numbers[position] != number:
                raise StoreError(f"record {id!r} has no vector: verify and repair the store")
            vector = np.array(self._view.vectors[position])
            records.append(Record(id, text, vector, document_id, start, end, json.loads(metadata)))
        return records
