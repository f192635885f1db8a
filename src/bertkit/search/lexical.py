"""The lexical index of a store: BM25 over the words of its texts, in the same commits as the records."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bertkit.search.embedded.snapshot import Snapshot
from bertkit.search.impacts import LARGEST_COUNT, ImpactIndex, Terms, View
from bertkit.search.words import is_half_of_pair, words


class LexicalIndex(ImpactIndex):
    """BM25 over the texts of a store; a `TextIndex`.

    Args:
        folder: folder of the store.
        split: splits a text into words.
    """

    def __init__(self, folder: str | Path, split: Callable[[str], list[str]] = words) -> None:
        super().__init__(folder, "bag", "lexical")
        self._split = split

    def create(self, connection: sqlite3.Connection) -> None:
        """See `TextIndex.create`."""
        connection.execute("CREATE TABLE IF NOT EXISTS word (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE)")
        super().create(connection)

    def clear(self, connection: sqlite3.Connection) -> None:
        """See `ImpactIndex.clear`."""
        super().clear(connection)
        connection.execute("DELETE FROM word")

    def terms(self, connection: sqlite3.Connection, texts: list[str]) -> Iterator[Terms]:
        """See `ImpactIndex.terms`; counts up to 65,535."""
        bags = [Counter(self._split(text)) for text in texts]
        every = sorted({word for bag in bags for word in bag})
        connection.executemany("INSERT OR IGNORE INTO word (word) VALUES (?)", [(word,) for word in every])
        ids = _word_ids(connection, every)
        for bag in bags:
            counts = np.minimum(np.array(list(bag.values()), np.int64), LARGEST_COUNT).astype(np.uint16)
            yield Terms(bag.total(), np.array([ids[word] for word in bag], np.uint32), counts)

    def _counts(self, connection: sqlite3.Connection, query: str) -> Counter[str]:
        """How often a query has each word. A single character of a script without spaces, which the store has in pairs,
        stands for all that contain it."""
        query_words = self._split(query)
        if len(query_words) == 1 and is_half_of_pair(query_words[0]):
            rows = connection.execute("SELECT word FROM word WHERE instr(word, ?)", query_words)
            return Counter(word for (word,) in rows)
        return Counter(query_words)

    def add_scores(self, snapshot: Snapshot, view: View, query: str, scores: np.ndarray) -> None:
        """See `ImpactIndex.add_scores`."""
        counts = self._counts(snapshot.connection, query)
        for word, number in _word_ids(snapshot.connection, list(counts)).items():
            view.add_bm25(number, counts[word], scores)

    def largest_score(self, snapshot: Snapshot, query: str) -> float:
        """A bound that no text's BM25 reaches: each word counted infinitely often."""
        counts = self._counts(snapshot.connection, query)
        return sum(counts[word] * weight for word, weight in self.weights(snapshot, query).items())

    def weights(self, snapshot: Snapshot, query: str) -> dict[str, float]:
        """The inverse document frequency of each word of a query that is in the store."""
        view = self.view_of(snapshot)
        ids = _word_ids(snapshot.connection, list(self._counts(snapshot.connection, query)))
        return {word: view.idf(number) for word, number in ids.items()}


def _word_ids(connection: sqlite3.Connection, every: list[str]) -> dict[str, int]:
    rows = connection.execute(
        "SELECT word, id FROM word WHERE word IN (SELECT value FROM json_each(?))", [json.dumps(every)]
    )
    return dict(rows.fetchall())
