"""Thresholds with a promise, by conformal risk control.

Angelopoulos et al. 2022, "Conformal Risk Control". The promise is about the average over random draws of the
calibration rows and of a new row from one distribution, whatever the model. Shape letters: N rows, M items.
"""

import math

import numpy as np

from bertkit.errors import DataError


def rows_needed(risk: float) -> int:
    """Minimum number of rows from which a risk can be promised.

    >>> rows_needed(0.05), rows_needed(0.1)
    (19, 9)
    """
    return math.ceil(round(1 / risk, 9)) - 1


def error_threshold(confidence: np.ndarray, is_wrong: np.ndarray, error: float) -> float:
    """The lowest threshold at which an answer that is given for confidence above it is wrong in at most a share
    ``error`` of all rows: at most ``error * (N + 1) - 1`` wrong answers in the calibration rows.

    Args:
        confidence: (N,) from 0 to 1.
        is_wrong: (N,) bool.

    Raises:
        DataError: too few rows.
    """
    num_rows = len(confidence)
    _check_number(num_rows, error, "rows")
    allowed = math.floor(round(error * (num_rows + 1), 9)) - 1
    of_wrong = np.sort(confidence[is_wrong])[::-1]
    return 0.0 if len(of_wrong) <= allowed else float(of_wrong[allowed])


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


def _check_number(number: int, risk: float, what: str) -> None:
    if number < (needed := rows_needed(risk)):
        raise DataError(f"{number} {what}: a promise of {risk:g} needs at least {needed}; give more, or promise less")
