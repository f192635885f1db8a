"""Queries: words, "quoted phrases", -without and file:name."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Self

import numpy as np

from bertkit.errors import UsageError
from bertkit.search.filters import Filter, InRecords
from bertkit.search.lexical import LexicalIndex
from bertkit.search.store.snapshot import Snapshot
from bertkit.search.words import folded

_QUOTES = re.compile("[“”„]")
_STARTS = r"(?<![^\s(\[{])"
_PART = re.compile(rf'{_STARTS}(-?)(file:)?"([^"]*)"(?!\w)|{_STARTS}(-?)file:(\S*)|{_STARTS}-([^\W\d]\w[^\s?!,;]*)')
_NO_END = re.compile(rf'{_STARTS}-?"')


class Condition(NamedTuple):
    """A condition on passages."""

    written: str  # in the query
    value: str  # phrase, or pattern of file names
    is_file: bool
    is_without: bool

    def numbers(self, snapshot: Snapshot, index: LexicalIndex) -> np.ndarray:
        """(n,) int64: the records that contain the phrase, or whose file names match."""
        if not self.is_file:
            return index.numbers_with_phrase(snapshot, self.value)
        pattern = folded(self.value).lower()
        rows = snapshot.connection.execute("SELECT number, document_id FROM record ORDER BY document_id")
        return np.array(sorted(number for number, name in rows if _matches(folded(name).lower(), pattern)), np.int64)


class Query(NamedTuple):
    """A query, split into words and conditions."""

    text: str  # the words, and the phrases in their quotation marks
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, query: str) -> Self:
        """Split a query.

        Raises:
            UsageError: a quotation mark without a second one, a phrase or pattern without characters, or no words.
        """
        conditions = []

        def removed(match: re.Match[str]) -> str:
            minus, file, phrase, minus_of_name, name, without = match.groups()
            value = next(one for one in (phrase, name, without) if one is not None)
            if not value.strip():
                raise UsageError(
                    f"{match.group()} in the query is empty: write a phrase or a file name there, or omit it"
                )
            is_file, is_without = bool(file) or name is not None, bool(minus or minus_of_name or without)
            conditions.append(Condition(match.group(), value, is_file, is_without))
            return "" if is_file or is_without else match.group()

        written = _QUOTES.sub('"', query)
        text = _PART.sub(removed, written)
        if _NO_END.search(_PART.sub("", written)):
            raise UsageError(f"the query {query!r:.60} has a quotation mark without a second one: add it, or omit both")
        if not text.strip():
            raise UsageError(f"the query {query!r:.60} has no words: expected some besides -without and file:name")
        return cls(" ".join(text.split()) if conditions else query, tuple(conditions))

    @classmethod
    def checked(cls, query: Any, *, plain: bool) -> Query:
        """A query in which, unless it is plain, quotation marks, - and file: have a meaning.

        Raises:
            UsageError: it is empty, no str, or has a quotation mark without a second one.
        """
        if not isinstance(query, str):
            raise UsageError(f"the query is {type(query).__name__} ({query!r:.40}): expected str")
        if not query.strip():
            raise UsageError("the query is empty: expected a few words, or a question")
        return cls(query) if plain else cls.of(query)

    def restrict(
        self, snapshot: Snapshot, index: LexicalIndex, where: Filter | None
    ) -> tuple[Filter | None, list[str]]:
        """A filter of the records that meet the conditions and another filter, and the conditions that no record
        meets."""
        if not self.conditions:
            return where, []
        numbers, unmet = snapshot.numbers(where), []
        for condition in self.conditions:
            some = condition.numbers(snapshot, index)
            numbers = np.setdiff1d(numbers, some) if condition.is_without else np.intersect1d(numbers, some)
            if not len(some) and not condition.is_without:
                unmet.append(condition.written)
        return InRecords(numbers), unmet


def _matches(name: str, pattern: str) -> bool:
    """Whether a name contains a pattern, or with * or ? whether the name or its last part is like it; that of a row
    of a table with or without the row."""
    if not set("*?") & set(pattern):
        return pattern in name
    path = name.rpartition("#")[0] or name
    return any(fnmatchcase(one, pattern) for one in (name, path, path.rpartition("/")[2]))
