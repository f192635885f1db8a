"""Spans above the threshold to entities."""

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from bertkit.extraction.candidates import Candidates
from bertkit.extraction.windows import Window, Words


@dataclass(frozen=True)
class Entity:
    """A span of a text with its label."""

    start: int  # characters of the text
    end: int  # exclusive
    text: str
    label: str
    score: float  # from 0 to 1
    window: tuple[int, int] | None  # characters, end exclusive, that the model read when it decided; None: of a tagger


def entity_of(text: str, words: Words, spans: Candidates, index: int, label: str, window: Window) -> Entity:
    """One of the spans as an entity."""
    start, end = int(words.starts[spans.start[index]]), int(words.ends[spans.end[index]])
    read = int(words.starts[window.first]), min(int(words.ends[window.end - 1]), len(text))
    return Entity(start, end, text[start:end], label, float(spans.score[index]), read)


def best_spans(candidates: Candidates, *, nested: bool) -> np.ndarray:
    """(n,) indices of the spans that are kept, in the order of the text: from the highest score on, those that do not
    overlap one that is kept already. Of equal scores the span that begins first, then the shorter one, then the label
    that is first in the alphabet is preferred.

    Args:
        nested: spans inside others are kept too; one of two that cross each other never is.
    """
    order = np.lexsort((candidates.label, candidates.end, candidates.start, -candidates.score))
    starts, ends = candidates.start[order].tolist(), candidates.end[order].tolist()
    clashes = _Nested() if nested else _Flat(max(ends, default=0) + 1)
    kept = [
        index for index, span in zip(order.tolist(), zip(starts, ends, strict=True), strict=True) if clashes.add(*span)
    ]
    return np.array(sorted(kept, key=lambda index: (candidates.start[index], candidates.end[index])), np.int64)


class _Flat:
    def __init__(self, num_words: int) -> None:
        self.taken = bytearray(num_words)

    def add(self, start: int, end: int) -> bool:
        """Add a span, and return True, unless it overlaps another."""
        if self.taken.find(1, start, end + 1) >= 0:
            return False
        self.taken[start : end + 1] = b"\1" * (end + 1 - start)
        return True


class _Nested:
    def __init__(self) -> None:
        self.ends, self.longest = defaultdict[int, list[int]](list), 0  # sorted last words by first word

    def add(self, start: int, end: int) -> bool:
        """Add a span, and return True, unless it crosses another or is one."""
        for first in range(max(0, start - self.longest), end + 1):
            for last in self.ends.get(first, ()):
                crosses = first < start <= last < end or start < first <= end < last
                if crosses or (first, last) == (start, end):
                    return False
        insort(self.ends[start], end)
        self.longest = max(self.longest, end - start)
        return True
