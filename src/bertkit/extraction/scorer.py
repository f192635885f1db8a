"""Scores of spans and words for labels.

Shape letters: W words, D width of the scorer, C labels, K longest span in words.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bertkit.compiled import lean_sums
from bertkit.extraction.candidates import NO_CANDIDATES, Candidates
from bertkit.extraction.layers import LABELS, SPANS, TOKENS, Layers

_ROWS_AT_ONCE = 1024
"""Pairs of a word and a label, or spans, that are computed at a time."""

_MANY_LABELS = 64
"""Labels of all texts from which spans are multiplied with all at once."""


class Scorer(Protocol):
    """Scores of a model."""

    def words(self, words: Tensor) -> list[Tensor]:
        """(W, D) words to what their scores need, each with W rows."""
        ...

    def labels(self, labels: Tensor) -> list[Tensor]:
        """(C, D) labels to what their scores need, each with C rows."""
        ...

    def shared_labels(self, labels: Tensor) -> list[Any]:
        """The same for labels that are those of all texts, to be used whole."""
        ...

    def logits(self, words: Sequence[Tensor], labels: Sequence[Any], num_starts: int) -> np.ndarray:
        """Logits of the words of a sequence, of which ``num_starts`` begin spans."""
        ...

    def candidates(self, logits: np.ndarray, num_starts: int, threshold: float) -> Candidates:
        """The spans above the threshold."""
        ...


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
        self._of_label = layers.product(torch.cat([last.T, bias[None]]))

    def words(self, words: Tensor) -> list[Tensor]:
        """(W, 4 D) terms of a word as the first and as the last of a span."""
        sides = ((self._of_start, "project_start"), (self._of_end, "project_end"))
        return [product(self.layers.twice(SPANS + name, words).relu_()).cpu() for product, name in sides]

    def labels(self, labels: Tensor) -> list[Tensor]:
        """(C, 4 D + 1): what the terms of spans are multiplied with, and added."""
        return [self.queries(self.layers.twice(LABELS, labels))]

    def queries(self, vectors: Tensor) -> Tensor:
        """(C, 4 D + 1): what the terms of spans are multiplied with, and added, from (C, D) vectors to compare with."""
        return self._of_label(vectors).cpu()

    def shared_labels(self, labels: Tensor) -> list[Any]:
        """As `labels`; or if there are many, a product of the vectors of spans with all of them."""
        if len(labels) < _MANY_LABELS:
            return self.labels(labels)
        return [self.layers.product(self.layers.twice(LABELS, labels)), len(labels)]

    def vectors(self, words: Sequence[Tensor], start: Tensor, end: Tensor) -> Tensor:
        """(N, D) vectors of spans, by their first and last word."""
        terms = torch.index_select(words[0], 0, start).add_(torch.index_select(words[1], 0, end)).relu_()
        return self._last(terms.to(self.layers.device))

    def logits(self, words: Sequence[Tensor], labels: Sequence[Any], num_starts: int) -> np.ndarray:
        """(starts, K, C); -inf beyond the last word."""
        if len(labels) > 1:
            return self._many_logits(words, labels[0], labels[1], num_starts)
        starts, ends, queries = words[0].numpy(), words[1].numpy(), labels[0].numpy()
        logits = np.full((num_starts, self.max_width, len(queries)), -np.inf, starts.dtype)
        _score_spans(starts, ends, queries, logits, np.empty(starts.shape[1], starts.dtype))
        return logits

    def _many_logits(self, words: Sequence[Tensor], product: Any, num_labels: int, num_starts: int) -> np.ndarray:
        ends = words[1]
        logits = np.full((num_starts * self.max_width, num_labels), -np.inf, ends.numpy().dtype)
        span = torch.arange(num_starts * self.max_width)
        start, end = span // self.max_width, span // self.max_width + span % self.max_width
        for part in span[end < len(ends)].split(_ROWS_AT_ONCE):
            logits[part.numpy()] = product(self.vectors(words, start[part], end[part])).cpu().numpy()
        return logits.reshape(num_starts, self.max_width, num_labels)

    def candidates(self, logits: np.ndarray, num_starts: int, threshold: float) -> Candidates:
        """As `Scorer.candidates`."""
        start, width, label = np.nonzero(logits > _logit(threshold) - 0.01)
        score = sigmoid(logits[start, width, label])
        found = Candidates(start, start + width, label, score)
        return found.chosen(score > threshold)


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

    def words(self, words: Tensor) -> list[Tensor]:
        """(W, 4 D) terms, (W, D) factors."""
        return self._terms("proj_token", words, self._of_word)

    def labels(self, labels: Tensor) -> list[Tensor]:
        """(C, 4 D) terms, (C, D) factors."""
        if f"{LABELS}.0.weight" in self.layers.values:  # of a model that relates entities
            labels = self.layers.twice(LABELS, labels)
        return self._terms("proj_label", labels, self._of_label)

    def shared_labels(self, labels: Tensor) -> list[Any]:
        """As `labels`."""
        return self.labels(labels)

    def _terms(self, name: str, rows: Tensor, product: Any) -> list[Tensor]:
        first, second = self.layers.linear(TOKENS + name)(rows).chunk(2, dim=1)
        return [product(first.contiguous()), second.contiguous()]

    def logits(self, words: Sequence[Tensor], labels: Sequence[Any], num_starts: int) -> np.ndarray:
        """(W, C, 3)."""
        (terms, factors), (label_terms, label_factors) = words, labels
        num_labels, parts = len(label_terms), []
        for index in torch.arange(len(terms) * num_labels, device=terms.device).split(_ROWS_AT_ONCE):
            word, label = index // num_labels, index % num_labels
            both = self._of_both(factors[word] * label_factors[label], residual=terms[word] + label_terms[label])
            parts.append(self.layers.linear(f"{TOKENS}out_mlp.3")(both.relu_()))
        return torch.cat(parts).cpu().numpy().reshape(len(terms), num_labels, 3)

    def candidates(self, logits: np.ndarray, num_starts: int, threshold: float) -> Candidates:
        """As `Scorer.candidates`."""
        start, end, inside = np.moveaxis(sigmoid(logits), 2, 0)
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


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """In the precision of the logits: spans that are certain have equal scores, as published."""
    return (1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -700, 700)))).astype(logits.dtype)


def _logit(probability: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(probability) - np.log1p(-probability))


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
