"""Impact index of a store: postings of weighted terms of its texts, in the same commits as the records.

The terms of each text are a row in SQLite. Postings are derived from them: most are read from arrays in a folder, which
`write_postings` creates; those of later texts are built in memory when a new commit is first searched. Removed texts
stay in the arrays but are skipped, and are not counted in statistics.

Each folder of arrays has the number of the commit that it was written from: a snapshot reads neither arrays of a later
commit, which lack texts that were removed meanwhile, nor those from before all terms were cleared, by the commit
``terms_cleared`` in the table ``state``.
"""

import re
import shutil
import sqlite3
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertkit.errors import StoreError
from bertkit.search.filters import Filter
from bertkit.search.postings import Postings, idf, largest, norms
from bertkit.search.store.schema import TextIndex
from bertkit.search.store.snapshot import Snapshot

_MOST_LATER = 20_000
"""Maximum number of texts with postings in memory before arrays are written again."""
LARGEST_COUNT = 2**16 - 1


class Terms(NamedTuple):
    """The terms of a text."""

    length: int  # number of words
    ids: np.ndarray  # (n,) uint32, each once
    counts: np.ndarray  # (n,) uint16, or weights in fixed point


class ImpactIndex(TextIndex, ABC):
    """Terms and scores of the texts of a store.

    Args:
        folder: folder of the store.
        table: table of the terms.
        arrays: beginning of the names of the folders of arrays.
    """

    def __init__(self, folder: str | Path, table: str, arrays: str) -> None:
        self._folder, self._table, self._arrays = Path(folder), table, arrays
        self._view: View | None = None

    @abstractmethod
    def terms(self, connection: sqlite3.Connection, texts: list[str], names: list[str]) -> Iterable[Terms]:
        """The terms of each text, and of the name of its file, "" if it has none."""

    @abstractmethod
    def add_scores(self, snapshot: Snapshot, view: "View", query: str, scores: np.ndarray) -> None:
        """Add the scores of a query to (num_rows,) float32."""

    def create(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} (number INTEGER PRIMARY KEY, length INTEGER NOT NULL, "
            "ids BLOB NOT NULL, counts BLOB NOT NULL, checksum INTEGER NOT NULL)"
        )

    def covers(self, connection: sqlite3.Connection) -> bool:
        """See `TextIndex.covers`: compares the first and the last number, as counting would read every row."""
        tables = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [self._table])
        if tables.fetchone() is None:
            return False
        ends = "(SELECT min(number) FROM {0}), (SELECT max(number) FROM {0})".format
        first, last, *expected = connection.execute(f"SELECT {ends(self._table)}, {ends('record')}").fetchone()
        return [first, last] == expected

    def add(self, connection: sqlite3.Connection, rows: Sequence[tuple[int, str, str]]) -> None:
        filled = []
        every = self.terms(connection, [text for _, text, _ in rows], [name for _, _, name in rows])
        for (number, _, _), terms in zip(rows, every, strict=True):
            row = (number, terms.length, terms.ids.tobytes(), terms.counts.tobytes())
            filled.append((*row, _checksum(*row)))
        connection.executemany(
            f"INSERT INTO {self._table} (number, length, ids, counts, checksum) VALUES (?, ?, ?, ?, ?)", filled
        )

    def remove(self, connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
        connection.executemany(f"DELETE FROM {self._table} WHERE number = ?", [(number,) for number in numbers])

    def verify(self, connection: sqlite3.Connection) -> list[str]:
        bags = connection.execute(f"SELECT number, length, ids, counts, checksum FROM {self._table}")
        problems = [
            f"the words of record number {row[0]} are damaged" for *row, checksum in bags if _checksum(*row) != checksum
        ]
        (num_lacking,) = connection.execute(
            f"SELECT (SELECT count(*) FROM record WHERE number NOT IN (SELECT number FROM {self._table})) "
            f"+ (SELECT count(*) FROM {self._table} WHERE number NOT IN (SELECT number FROM record))"
        ).fetchone()
        if num_lacking:
            problems.append(f"{num_lacking} records do not match the words of the {self._arrays} index")
        problems += [f"{folder} is damaged" for _, folder in self._folders() if not Postings.is_whole(folder)]
        return problems

    def clear(self, connection: sqlite3.Connection) -> None:
        """See `TextIndex.clear`. Arrays are deleted before the commit, as they are derived from the rows."""
        connection.execute(f"DELETE FROM {self._table}")
        connection.execute("UPDATE state SET terms_cleared = commit_number + 1")
        self._view = None
        for _, folder in self._folders():
            shutil.rmtree(folder, ignore_errors=True)

    def search(
        self, snapshot: Snapshot, query: str, k: int, where: Filter | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ``k`` records whose texts have the largest score; only records that share a term with the query.

        Returns:
            (n,) int64 numbers of records and (n,) float32 scores, best first; ties in order of writing.
        """
        numbers, scores = self.scores(snapshot, query, where)
        rows = largest(scores, k)
        return numbers[rows], scores[rows]

    def scores(self, snapshot: Snapshot, query: str, where: Filter | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(n,) int64 numbers of records, ascending, and (n,) float32 scores, 0 for records that a filter excludes."""
        view = self.view_of(snapshot)
        scores = np.zeros(len(view.is_live), np.float32)
        self.add_scores(snapshot, view, query, scores)
        is_allowed = view.is_live
        if where is not None:
            is_allowed = np.zeros(len(scores), bool)
            is_allowed[view.rows_of(snapshot.numbers(where))] = True
        scores *= is_allowed
        return view.numbers, scores

    def write_postings(self, snapshot: Snapshot) -> None:
        """Rewrite the arrays, if enough texts were added since.

        Raises:
            StoreError: the disk is full, or the folder cannot be written.
        """
        numbers, written = snapshot.numbers(), self._written(snapshot)
        last = int(written.numbers[-1]) if written and len(written.numbers) else 0
        num_later = len(numbers) - int(np.searchsorted(numbers, last, "right"))
        if num_later <= max(_MOST_LATER, len(numbers) // 4):
            return
        folder = self._folder / f"{self._arrays}.{snapshot.commit_number}.{numbers[-1]}"
        try:
            Postings.write(folder, lambda: self._bags(snapshot.connection, 0))
        except OSError as error:
            raise StoreError(
                f"{folder} cannot be written: {error.strerror or error}. Every text is in the store and can be "
                "searched, more slowly; free some space and index again"
            ) from error
        self._view = None
        for commit_number, folder in self._folders():
            if commit_number < snapshot.commit_number:
                shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[tuple[int, Path]]:
        """The folders of arrays, the newest last, with the number of the commit."""
        name = re.compile(rf"{self._arrays}\.(\d+)\.\d+")
        matches = [(name.fullmatch(folder.name), folder) for folder in self._folder.iterdir()]
        return sorted((int(match[1]), folder) for match, folder in matches if match)

    def _written(self, snapshot: Snapshot) -> Postings | None:
        (first,) = snapshot.connection.execute("SELECT terms_cleared FROM state").fetchone()
        for commit_number, folder in reversed(self._folders()):
            if first <= commit_number <= snapshot.commit_number:
                try:
                    return Postings.open(folder)
                except (OSError, ValueError, EOFError):
                    continue  # removed meanwhile, or damaged: use the words in the database
        return None

    def view_of(self, snapshot: Snapshot) -> "View":
        view = self._view
        if view is None or view.commit_number != snapshot.commit_number:
            written = self._written(snapshot)
            last = int(written.numbers[-1]) if written and len(written.numbers) else 0
            later = Postings.of_bags(lambda: self._bags(snapshot.connection, last))
            parts = [written, later] if written else [later]
            view = self._view = View.of(snapshot, [part for part in parts if len(part.numbers)])
        return view

    def _bags(self, connection: sqlite3.Connection, after: int) -> sqlite3.Cursor:
        return connection.execute(
            f"SELECT number, length, ids, counts FROM {self._table} WHERE number > ? ORDER BY number", [after]
        )


@dataclass(frozen=True, eq=False)
class View:
    """The postings of one commit."""

    commit_number: int
    parts: list[Postings]  # with consecutive rows
    numbers: np.ndarray  # (num_rows,) int64, ascending
    lengths: np.ndarray  # (num_rows,) int32
    is_live: np.ndarray  # (num_rows,) bool: the text was not removed
    num_texts: int  # live ones

    @classmethod
    def of(cls, snapshot: Snapshot, parts: list[Postings]) -> "View":
        numbers = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)])
        lengths = np.concatenate([np.empty(0, np.int32), *(part.lengths for part in parts)])
        is_live = np.isin(numbers, snapshot.numbers(), assume_unique=True)
        return cls(snapshot.commit_number, parts, numbers, lengths, is_live, int(np.count_nonzero(is_live)))

    def rows_of(self, numbers: np.ndarray) -> np.ndarray:
        """The rows of texts by ascending numbers, without those that this index lacks."""
        rows = np.searchsorted(self.numbers, numbers)
        rows = rows[rows < len(self.numbers)]  # the first ones
        return rows[self.numbers[rows] == numbers[: len(rows)]]

    @cached_property
    def norms(self) -> np.ndarray:
        """(num_rows,) float32: the discount of BM25 for the length of each text."""
        lengths = self.lengths[self.is_live]
        return norms(self.lengths, float(lengths.mean(dtype=np.float64)) if len(lengths) else 1.0)

    def count(self, term: int) -> int:
        """The number of live texts that have a term."""
        removed = self.num_texts < len(self.is_live)
        counts = (part.count(term, self.is_live[rows] if removed else None) for part, rows in self._parts_and_rows())
        return sum(counts)

    def idf(self, term: int) -> float:
        """Inverse document frequency of a term."""
        return idf(self.num_texts, self.count(term))

    def numbers_with(self, term: int) -> np.ndarray:
        """(n,) int64, ascending: the numbers of the live texts that have a term."""
        rows = np.concatenate(
            [np.empty(0, np.int64), *(part.rows_with(term) + rows.start for part, rows in self._parts_and_rows())]
        )
        return self.numbers[rows[self.is_live[rows]]]

    def add_bm25(self, term: int, count: int, scores: np.ndarray) -> None:
        """Add the BM25 of a term that a query has ``count`` times."""
        weight = count * self.idf(term)
        for part, rows in self._parts_and_rows():
            part.add_bm25(term, weight, self.norms[rows], scores[rows])

    def add_products(self, term: int, weight: float, scores: np.ndarray) -> None:
        """Add the products of a weight and those of the texts."""
        for part, rows in self._parts_and_rows():
            part.add_products(term, weight, scores[rows])

    def _parts_and_rows(self) -> Iterator[tuple[Postings, slice]]:
        start = 0
        for part in self.parts:
            yield part, slice(start, start + len(part.numbers))
            start += len(part.numbers)


def _checksum(number: int, length: int, ids: bytes, counts: bytes) -> int:
    return zlib.crc32(counts, zlib.crc32(ids, zlib.crc32(f"{number} {length}".encode())))
