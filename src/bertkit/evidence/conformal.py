"""Thresholds with a promise that holds on average over random draws of the calibration rows and of a new row from one
distribution: conformal risk control.

Recall: Angelopoulos et al. 2022, "Conformal Risk Control"; it holds for any model.

Share of wrong answers among all answers: it may fall and rise with the threshold, which the proof does not cover. The
same correction is used at the lowest threshold that needs no other (Angelopoulos 2026, "Conformal Risk Control for
Non-Monotonic Losses": the deviation depends on how much one row changes the threshold). With some hundred rows and a
share that the model reaches well, it is within two points; near the smallest share that the model reaches, what is
accepted was lucky in the draw, and the share of new rows is larger.

Shape letters: N rows, M items.
"""

import math
from typing import NamedTuple

import numpy as np

from bertkit.errors import DataError


class Answers(NamedTuple):
    """What a model would answer at the lowest threshold; answers of one row are not independent."""

    confidence: np.ndarray  # (M,) from 0 to 1
    is_wrong: np.ndarray  # (M,) bool
    row_of: np.ndarray  # (M,) int64

    def of_rows(self, rows: np.ndarray) -> "Answers":
        """The answers of some rows."""
        chosen = np.isin(self.row_of, rows)
        return Answers(*(values[chosen] for values in self))


def answers_needed(risk: float) -> int:
    """Minimum number of answers, none of which is wrong, from which a risk can be promised.

    >>> answers_needed(0.05), answers_needed(0.1)
    (19, 9)
    """
    return math.ceil(round((1 - risk) / risk, 9))


def answers_threshold(answers: Answers, risk: float) -> float | None:
    """The lowest threshold at which at most a share ``risk`` of the answers, those with a confidence above it, is
    wrong, if one more row has as many answers as any, all wrong; None: at no threshold."""
    order = np.argsort(-answers.confidence, kind="stable")
    confidence, is_wrong, row_of = (values[order] for values in answers)
    by_row = np.argsort(row_of, kind="stable")
    number = np.empty(len(order), np.int64)  # of each answer among those of its row
    number[by_row] = 1 + np.arange(len(order)) - np.searchsorted(row_of[by_row], row_of[by_row])
    excess = np.cumsum(is_wrong - risk) + (1 - risk) * np.maximum.accumulate(number)
    is_last = np.append(confidence[1:] < confidence[:-1], True)[: len(order)]  # of equal ones
    kept = np.flatnonzero(is_last & (excess < 1e-9))
    if not len(kept):
        return None
    below = confidence[kept[-1] + 1 :]
    return float(below[0]) if len(below) else 0.0


def recall_threshold(scores: np.ndarray, row_of: np.ndarray, num_rows: int, recall: float) -> float:
    """The highest threshold at which items that are found with a score above it are at least a share ``recall`` of all
    items of a new row, summed over rows. The new row is assumed to have no more items than the longest one here.

    Args:
        scores: (M,) of the items of the rows, from 0 to 1; -1 for an item that is not found at any threshold.
        row_of: (M,) index of the row of each item, below ``num_rows``; rows are drawn independently, items are not.

    Raises:
        DataError: too few items, or too many that are not found at any threshold.
    """
    counts = np.bincount(row_of, minlength=num_rows)
    most, risk = int(counts.max(initial=1)), 1 - recall
    needed = math.ceil(round(recall * most / risk, 9))
    if len(scores) < needed:
        raise DataError(
            f"{len(scores)} labeled items, up to {most} in a row: a recall of {recall:g} needs at least {needed}; give "
            "more rows or promise less"
        )
    allowed = math.floor(round(risk * len(scores) - recall * most, 9))  # missed items
    missing = int((scores < 0).sum())
    if missing > allowed:
        raise DataError(
            f"the model misses {missing} of {len(scores)} items at any threshold: a recall of {recall:g} allows "
            f"{allowed}; promise less, or train the model on such texts"
        )
    ordered = np.sort(scores)
    at_most = ordered[allowed]  # not missed itself: items with a higher score, or with this one, are found
    below = ordered[ordered < at_most]
    return max(0.0, float(below[-1])) if len(below) else 0.0
