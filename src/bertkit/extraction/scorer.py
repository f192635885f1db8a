"""Scores of spans and words for labels.

Shape letters: W words, D width of the scorer, C labels, K longest span in words.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bertkit.compiled import lean, lean_sums
from bertkit.extraction.candidates import NO_CANDIDATES, Candidates
from bertkit.extraction.layers import LABELS, SPANS, TOKENS, Layers
from bertkit.tasks.probabilities import sigmoid
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import Rows, array, library_of

_ROWS_AT_ONCE = 1024
"""Pairs of a word and a label, or spans, that are computed at a time."""

_MANY_LABELS = 64
"""Labels of all texts from which spans are multiplied with all at once."""


class Part(NamedTuple):
    """The rows of a sequence among those of a batch."""

    words: slice
    num_starts: int  # of its words, the first ones, begin spans
    labels: slice


class Scorer(Protocol):
    """Scores of a model."""

    def words(self, words: Rows) -> list[Rows]:
        """(W, D) words to what their scores need, each with W rows."""

    def labels(self, labels: Rows) -> list[Rows]:
        """(C, D) labels to what their scores need, each with C rows."""

    def shared_labels(self, labels: Rows) -> list[Any]:
        """The same for labels that are those of all texts, to be used whole."""

    def spans(
        self, words: Sequence[Rows], labels: Sequence[Any], parts: Sequence[Part], threshold: float
    ) -> list[Candidates]:
        """The spans of each sequence of a batch above the threshold; words and labels are those of the sequence."""


class SpanScorer:
    """Scores each span of up to K words by its first and its last word (markerV0).

    The published layers are two linear layers over both words, a product with the label between; here the first is
    added from products of single words, and the second is applied to the labels instead of the spans.
    """

    def __init__(self, layers: Layers, max_width: int) -> None:
        self.layers, self.max_width = layers, max_width
        width = layers.values[f"{SPANS}out_project.3.bias"].shape[0]
        first = layers.values[f"{SPANS}out_project.0.weight"]
        self._of_start = layers.product(first[:, :width], layers.values[f"{SPANS}out_project.0.bias"])
        self._of_end = layers.product(first[:, width:])
        self._last = layers.linear(f"{SPANS}out_project.3")
        last, bias = (layers.values[f"{SPANS}out_project.3.{kind}"] for kind in ("weight", "bias"))
        self._of_label = layers.product(library_of(last).concatenate([last.T, bias[None]]))

    def words(self, words: Rows) -> list[np.ndarray]:
        """(W, 4 D) terms of a word as the first and as the last of a span."""
        sides = ((self._of_start, "project_start"), (self._of_end, "project_end"))
        return [array(product(self.layers.twice(SPANS + name, words, "relu"))) for product, name in sides]

    def labels(self, labels: Rows) -> list[np.ndarray]:
        """(C, 4 D + 1): what the terms of spans are multiplied with, and added."""
        return [self.queries(self.layers.twice(LABELS, labels))]

    def queries(self, vectors: Rows) -> np.ndarray:
        """(C, 4 D + 1): what the terms of spans are multiplied with, and added, from (C, D) vectors to compare with."""
        return array(self._of_label(vectors))

    def shared_labels(self, labels: Rows) -> list[Any]:
        """As `labels`; or if there are many, a product of the vectors of spans with all of them."""
        if len(labels) < _MANY_LABELS:
            return self.labels(labels)
        return [self.layers.product(self.layers.twice(LABELS, labels)), len(labels)]

    def vectors(self, words: Sequence[np.ndarray], start: np.ndarray, end: np.ndarray) -> Rows:
        """(N, D) vectors of spans, by their first and last word."""
        starts, ends = words
        terms = np.empty((len(start), starts.shape[1]), starts.dtype)
        _add_terms(starts, ends, start, end, terms)
        return self._last(self.layers.rows(terms))

    def spans(
        self, words: Sequence[Rows], labels: Sequence[Any], parts: Sequence[Part], threshold: float
    ) -> list[Candidates]:
        """As `Scorer.spans`."""
        if len(labels) > 1:
            return self._spans_of_many(words, labels[0], labels[1], parts, threshold)
        return [
            self.candidates(
                self.logits([each[part.words] for each in words], [labels[0][part.labels]], part.num_starts),
                part.num_starts, threshold,
            )
            for part in parts
        ]  # fmt: skip

    def logits(self, words: Sequence[np.ndarray], labels: Sequence[np.ndarray], num_starts: int) -> np.ndarray:
        """(starts, K, C) of a sequence, of whose words ``num_starts`` begin spans; -inf beyond the last word."""
        (starts, ends), (queries,) = words, labels
        logits = np.full((num_starts, self.max_width, len(queries)), -np.inf, starts.dtype)
        _score_spans(starts, ends, queries, logits, np.empty(starts.shape[1], starts.dtype))
        return logits

    def _spans_of_many(
        self, words: Sequence[np.ndarray], product: Any, num_labels: int, parts: Sequence[Part], threshold: float
    ) -> list[Candidates]:
        """`spans` of a product of vectors of spans with the labels; those of several sequences are multiplied at
        once."""
        bounds = np.cumsum([0, *(part.num_starts for part in parts)])
        starts = np.concatenate([np.arange(part.words.start, part.words.start + part.num_starts) for part in parts])
        ends = np.repeat([part.words.stop for part in parts], np.diff(bounds))
        begin, width = np.nonzero(starts[:, None] + np.arange(self.max_width) < ends[:, None])
        found = list[tuple[np.ndarray, ...]]()
        for first in range(0, len(begin), _ROWS_AT_ONCE):
            own, extra = begin[first : first + _ROWS_AT_ONCE], width[first : first + _ROWS_AT_ONCE]
            logits = array(product(self.vectors(words, starts[own], starts[own] + extra))).ravel()
            above = np.flatnonzero(logits > _lowest_logit(threshold))
            span, label = np.divmod(above, num_labels)
            found.append((own[span], extra[span], label, probabilities(logits[above])))
        begin, width, label, score = map(np.concatenate, zip(*found, strict=True))
        results, cuts = [], np.searchsorted(begin, bounds)
        for first, own in zip(bounds, map(slice, cuts, cuts[1:]), strict=False):
            start = begin[own] - first
            results.append(_above(Candidates(start, start + width[own], label[own], score[own]), threshold))
        return results

    def candidates(self, logits: np.ndarray, num_starts: int, threshold: float) -> Candidates:
        """The spans of a sequence above the threshold."""
        start, width, label = np.nonzero(logits > _lowest_logit(threshold))
        return _above(Candidates(start, start + width, label, probabilities(logits[start, width, label])), threshold)


class TokenScorer:
    """Scores each word as the start, the end and the inside of spans; a span has the smallest of these scores."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        weight = layers.values[f"{TOKENS}out_mlp.0.weight"]
        width = weight.shape[1] // 3
        self._of_word, self._of_label, self._of_both = (
            layers.product(weight[:, side * width : (side + 1) * width], bias)
            for side, bias in enumerate((layers.values[f"{TOKENS}out_mlp.0.bias"], None, None))
        )
        self._word_terms, self._label_terms = (self._halves(f"{TOKENS}{name}") for name in ("proj_token", "proj_label"))

    def _halves(self, name: str) -> list[Any]:
        """A stored linear layer as two, each with half of the outputs."""
        weight, bias = (self.layers.values[f"{name}.{kind}"] for kind in ("weight", "bias"))
        width = len(bias) // 2
        return [self.layers.product(weight[own], bias[own]) for own in (slice(width), slice(width, None))]

    def words(self, words: Rows) -> list[Rows]:
        """(W, 4 D) terms, (W, D) factors."""
        first, second = self._word_terms
        return [self._of_word(first(words)), second(words)]

    def labels(self, labels: Rows) -> list[Rows]:
        """(C, 4 D) terms, (C, D) factors."""
        if f"{LABELS}.0.weight" in self.layers.values:  # of a model that relates entities
            labels = self.layers.twice(LABELS, labels)
        first, second = self._label_terms
        return [self._of_label(first(labels)), second(labels)]

    def shared_labels(self, labels: Rows) -> list[Any]:
        """As `labels`."""
        return self.labels(labels)

    def spans(
        self, words: Sequence[Rows], labels: Sequence[Any], parts: Sequence[Part], threshold: float
    ) -> list[Candidates]:
        """As `Scorer.spans`."""
        logits = self.logits(words, labels, parts)
        return [self.candidates(each, part.num_starts, threshold) for each, part in zip(logits, parts, strict=True)]

    def logits(self, words: Sequence[Rows], labels: Sequence[Rows], parts: Sequence[Part]) -> list[np.ndarray]:
        """(W, C, 3) of each sequence; pairs of several sequences are multiplied at once."""
        (terms, factors), (label_terms, label_factors) = words, labels
        sizes = [(part.words.stop - part.words.start, part.labels.stop - part.labels.start) for part in parts]
        pairs = [
            np.indices(size).reshape(2, -1) + np.array([[part.words.start], [part.labels.start]])
            for size, part in zip(sizes, parts, strict=True)
        ]
        of_all, last = self.layers.rows(np.concatenate(pairs, axis=1)), self.layers.linear(f"{TOKENS}out_mlp.3")
        results = list[Rows]()
        for first in range(0, of_all.shape[1], _ROWS_AT_ONCE):
            word, label = of_all[:, first : first + _ROWS_AT_ONCE]
            both = self._of_both(factors[word] * label_factors[label], residual=terms[word] + label_terms[label])
            results.append(last(apply_activation(both, "relu", in_place=True)))
        counts = [rows * columns for rows, columns in sizes]
        whole = np.split(array(library_of(terms).concatenate(results)), np.cumsum(counts)[:-1])
        return [each.reshape(*size, 3) for each, size in zip(whole, sizes, strict=True)]

    def candidates(self, logits: np.ndarray, num_starts: int, threshold: float) -> Candidates:
        """The spans of a sequence above the threshold."""
        start, end, inside = np.moveaxis(probabilities(logits), 2, 0)
        parts: list[tuple[np.ndarray, ...]] = []
        for first, label in np.argwhere(start[:num_starts] > threshold):
            lowest = np.minimum.accumulate(inside[first:, label])
            length = np.searchsorted(-lowest, -threshold, "right")  # words in a row that are inside
            ends = first + np.flatnonzero(end[first : first + length, label] > threshold)
            score = np.minimum(np.minimum(lowest[ends - first], end[ends, label]), start[first, label])
            parts.append((np.full(len(ends), first), ends, np.full(len(ends), label), score))
        if not parts:
            return NO_CANDIDATES
        return Candidates(*map(np.concatenate, zip(*parts, strict=True)))


