"""Average precision and the best thresholds for binary targets.

Equal scores get the same prediction. Shape letters: N pairs or texts.
"""

import numpy as np


def average_precision(targets: np.ndarray, scores: np.ndarray) -> float:
    """Average precision as in scikit-learn; NaN without a positive pair.

    Args:
        targets: (N,) 1 and 0.
        scores: (N,) higher for likely positives.
    """
    right, called = _cumulated(targets, scores)
    if not len(right) or not right[-1]:
        return float("nan")
    return float((np.diff(right, prepend=0) / right[-1] * (right / called)).sum())


def best_threshold(targets: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """The threshold with the best F1, midway between neighboring scores, with its precision, recall and F1; and the
    best accuracy of any threshold. NaN without pairs.

    Args:
        targets: (N,) 1 and 0.
        scores: (N,) higher for likely positives.
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


def best_label_threshold(targets: np.ndarray, probabilities: np.ndarray) -> float:
    """The threshold of the best F1 of a label, midway between neighboring probabilities, the one nearest to 0.5 of
    several; 0.5 if no or all texts have the label.

    Args:
        targets: (N,) bool.

    >>> best_label_threshold(np.array([True, False, True, False]), np.array([0.4, 0.1, 0.3, 0.2]))
    0.25
    """
    if targets.all() or not targets.any():
        return 0.5
    right, called = _cumulated(targets, probabilities)
    f1, levels = 2 * right / (called + right[-1]), np.unique(probabilities)[::-1]
    middles = (levels + np.append(levels[1:], 0.0)) / 2
    candidates = middles[f1 == f1.max()]
    return float(candidates[np.abs(candidates - 0.5).argmin()])


def _cumulated(targets: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each distinct score, in descending order: the numbers of positives and of pairs with at least this score."""
    _, inverse = np.unique(-scores, return_inverse=True)
    called = np.bincount(inverse).cumsum()
    return np.bincount(inverse, weights=targets).cumsum(), called
