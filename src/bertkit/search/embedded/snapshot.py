"""A consistent snapshot of a store, readable during writes."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bertkit.errors import StoreError
from bertkit.neighbors import SCANS
from bertkit.search.embedded.schema import as_sql
from bertkit.search.embedded.shared_pass import SharedPasses
from bertkit.search.embedded.view import View
from bertkit.search.filters import Filter
from bertkit.search.store import Identity, Record, SearchReport, checked_queries

RECORDS_AT_ONCE = 1000
COLUMNS = "number, id, document_id, start, end, text, metadata"


class Snapshot:
    """The records of one commit. All reads through a snapshot are consistent."""

    def __init__(self, connection: sqlite3.Connection, view: View, passes: SharedPasses) -> None:
        self.connection, self._view, self._passes = connection, view, passes

    @property
    def identity(self) -> Identity:
        """Identity of the embedding."""
        return self._view.state.identity

    @property
    def commit_number(self) -> int:
        """Number of the commit: snapshots with the same number are equal."""
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
        results = self._passes.search(view, mask, queries, k)
        if report is not None:
            report.num_queries += len(queries)
            report.num_searched += len(queries) * mask.num_rows
            report.num_scored_again += sum(result.num_scored_again for result in results)
            report.is_exact &= SCANS[view.state.scan].is_exact
        return [(view.numbers[result.positions], result.scores) for result in results]

    def get(self, ids: Sequence[str]) -> list[Record]:
        """Records by id, in the order of the ids; unknown ids are skipped."""
        values = json.dumps(list(ids))
        rows = self.connection.execute(
            f"SELECT {COLUMNS} FROM record WHERE id IN (SELECT value FROM json_each(?))", [values]
        )
        by_id = {record.id: record for record in self._records(rows.fetchall())}
        return [by_id[id] for id in ids if id in by_id]

    def records(self, numbers: Sequence[int] | np.ndarray) -> list[Record]:
        """Records by number, in the order of the numbers; unknown numbers are skipped."""
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