def probabilities(logits: np.ndarray) -> np.ndarray:
    """In the precision of the logits: spans that are certain have equal scores, as published."""
    return sigmoid(logits).astype(logits.dtype)


def _lowest_logit(threshold: float) -> float:
    """A little below the logit of a threshold."""
    with np.errstate(divide="ignore"):
        return float(np.log(threshold) - np.log1p(-threshold)) - 0.01


def _above(found: Candidates, threshold: float) -> Candidates:
    return found.chosen(found.score > threshold)


@lean
def _add_terms(starts, ends, start, end, terms):
    """``relu(start term + end term)`` of each span; (N, F)."""
    for span in range(len(start)):
        first, last = starts[start[span]], ends[end[span]]
        for k in range(terms.shape[1]):
            terms[span, k] = max(first[k] + last[k], np.float32(0))


@lean_sums
def _score_spans(starts, ends, queries, logits, scratch):
    """``relu(start term + end term) query`` of the spans of a sequence, for each label.

    Args:
        queries: (C, F + 1); the last column is added.
        logits: (starts, K, C), written up to the last word.
        scratch: (F,).
    """
    num_words, width = starts.shape
    for first in range(logits.shape[0]):
        for last in range(first, min(first + logits.shape[1], num_words)):
            for k in range(width):
                scratch[k] = max(starts[first, k] + ends[last, k], np.float32(0))
            for label in range(queries.shape[0]):
                query = queries[label]
                total = query[width]
                for k in range(width):
                    total += scratch[k] * query[k]
                logits[first, last - first, label] = total
