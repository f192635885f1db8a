"""Scores of pairs that belong together, 1, or not, 0: average precision, and the threshold that tells them apart best.

Pairs with equal scores are called alike. N pairs.
"""

import numpy as np


def average_precision(targets: np.ndarray, scores: np.ndarray) -> float:
    """The mean over steps of recall of the precision reached there, as scikit-learn's; NaN without a 1.

    Args:
        targets: (N,) 1 and 0.
        scores: (N,) higher for pairs that are rather 1.
    """
    right, called = _cumulated(targets, scores)
    if not len(right) or not right[-1]:
        return float("nan")
    return float((np.diff(right, prepend=0) / right[-1] * (right / called)).sum())


def best_threshold(targets: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """The threshold with the best F1, midway between the scores around it; precision, recall and F1 there; and the
    best accuracy of any threshold. NaN without pairs.

    Args:
        targets: (N,) 1 and 0.
        scores: (N,) higher for pairs that are rather 1.
    """
    names = ("threshold", "f1", "precision", "recall", "accuracy")
    right, called = _cumulated(targets, scores)
    if not len(right):
        return dict.fromkeys(names, float("nan"))
    num_ones, num_pairs = max(right[-1], 1), len(targets)
    f1 = 2 * right / (called + num_ones)
    accuracy = (right + (num_pairs - called) - (right[-1] - right)) / num_pairs
    best, levels = int(f1.argmax()), np.unique(scores)[::-1]
    below = levels[best + 1] if best + 1 < len(levels) else levels[best]
    values = ((levels[best] + below) / 2, f1[best], right[best] / called[best], right[best] / num_ones,
              max(accuracy.max(), 1 - right[-1] / num_pairs))  # fmt: skip
    return dict(zip(names, map(float, values), strict=True))


def _cumulated(targets: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each different score, from the highest: how many 1s, and how many pairs, have it or more."""
    _, inverse = np.unique(-scores, return_inverse=True)
    called = np.bincount(inverse).cumsum()
    return np.bincount(inverse, weights=targets).cumsum(), called
