"""Relations between the entities of a text. Shape letters: W words, D width, E entities, P pairs, R relations."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertkit.compiled import lean_sums
from bertkit.extraction.candidates import Candidates
from bertkit.extraction.layers import ADJACENCY, PAIRS, Layers
from bertkit.extraction.scorer import SpanScorer, probabilities
from bertkit.extraction.settings import RelationSettings
from bertkit.extraction.windows import Window
from bertkit.transformer.kernels.arrays import Rows, array, library_of

_PAIRS_AT_ONCE = 1024


class Pairs(NamedTuple):
    """Pairs of entities that one window holds."""

    window: Window
    prompt: int
    head: np.ndarray  # (P,) int64 entity
    tail: np.ndarray  # (P,) int64


def pairs_of(spans: Candidates, windows: Sequence[Window], prompt_of: np.ndarray) -> list[Pairs]:
    """All pairs of two entities of a text, each in the window that owns the first word of the first one, if that window
    holds the other, too; with the prompt that names the label of the head.

    Args:
        spans: the entities, by their first word.
        windows: that own them.
        prompt_of: (labels,) number of the prompt of each label.
    """
    found = defaultdict[tuple[Window, int], list[tuple[int, int]]](list)
    for first, window in enumerate(windows):
        for second in range(first + 1, len(windows)):
            if spans.start[second] >= window.end:
                break
            if spans.end[second] < window.end:
                for head, tail in ((first, second), (second, first)):
                    found[window, int(prompt_of[spans.label[head]])].append((head, tail))
    return [Pairs(*key, *np.array(pairs, np.int64).T) for key, pairs in found.items()]


class RelationScorer:
    """Scores pairs of spans for relations, by the vectors of the spans."""

    def __init__(self, layers: Layers, settings: RelationSettings, spans: SpanScorer) -> None:
        self.layers, self.settings, self._spans = layers, settings, spans

    def probabilities(
        self, words: Rows, spans: Candidates, pairs: Pairs, relations: Rows, threshold: float
    ) -> np.ndarray:
        """(P, R); 0 for pairs that are related with a probability up to the threshold only.

        Args:
            words: (W, D) of the window.
            spans: of the text.
            relations: (R, D).
        """
        inside, of_pairs = np.unique([pairs.head, pairs.tail], return_inverse=True)
        number = np.arange(len(inside))
        rows = np.concatenate([spans.start[inside], spans.end[inside]]) - pairs.window.first
        of_words = self._spans.words(words[self.layers.rows(rows)])
        vectors = self._spans.vectors(of_words, number, number + len(inside))
        head, tail = of_pairs.reshape(2, -1)
        known = array(relations)
        result = np.zeros((len(head), len(known)), known.dtype)
        for first in range(0, len(head), _PAIRS_AT_ONCE):
            own = slice(first, first + _PAIRS_AT_ONCE)
            self._score(vectors, head[own], tail[own], known, threshold, result[own])
        return result

    def _score(
        self,
        vectors: Rows,
        head: np.ndarray,
        tail: np.ndarray,
        relations: np.ndarray,
        threshold: float,
        result: np.ndarray,
    ) -> None:
        both = library_of(vectors).concatenate([vectors[self.layers.rows(side)] for side in (head, tail)], 1)
        related = np.ones(len(head), np.bool_)
        if self.settings.pairs != "none":
            related = probabilities(self._adjacency(vectors, both, head, tail)) > threshold
        if related.any():
            rows = array(self.layers.twice(PAIRS, both[self.layers.rows(related)]))
            pair, relation = np.divmod(np.arange(len(rows) * len(relations)), len(relations))
            result[related] = probabilities(_dots(rows, relations, pair, relation)).reshape(len(rows), -1)

    def _adjacency(self, vectors: Rows, both: Rows, head: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """(P,) logits."""
        if self.settings.pairs == "mlp":
            return array(self.layers.mlp(f"{ADJACENCY}mlp", (0, 2), both))[:, 0]
        if self.settings.pairs == "bilinear":
            vectors = self.layers.linear(f"{ADJACENCY}proj")(vectors)
        rows = array(vectors)
        return _dots(rows, rows, head, tail)


def _dots(left: np.ndarray, right: np.ndarray, left_rows: np.ndarray, right_rows: np.ndarray) -> np.ndarray:
    """(n,) inner products of rows, chosen by two arrays of n indices."""
    result = np.empty(len(left_rows), left.dtype)
    _write_dots(left, right, left_rows, right_rows, result)
    return result


@lean_sums
def _write_dots(left, right, left_rows, right_rows, result):
    for index in range(len(left_rows)):
        one, other = left[left_rows[index]], right[right_rows[index]]
        total = one[0] * other[0]
        for k in range(1, len(one)):
            total += one[k] * other[k]
        result[index] = total
