"""The lexical index of a store: BM25 over the words of its texts, in the same commits as the records."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bertkit.search.filters import Filter
from bertkit.search.impacts import LARGEST_COUNT, ImpactIndex, Terms, View
from bertkit.search.store.snapshot import Snapshot
from bertkit.search.words import LETTER, Split, folded, is_half_of_pair, split, words

RARE = 50
"""Maximum number of passages with a code that count as its only ones."""
_TEXTS_AT_ONCE = 1000
_TYPED = str.maketrans("\u2018\u2019\u02bc\u2010\u2011\u2012\u2013\u2014\u2212", "'''------")
"""Apostrophes, hyphens and dashes of typography, as a keyboard has them."""
_FILE_TYPE = re.compile(r"\.[A-Za-z]\w*$")


class LexicalIndex(ImpactIndex):
    """BM25 over the texts of a store and the names of their files; a `TextIndex`.

    Args:
        folder: folder of the store.
        language: language of the stems, one of `LANGUAGES`; None: that of the store, English for a new one.
        splits: splits a text into words, in a language.
    """

    def __init__(
        self, folder: str | Path, language: str | None = None, splits: Callable[[str, str], Split] = split
    ) -> None:
        super().__init__(folder, "bag", "lexical")
        self._language, self._splits, self._stored_language = language, splits, ""

    def create(self, connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS word (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE)")
        connection.execute("CREATE TABLE IF NOT EXISTS language (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT)")
        connection.execute("INSERT OR IGNORE INTO language VALUES (1, ?)", [self._language or "english"])
        super().create(connection)

    def language(self, connection: sqlite3.Connection) -> str:
        """The language of the stems of the store."""
        if not self._stored_language:
            ((self._stored_language,),) = connection.execute("SELECT name FROM language").fetchall()
        return self._stored_language

    def clear(self, connection: sqlite3.Connection) -> None:
        super().clear(connection)
        connection.execute("DELETE FROM word")

    def terms(self, connection: sqlite3.Connection, texts: list[str], names: list[str]) -> Iterator[Terms]:
        """See `ImpactIndex.terms`; counts up to 65,535. Codes and the words of names add nothing to the length."""
        language = self.language(connection)
        splits = [self._splits(text, language) for text in texts]
        bags = [Counter(one.words + one.codes) for one in splits]
        for bag, name in zip(bags, names, strict=True):
            of_name = self._splits(f"{name} {_FILE_TYPE.sub('', name)}", language)  # a code can be before the file type
            bag |= Counter(set(of_name.words + of_name.codes))
        every = sorted({word for bag in bags for word in bag})
        connection.executemany("INSERT OR IGNORE INTO word (word) VALUES (?)", [(word,) for word in every])
        ids = _word_ids(connection, every)
        for bag, one in zip(bags, splits, strict=True):
            counts = np.minimum(np.array(list(bag.values()), np.int64), LARGEST_COUNT).astype(np.uint16)
            yield Terms(len(one.words), np.array([ids[word] for word in bag], np.uint32), counts)

    def _counts(self, connection: sqlite3.Connection, query: str) -> Counter[str]:
        """How often a query has each word. A single character of a script without spaces, which the store has in pairs,
        stands for all that contain it."""
        stems, codes, _ = self.split(connection, query)
        if len(stems) == 1 and is_half_of_pair(stems[0]):
            rows = connection.execute("SELECT word FROM word WHERE instr(word, ?)", stems)
            return Counter(word for (word,) in rows)
        return Counter(stems + codes)

    def split(self, connection: sqlite3.Connection, text: str) -> Split:
        """The words of a text, as the store has them."""
        return self._splits(text, self.language(connection))

    def words_shared_with(self, snapshot: Snapshot, query: str) -> Callable[[str], list[str]]:
        """A function that returns the words of a text, and the codes of a query that are in it."""
        language, codes = self.language(snapshot.connection), self.split(snapshot.connection, query).codes

        def shared(text: str) -> list[str]:
            written = folded(text).lower() if codes else ""
            return words(text, language) + [code for code in codes if code in written]

        return shared

    def add_scores(self, snapshot: Snapshot, view: View, query: str, scores: np.ndarray) -> None:
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

    def numbers_with(self, snapshot: Snapshot, words: Sequence[str]) -> list[np.ndarray]:
        """(n,) int64, ascending, for each word: the numbers of the records whose texts or file names contain it."""
        view, ids = self.view_of(snapshot), _word_ids(snapshot.connection, list(words))
        return [view.numbers_with(ids[word]) if word in ids else np.empty(0, np.int64) for word in words]

    def exact_matches(self, snapshot: Snapshot, query: str, where: Filter | None) -> tuple[np.ndarray, np.ndarray]:
        """(n,) int64 numbers of records, ascending, that contain codes of a query which no more than `RARE` contain,
        and how many codes each contains."""
        found = self.numbers_with(snapshot, self.split(snapshot.connection, query).exact)
        numbers, counts = np.unique(
            np.concatenate([np.empty(0, np.int64), *(one for one in found if len(one) <= RARE)]), return_counts=True
        )
        if where is None or not len(numbers):
            return numbers, counts
        is_allowed = np.isin(numbers, snapshot.numbers(where))
        return numbers[is_allowed], counts[is_allowed]

    def missing(self, snapshot: Snapshot, query: str) -> list[str]:
        """The words of a query, as they are written there, that no text or file name has."""
        needed: dict[str, list[str]] = {}
        for written in query.split():
            stems, _, exact = self.split(snapshot.connection, written)
            needed[written] = exact or [word for word in stems if not is_half_of_pair(word)]
        view = self.view_of(snapshot)
        ids = _word_ids(snapshot.connection, [word for some in needed.values() for word in some])
        present = {word for word, number in ids.items() if view.count(number)}
        return [
            written.strip("\"'()[]{}?!.,;") for written, some in needed.items() if some and present.isdisjoint(some)
        ]

    def numbers_with_phrase(self, snapshot: Snapshot, phrase: str) -> np.ndarray:
        """(n,) int64, ascending: the records whose texts contain a phrase: the same letters, digits and signs between
        the ends of words, regardless of case, accents and the kinds of white space, apostrophes and hyphens. Only texts
        with all its words are read."""
        stems = [word for word in self.split(snapshot.connection, phrase).words if not is_half_of_pair(word)]
        numbers = snapshot.numbers()
        for some in self.numbers_with(snapshot, stems):
            numbers = np.intersect1d(numbers, some, assume_unique=True)
        pattern, found = _pattern(phrase), []
        for start in range(0, len(numbers), _TEXTS_AT_ONCE):
            part = json.dumps(numbers[start : start + _TEXTS_AT_ONCE].tolist())
            found += [
                number
                for number, text in snapshot.connection.execute(
                    "SELECT number, text FROM record WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number",
                    [part],
                )
                if pattern.search(_comparable(text))
            ]
        return np.array(found, np.int64)


def _comparable(text: str) -> str:
    return folded(text).lower().translate(_TYPED)


def _pattern(phrase: str) -> re.Pattern[str]:
    written = _comparable(phrase).split()
    start, end = (rf"(?{sign}{LETTER})" for sign in ("<!", "!"))
    return re.compile(
        (start if re.match(LETTER, written[0]) else "")
        + r"\s+".join(map(re.escape, written))
        + (end if re.match(LETTER, written[-1][-1]) else "")
    )


def _word_ids(connection: sqlite3.Connection, every: list[str]) -> dict[str, int]:
    rows = connection.execute(
        "SELECT word, id FROM word WHERE word IN (SELECT value FROM json_each(?))", [json.dumps(every)]
    )
    return dict(rows.fetchall())
