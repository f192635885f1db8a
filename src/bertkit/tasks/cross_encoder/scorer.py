"""Metrics of a cross-encoder over scored pairs, pairs of 0 and 1, and queries with several texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertkit.tasks.examples import TextSet
from bertkit.tasks.metrics import ratio
from bertkit.tasks.text_sets import pair_results

Kind = Literal["lists", "scores", "binary"]
"""Kinds of examples: queries with positives and negatives; texts with scores; pairs with 0 and 1."""
_NUM_FIRST = 10
_OF_LISTS = ("ndcg_at_10", "mrr", "recall_at_1")


@dataclass(frozen=True)
class TextScores:
    """The score of each text of a query, positives first."""

    scores: tuple[float, ...]


class ScoredTexts:
    """Metrics of a cross-encoder; see `Scorer`.

    For scores: Pearson's and Spearman's correlation. For 0 and 1: average precision, and the best threshold with its F1
    and accuracy. For lists, averaged over queries: ``ndcg_at_10``; ``mrr``, the reciprocal rank of the best positive;
    ``recall_at_1``, whether it is first; ties count against it.
    """

    def __init__(self, kind: Kind, targets: Callable[[TextSet], Sequence[float]]) -> None:
        self._kind, self._targets_of = kind, targets
        self._targets: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []

    def add(self, examples: Sequence[TextSet], predictions: Sequence[TextScores]) -> None:
        for row, prediction in zip(examples, predictions, strict=True):
            targets = np.array(self._targets_of(row), np.float64)
            if self._kind == "binary" and not np.isin(targets, (0, 1)).all():
                raise row.error(f"its score is {targets[0]:g}: expected 0 or 1")
            self._targets.append(targets)
            self._scores.append(np.array(prediction.scores, np.float64))

    def results(self) -> dict[str, float]:
        if self._kind != "lists":
            targets, scores = (np.concatenate(parts or [np.empty(0)]) for parts in (self._targets, self._scores))
            return pair_results(targets, scores, is_binary=self._kind == "binary")
        return {name: float(np.mean(values)) if values else float("nan") for name, values in self.values().items()}

    def values(self) -> dict[str, list[float]]:
        """Metrics that are means over queries, with the value of each query; {} for scored pairs."""
        if self._kind != "lists":
            return {}
        rows = [_of_list(*row) for row in zip(self._targets, self._scores, strict=True) if row[0].max() > 0]
        return {name: [row[number] for row in rows] for number, name in enumerate(_OF_LISTS)}


def _of_list(targets: np.ndarray, scores: np.ndarray) -> tuple[float, float, float]:
    """nDCG@10, reciprocal rank, and 1 if a positive is first."""
    order = np.lexsort((targets, -scores))  # ties: the worse text first
    discounts = 1 / np.log2(np.arange(2, len(targets) + 2))[:_NUM_FIRST]
    top = targets.max()  # gains are divided by 2**top, as those of grades above 1,023 would be infinite
    gained, ideal = ((np.exp2(np.maximum(kept[:_NUM_FIRST], 0) - top) - np.exp2(-top)) @ discounts for kept in
                     (targets[order], np.sort(targets)[::-1]))  # fmt: skip
    first = int(np.flatnonzero(targets[order] > 0)[0])
    return float(ratio(gained, ideal)), 1 / (1 + first), float(first == 0)
