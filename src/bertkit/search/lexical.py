"""The lexical index of a store: BM25 over the words of its texts, in the same commits as the records.

The words of each text are a row in SQLite. Postings are derived from them: most are read from arrays in a folder, which
`write_postings` creates; those of later texts are built in memory when a new commit is first searched. Removed texts
stay in the arrays but are skipped, and are not counted in the statistics of BM25.
"""

import json
import shutil
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertkit.search.embedded.snapshot import Snapshot
from bertkit.search.filters import Filter
from bertkit.search.postings import Postings, idf, largest, norms
from bertkit.search.words import words

_MOST_LATER = 20_000
"""Maximum number of texts with postings in memory before arrays are written again."""
_LARGEST_COUNT = 2**16 - 1


class LexicalIndex:
    """BM25 over the texts of a store; a `TextIndex`.

    Args:
        folder: folder of the store.
        split: splits a text into words.
    """

    def __init__(self, folder: str | Path, split: Callable[[str], list[str]] = words) -> None:
        self._folder, self._split = Path(folder), split
        self._view: _View | None = None

    def create(self, connection: sqlite3.Connection) -> None:
        """See `TextIndex.create`."""
        connection.execute("CREATE TABLE IF NOT EXISTS word (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE)")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS bag (number INTEGER PRIMARY KEY, length INTEGER NOT NULL, "
            "ids BLOB NOT NULL, counts BLOB NOT NULL, checksum INTEGER NOT NULL)"
        )

    def add(self, connection: sqlite3.Connection, rows: Sequence[tuple[int, str]]) -> None:
        """See `TextIndex.add`."""
        bags = [(number, Counter(self._split(text))) for number, text in rows]
        every = sorted({word for _, bag in bags for word in bag})
        connection.executemany("INSERT OR IGNORE INTO word (word) VALUES (?)", [(word,) for word in every])
        ids = _word_ids(connection, every)
        insert = "INSERT INTO bag (number, length, ids, counts, checksum) VALUES (?, ?, ?, ?, ?)"
        filled = []
        for number, bag in bags:
            word_ids = np.array([ids[word] for word in bag], np.uint32).tobytes()
            counts = np.minimum(np.array(list(bag.values()), np.int64), _LARGEST_COUNT).astype(np.uint16).tobytes()
            row = (number, bag.total(), word_ids, counts)
            filled.append((*row, _checksum(*row)))
        connection.executemany(insert, filled)

    def remove(self, connection: sqlite3.Connection, rows: Sequence[tuple[int, str]]) -> None:
        """See `TextIndex.remove`."""
        connection.executemany("DELETE FROM bag WHERE number = ?", [(number,) for number, _ in rows])

    def verify(self, connection: sqlite3.Connection) -> list[str]:
        """See `TextIndex.verify`."""
        bags = connection.execute("SELECT number, length, ids, counts, checksum FROM bag")
        problems = [
            f"the words of record number {row[0]} are damaged" for *row, checksum in bags if _checksum(*row) != checksum
        ]
        (num_lacking,) = connection.execute(
            "SELECT (SELECT count(*) FROM record WHERE number NOT IN (SELECT number FROM bag)) "
            "+ (SELECT count(*) FROM bag WHERE number NOT IN (SELECT number FROM record))"
        ).fetchone()
        if num_lacking:
            problems.append(f"{num_lacking} records do not match the words of the lexical index")
        problems += [f"{folder} is damaged" for folder in self._folders() if not Postings.is_whole(folder)]
        return problems

    def clear(self, connection: sqlite3.Connection) -> None:
        """See `TextIndex.clear`. Arrays are deleted before the commit, as they are derived from the rows."""
        connection.execute("DELETE FROM bag")
        connection.execute("DELETE FROM word")
        self._view = None
        for folder in self._folders():
            shutil.rmtree(folder, ignore_errors=True)

    def search(
        self, snapshot: Snapshot, query: str, k: int, where: Filter | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ``k`` records whose texts have the largest BM25 score; only records that share a word with the query.

        Returns:
            (n,) int64 numbers of records and (n,) float32 scores, best first; ties in order of writing.
        """
        view = self._view_of(snapshot)
        counts = Counter(self._split(query))
        scores = np.zeros(len(view.is_live), np.float32)
        for word, number in _word_ids(snapshot.connection, list(counts)).items():
            view.add_scores(number, counts[word], scores)
        is_allowed = view.is_live
        if where is not None:
            is_allowed = np.zeros(len(scores), bool)
            is_allowed[np.searchsorted(view.numbers, snapshot.numbers(where))] = True
        rows = largest(scores, is_allowed, k)
        return view.numbers[rows], scores[rows]

    def weights(self, snapshot: Snapshot, query: str) -> dict[str, float]:
        """The inverse document frequency of each word of a query that is in the store."""
        view = self._view_of(snapshot)
        ids = _word_ids(snapshot.connection, list(dict.fromkeys(self._split(query))))
        return {word: view.idf(number) for word, number in ids.items()}

    def write_postings(self, snapshot: Snapshot) -> None:
        """Rewrite the arrays, if enough texts were added since."""
        numbers, written = snapshot.numbers(), self._written()
        last = int(written.numbers[-1]) if written and len(written.numbers) else 0
        num_later = len(numbers) - int(np.searchsorted(numbers, last, "right"))
        if num_later <= max(_MOST_LATER, len(numbers) // 4):
            return
        postings = Postings.of_bags(_bags(snapshot.connection, 0))
        postings.save(self._folder / f"lexical.{postings.numbers[-1]}")
        self._view = None
        for folder in self._folders()[:-1]:
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        folders = [folder for folder in self._folder.glob("lexical.*") if folder.suffix[1:].isdecimal()]
        return sorted(folders, key=lambda folder: int(folder.suffix[1:]))

    def _written(self) -> Postings | None:
        for folder in reversed(self._folders()):
            try:
                return Postings.open(folder)
            except (
                OSError,
                ValueError,
                EOFError,
            ):  # replaced meanwhile, or damaged: use the words in the database
                continue
        return None

    def _view_of(self, snapshot: Snapshot) -> "_View":
        view = self._view
        if view is None or view.commit_number != snapshot.commit_number:
            written = self._written()
            last = int(written.numbers[-1]) if written and len(written.numbers) else 0
            later = Postings.of_bags(_bags(snapshot.connection, last))
            parts = [written, later] if written else [later]
            view = self._view = _View.of(snapshot, [part for part in parts if len(part.numbers)])
        return view


@dataclass(frozen=True, eq=False)
class _View:
    """The postings of one commit."""

    commit_number: int
    parts: list[Postings]  # with consecutive rows
    numbers: np.ndarray  # (num_rows,) int64, ascending
    is_live: np.ndarray  # (num_rows,) bool: the text was not removed
    norms: np.ndarray  # (num_rows,) float32
    num_texts: int  # live ones

    @classmethod
    def of(cls, snapshot: Snapshot, parts: list[Postings]) -> "_View":
        numbers = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)])
        lengths = np.concatenate([np.empty(0, np.int32), *(part.lengths for part in parts)])
        is_live = np.isin(numbers, snapshot.numbers(), assume_unique=True)
        mean = float(lengths[is_live].mean(dtype=np.float64)) if is_live.any() else 1.0
        return cls(
            snapshot.commit_number, parts, numbers, is_live, norms(lengths, mean), int(np.count_nonzero(is_live))
        )

    def idf(self, word: int) -> float:
        removed = self.num_texts < len(self.is_live)
        counts = (part.count(word, self.is_live[rows] if removed else None) for part, rows in self._parts_and_rows())
        return idf(self.num_texts, sum(counts))

    def add_scores(self, word: int, count: int, scores: np.ndarray) -> None:
        weight = count * self.idf(word)
        for part, rows in self._parts_and_rows():
            part.add_scores(word, weight, self.norms[rows], scores[rows])

    def _parts_and_rows(self) -> Iterator[tuple[Postings, slice]]:
        start = 0
        for part in self.parts:
            yield part, slice(start, start + len(part.numbers))
            start += len(part.numbers)


def _checksum(number: int, length: int, ids: bytes, counts: bytes) -> int:
    return zlib.crc32(counts, zlib.crc32(ids, zlib.crc32(f"{number} {length}".encode())))


def _word_ids(connection: sqlite3.Connection, every: list[str]) -> dict[str, int]:
    rows = connection.execute(
        "SELECT word, id FROM word WHERE word IN (SELECT value FROM json_each(?))", [json.dumps(every)]
    )
    return dict(rows.fetchall())


def _bags(connection: sqlite3.Connection, after: int) -> sqlite3.Cursor:
    return connection.execute("SELECT number, length, ids, counts FROM bag WHERE number > ? ORDER BY number", [after])
