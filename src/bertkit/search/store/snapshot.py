"""A consistent snapshot of a store, readable during writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bertkit.errors import StoreError, UsageError
from bertkit.search.filters import Filter, InRecords, checked_ids
from bertkit.search.records import Hit, Identity, Record, SearchReport, checked_queries, in_order, ranked
from bertkit.search.store.schema import COLUMNS, HOW_TO_REPAIR, START_OF_TEXT, as_sql
from bertkit.search.store.shared_pass import SharedPasses
from bertkit.search.store.view import View

if TYPE_CHECKING:
    from bertkit.neighbors import Nearest
    from bertkit.neighbors.row_mask import RowMask

RECORDS_AT_ONCE = 1000
MOST_COPIES = 100
"""Maximum number of documents of equal texts that are listed."""

Row = tuple[Any, ...]
"""The columns of a record."""


class Asked(NamedTuple):
    """A request of `VectorStore.search_many`, without the filter."""

    queries: np.ndarray
    identity: Identity
    k: int
    report: SearchReport | None


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
        """(n,) int64, ascending: the numbers of all records, or of those that a filter matches.

        Raises:
            UsageError: not a filter, or one of more conditions than SQLite takes.
        """
        if where is None:
            return self._view.numbers[self._view.is_live]
        if isinstance(where, InRecords):
            return where.numbers
        condition, values = as_sql(where)
        most = self.connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        if len(values) > most:
            raise UsageError(
                f"the filter has {len(values):,} keys and values, expected at most {most:,}: join those on one key "
                "to a OneOf, as in Not(OneOf(key, values)), and documents to an InDocument"
            )
        try:
            rows = self.connection.execute(f"SELECT number FROM record WHERE {condition} ORDER BY number", values)
        except sqlite3.OperationalError as error:
            if "overflow" in str(error) or "too large" in str(error):
                raise UsageError(f"the filter is too large for SQLite ({error}): nest fewer And, Or and Not") from None
            raise
        return np.fromiter((number for (number,) in rows), np.int64)

    def keys(self) -> list[str]:
        """The metadata keys of all records, sorted."""
        keys, key = list[str](), ""
        while key := self.connection.execute("SELECT min(key) FROM value WHERE key > ?", [key]).fetchone()[0]:
            keys.append(key)
        return keys

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
        (queries, k), mask = checked_queries(queries, self.identity, identity, k), self.mask(where)
        asked = Asked(queries, identity, k, report)
        results = self._passes.share((id(view), id(mask)), asked, lambda every: self._nearest(mask, every))
        return [(view.numbers[result.positions], result.scores) for result in results]

    def similarities(self, query: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """(n,) float64: the similarity of a (dimensions,) query and the vector of each record, by numbers."""
        positions = self._view.positions(numbers)
        from bertkit.neighbors import similarities

        return similarities(query, self._view.vectors, positions, self.identity.similarity)

    def hits(self, every: Sequence[Asked], where: Filter | None) -> list[list[list[Hit]] | Exception]:
        """The results of some requests as in `VectorStore.search_many`, or the error of each."""
        outcomes: list[list[list[Hit]] | Exception] = []
        valid = []
        for asked in every:
            try:
                queries, k = checked_queries(asked.queries, self.identity, asked.identity, asked.k)
                valid.append((len(outcomes), asked._replace(queries=queries, k=k)))
                outcomes.append([])
            except UsageError as error:
                outcomes.append(error)
        results = self._nearest(self.mask(where), [asked for _, asked in valid])
        numbers = [self._view.numbers[one.positions] for nearest_rows in results for one in nearest_rows]
        rows = self._rows(np.unique(np.concatenate(numbers))) if numbers else {}
        for (index, _), nearest_rows in zip(valid, results, strict=True):
            outcomes[index] = [self._hits(one, rows) for one in nearest_rows]
        return outcomes

    def _hits(self, result: Nearest, rows: dict[int, Row]) -> list[Hit]:
        numbers = self._view.numbers[result.positions].tolist()
        if lacking := [number for number in numbers if number not in rows]:
            raise StoreError(f"vector number {lacking[0]} of the store has no record: {HOW_TO_REPAIR}")
        records = self._records([rows[number] for number in numbers])
        return ranked(zip(result.scores.tolist(), records, strict=True))

    def mask(self, where: Filter | None) -> RowMask:
        """The rows that a filter matches; cached for the most recent filters."""
        return self._view.mask(where, lambda: self.numbers(where))

    def _nearest(self, mask: RowMask, every: Sequence[Asked]) -> list[list[Nearest]]:
        """The nearest rows of each request, with checked queries, from one pass over the vectors if that is exact."""
        from bertkit.neighbors import SCANS, nearest

        view, state = self._view, self._view.state
        is_exact = SCANS[state.scan].is_exact  # the same for a larger k
        results: list[list[Nearest]] = [[] for _ in every]
        for k in {max((asked.k for asked in every), default=1)} if is_exact else {asked.k for asked in every}:
            indices = [index for index, asked in enumerate(every) if is_exact or asked.k == k]
            queries = np.concatenate(
                [np.empty((0, state.identity.dimensions), np.float32), *(every[index].queries for index in indices)]
            )
            compared = view.vectors, view.blocks, k, state.identity.similarity, mask, state.scan, view.device_scan
            in_order = iter(nearest(queries, *compared))
            for index in indices:
                results[index] = [next(in_order).first(every[index].k) for _ in every[index].queries]
        for asked, its_results in zip(every, results, strict=True):
            if asked.report is not None:
                asked.report.num_queries += len(its_results)
                asked.report.num_searched += len(its_results) * mask.num_rows
                asked.report.num_scored_again += sum(one.num_scored_again for one in its_results)
                asked.report.is_exact &= is_exact
        return results

    def get(self, ids: Sequence[str]) -> list[Record]:
        """See `VectorStore.get`."""
        ids = checked_ids("ids", ids)
        return in_order(ids, self._records(self._rows_with("id", ids)))

    def records(self, numbers: Sequence[int] | np.ndarray) -> list[Record]:
        """Records by number, in the order of the numbers; unknown numbers are skipped."""
        rows = self._rows(np.asarray(numbers, np.int64))
        return self._records([rows[int(number)] for number in numbers if int(number) in rows])

    def documents_with(self, text: str, where: Filter | None = None) -> list[str]:
        """The documents, up to MOST_COPIES, with a record of exactly this text that a filter matches, in order of
        writing."""
        rows = self.connection.execute(  # without +, SQLite puts the value into the indexed expressions and scans
            f"SELECT number, document_id FROM record WHERE ({START_OF_TEXT}) = (length(?1), substr(?1, 1, 24)) "
            "AND +text = ?1 ORDER BY number",
            [text],
        ).fetchall()
        is_matched = self.mask(where).at(self._view.positions(np.array([number for number, _ in rows], np.int64)))
        matched = (document_id for (_, document_id), one in zip(rows, is_matched, strict=True) if one)
        return [*islice(dict.fromkeys(matched), MOST_COPIES)]

    def _rows(self, numbers: np.ndarray) -> dict[int, Row]:
        return {row[0]: row for row in self._rows_with("number", numbers.tolist())}

    def _rows_with(self, column: str, values: Sequence[Any]) -> list[Row]:
        query = f"SELECT number, {COLUMNS} FROM record WHERE {column} IN (SELECT value FROM json_each(?))"
        return self.connection.execute(query, [json.dumps(values)]).fetchall()

    def all_records(self, where: Filter | None = None) -> Iterator[Record]:
        """Every record, or those that a filter matches, in the order of their numbers."""
        numbers = self.numbers(where)
        for start in range(0, len(numbers), RECORDS_AT_ONCE):
            yield from self.records(numbers[start : start + RECORDS_AT_ONCE])

    def _records(self, rows: Sequence[Row]) -> list[Record]:
        positions = self._view.positions(np.array([row[0] for row in rows], np.int64))
        records = []
        for position, (number, id, document_id, start, end, *lines, text, metadata) in zip(
            positions, rows, strict=True
        ):
            if position == len(self._view.numbers) or self._view.numbers[position] != number:
                raise StoreError(f"record {id!r} of the store has no vector: {HOW_TO_REPAIR}")
            vector = np.array(self._view.vectors[position])
            of_record = {} if metadata == "{}" else json.loads(metadata)
            records.append(Record(id, text, vector, document_id, start, end, of_record, (lines[0], lines[1])))
        return records
