"""Thresholds with a promise.

Recall: conformal risk control (Angelopoulos et al. 2022, "Conformal Risk Control"). It holds on average over random
draws of the calibration rows and of a new row from one distribution, whatever the model.

Share of wrong answers among all answers: it may fall and rise with the threshold, so several thresholds are tested
(Angelopoulos et al. 2021, "Learn then Test", split fixed sequence testing). For one answer a row the test is that of
Clopper and Pearson, as in selective classification (Geifman and El-Yaniv 2017). The promise holds with a probability of
CONFIDENCE over random draws of the calibration rows.

Shape letters: N rows, M items.
"""

import math
from typing import NamedTuple

import numpy as np

from bertkit.errors import DataError

CONFIDENCE = 0.9
"""Probability, over random draws of the calibration rows, that a promise about answers holds."""

_NUM_CANDIDATES = 100
"""Thresholds that are tested."""


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
    (45, 22)
    """
    return math.ceil(round(math.log(1 - CONFIDENCE) / math.log1p(-risk), 9))


def answers_threshold(first: Answers, second: Answers, risk: float) -> float | None:
    """The lowest threshold found at which at most a share ``risk`` of the answers, those with a confidence above it, is
    wrong; None: at no threshold.

    Args:
        first: answers, at least one, that say which thresholds to test, and in which order: those that look best first.
        second: answers to other rows, on which thresholds are tested until one fails.
    """
    candidates = np.unique(np.quantile(first.confidence, np.arange(_NUM_CANDIDATES) / _NUM_CANDIDATES, method="lower"))
    candidates = np.append(0.0, candidates[candidates > 0])
    order = np.argsort([_outlook(first, len(second.confidence), each, risk) for each in candidates], kind="stable")
    passed = list[float]()
    for threshold in candidates[order]:
        if _p_value(second, threshold, risk) > 1 - CONFIDENCE:
            break
        passed.append(float(threshold))
    return min(passed, default=None)


def _outlook(first: Answers, num_others: int, threshold: float, risk: float) -> float:
    """Low if a threshold is likely to pass the test on others: the sum of the logarithms of the p-value here, and that
    of others that are wrong as often as they doubt, corrected by the share of wrong answers here."""
    doubt, given = 1 - first.confidence, first.confidence > threshold
    number = int(given.sum()) * num_others // len(given)
    if not number:
        return 0.0
    share = doubt[given].mean() * first.is_wrong.mean() / max(doubt.mean(), 1e-9)
    expected = binomial_tail(int(share * number), number, risk)
    return sum(math.log(max(each, 1e-300)) for each in (_p_value(first, threshold, risk), expected))


def _p_value(answers: Answers, threshold: float, risk: float) -> float:
    """How likely so few wrong answers are if a share ``risk`` is wrong: by the binomial distribution, and if rows have
    several answers, also by the normal distribution of sums over many rows; the larger one."""
    given = answers.confidence > threshold
    is_wrong, row_of = answers.is_wrong[given], answers.row_of[given]
    number, num_wrong = len(is_wrong), int(is_wrong.sum())
    result = binomial_tail(num_wrong, number, risk)
    if number and np.bincount(row_of).max() > 1:
        excess = np.bincount(row_of, is_wrong - risk)[np.unique(row_of)]
        deviation = math.sqrt(float((excess**2).sum()))
        result = max(result, math.erfc(-float(excess.sum()) / deviation / math.sqrt(2)) / 2 if deviation else 1.0)
    return result


def binomial_tail(most: int, number: int, share: float) -> float:
    """Probability that at most ``most`` of ``number`` independent events with a probability ``share`` occur.

    >>> round(binomial_tail(1, 3, 0.5), 9)
    0.5
    """
    if most >= number:
        return 1.0
    steps = np.log((number - np.arange(most)) / np.arange(1, most + 1)) + math.log(share) - math.log1p(-share)
    logs = number * math.log1p(-share) + np.append(0.0, np.cumsum(steps))
    highest = float(logs.max())
    return min(1.0, math.exp(highest) * float(np.exp(logs - highest).sum()))


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
