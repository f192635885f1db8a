"""Metrics by name, from counts of labels or from weighted pairs of numbers.

They equal scikit-learn's and scipy's, also for a zero denominator: F1 and Matthews coefficient are then 0, and a
correlation with a constant is NaN. Shape letters: R draws of the same examples, G pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bertkit.errors import UsageError

_CONSTANT = 1e-28
"""Relative variance below which numbers are constant up to rounding."""


@dataclass(frozen=True)
class Metric:
    """Facts about a metric that comparisons and printed lines depend on."""

    higher_is_better: bool = True
    is_share: bool = True  # from 0 to 1, and printed in percent


_CORRELATIONS = ("pearson", "spearman", "matthews", "mean_cosine")
_ERRORS = ("loss", "mean_squared_error", "mean_absolute_error", "vector_error", "perplexity", "masked_lm_loss",
           "masked_lm_perplexity", "next_sentence_loss")  # fmt: skip

METRICS: dict[str, Metric] = {
    **dict.fromkeys(("accuracy", "macro_f1", "micro_f1", "f1", "precision", "recall", "token_accuracy"), Metric()),
    **dict.fromkeys(("masked_lm_accuracy", "next_sentence_accuracy"), Metric()),
    **dict.fromkeys(("exact_match", "answerable_exact_match", "answerable_f1", "unanswerable_accuracy"), Metric()),
    **dict.fromkeys(("average_precision", "best_f1", "mrr", "ndcg_at_10", "recall_at_1", "triplet_accuracy"), Metric()),
    **dict.fromkeys(_CORRELATIONS, Metric(is_share=False)),
    **dict.fromkeys(_ERRORS, Metric(higher_is_better=False, is_share=False)),
}
"""Metrics that can select weights, by name; a task with others adds them."""


def metric_of(name: str) -> Metric:
    """The facts about a metric.

    Raises:
        UsageError: a name that is not in METRICS.
    """
    if name not in METRICS:
        raise UsageError(f"metric {name!r}: expected one of {', '.join(METRICS)}; add others to bertkit.tasks.METRICS")
    return METRICS[name]


class LabelScore(NamedTuple):
    """The scores of one label or entity type."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int  # number of times it is the true label


def class_results(correct: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """(...) ``accuracy``, equal to micro F1; ``macro_f1``, the mean over occurring labels; ``matthews``; for two labels
    also ``f1``, that of the second.

    Args:
        correct, true, predicted: (..., C) counts of each label: correctly predicted, true, predicted.
    """
    f1 = ratio(2 * correct, true + predicted)
    results = {
        "accuracy": ratio(correct.sum(-1), true.sum(-1)),
        "macro_f1": _mean_where(f1, true + predicted > 0),
        "matthews": _matthews(correct, true, predicted),
    }
    if correct.shape[-1] == 2:
        results["f1"] = f1[..., 1]
    return results


def several_results(correct: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """(...) ``micro_f1``, over all decisions, and ``macro_f1``, the mean over labels; counts as in `class_results`."""
    return {
        "micro_f1": ratio(2 * correct.sum(-1), true.sum(-1) + predicted.sum(-1)),
        "macro_f1": ratio(2 * correct, true + predicted).mean(-1),
    }


def number_results(targets: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """(R,) Pearson's and Spearman's correlation, mean squared and absolute error of (G,) pairs with (R, G) weights."""
    apart, number = predicted - targets, weights.sum(axis=1)
    return {
        "pearson": _correlation(weights, targets[None], predicted[None]),
        "spearman": _correlation(weights, _ranks(targets, weights), _ranks(predicted, weights)),
        "mean_squared_error": ratio(weights @ apart**2, number),
        "mean_absolute_error": ratio(weights @ np.abs(apart), number),
    }


def spearman(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """Spearman's rank correlation of n pairs; NaN for fewer than two, or if one side is constant."""
    if len(first) < 2:
        return float("nan")
    weights = np.ones((1, len(first)))
    return float(_correlation(weights, *(_ranks(np.asarray(values), weights) for values in (first, second)))[0])


def entity_results(correct: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """(...) ``f1``, ``precision`` and ``recall`` over all entities; ``macro_f1``, the mean over the types that occur.

    Args:
        correct, true, predicted: (..., types) counts as in `class_results`.
    """
    num_correct, num_true, num_predicted = (counts.sum(-1) for counts in (correct, true, predicted))
    return {
        "f1": ratio(2 * num_correct, num_true + num_predicted),
        "precision": ratio(num_correct, num_predicted),
        "recall": ratio(num_correct, num_true),
        "macro_f1": _mean_where(ratio(2 * correct, true + predicted), true + predicted > 0),
    }


def _matthews(correct: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Matthews correlation of C labels (Gorodkin 2004)."""
    correct, true, predicted = (counts.astype(np.float64) for counts in (correct, true, predicted))
    number = true.sum(-1)
    spread_true, spread_predicted = number**2 - (true**2).sum(-1), number**2 - (predicted**2).sum(-1)
    shared = correct.sum(-1) * number - (true * predicted).sum(-1)
    return ratio(shared, np.sqrt(spread_true) * np.sqrt(spread_predicted))


def _mean_where(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Mean of the kept values over the last axis, 0 if there are none."""
    return ratio((values * kept).sum(-1), kept.sum(-1))


def _correlation(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(R,) Pearson correlation of weighted (R or 1, G) values; NaN if one is constant."""
    number = weights.sum(axis=1, keepdims=True)
    moved = [values - ratio((weights * values).sum(axis=1, keepdims=True), number) for values in (x, y)]
    (x_spread, both), (_, y_spread) = [[(weights * a * b).sum(axis=1) for b in moved] for a in moved]
    sizes = [(weights * values**2).sum(axis=1) for values in (x, y)]
    varies = (x_spread > _CONSTANT * sizes[0]) & (y_spread > _CONSTANT * sizes[1])
    results = np.divide(both, np.sqrt(x_spread * y_spread), out=np.full(len(both), np.nan), where=varies)
    return np.clip(results, -1.0, 1.0)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(R, G) ranks of (G,) values that occur with the multiplicities (R, G) weights; equal values get their mean
    rank."""
    different, index = np.unique(values, return_inverse=True)
    order = np.argsort(index, kind="stable")
    starts = np.searchsorted(index[order], np.arange(len(different)))
    number = np.add.reduceat(weights[:, order], starts, axis=1)  # (R, different values)
    return (np.cumsum(number, axis=1) - (number - 1) / 2)[:, index]


def ratio(part: ArrayLike, whole: ArrayLike) -> np.ndarray:
    """``part / whole``, 0 if ``whole`` is 0."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


def label_scores(
    names: Sequence[str], correct: np.ndarray, true: np.ndarray, predicted: np.ndarray
) -> list[LabelScore]:
    """Scores of labels from (n,) counts."""
    rows = zip(
        names,
        ratio(correct, predicted).tolist(),
        ratio(correct, true).tolist(),
        ratio(2 * correct, true + predicted).tolist(),
        true.tolist(),
        strict=True,
    )
    return [LabelScore(*row) for row in rows]
