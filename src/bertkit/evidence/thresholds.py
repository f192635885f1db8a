"""Decision thresholds of labels: the threshold with the best F1, and its held-out F1.

The F1 of a threshold on the examples it was chosen on is too optimistic. The F1 reported here is of thresholds chosen
on one half of the examples and measured on the other, both ways.
"""

from dataclasses import dataclass

import numpy as np

from bertkit.evidence.outcomes import Outcomes
from bertkit.tasks.metrics import ratio
from bertkit.tasks.thresholds import best_label_threshold


@dataclass(frozen=True)
class Threshold:
    """The threshold of one label."""

    label: str
    in_use: float  # the model's current threshold; 0.5 for two labels
    f1_in_use: float
    best: float  # on all examples, for future use
    f1_held_out: float | None  # with thresholds chosen on the other half; None: a half has no example of the label


def thresholds_of(outcomes: Outcomes) -> list[Threshold] | None:
    """Thresholds of every label of multi-label tasks, or of the second of two classes; None for other tasks."""
    names, probabilities = outcomes.names, outcomes.probabilities
    if probabilities is None or names is None or outcomes.was_read is not None:
        return None
    if outcomes.has_several:
        in_use = outcomes.task.thresholds or (0.5,) * len(names)
        columns = zip(names, in_use, outcomes.targets.T, probabilities.T, strict=True)
    elif len(names) == 2:
        columns = [(names[1], 0.5, outcomes.targets == 1, probabilities[:, 1])]
    else:
        return None
    return [_threshold(*column, outcomes.in_first_half) for column in columns]


def _threshold(label: str, in_use: float, has: np.ndarray, probability: np.ndarray, first: np.ndarray) -> Threshold:
    held_out = None
    if has[first].any() and has[~first].any():
        decided = np.empty(len(has), np.bool_)
        for half in (first, ~first):
            decided[half] = probability[half] >= best_label_threshold(has[~half], probability[~half])
        held_out = _f1(has, decided)
    best = best_label_threshold(has, probability)
    return Threshold(label, in_use, _f1(has, probability >= in_use), best, held_out)


def _f1(has: np.ndarray, decided: np.ndarray) -> float:
    return float(ratio(2 * (has & decided).sum(), has.sum() + decided.sum()))
