"""95 % confidence intervals of scores under resampling of the examples."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.errors import UsageError
from bertkit.tasks.scoring import Scoring

Interval = tuple[float, float]
"""Lower and upper bound."""

_Z = 1.959963984540054
"""Number of standard deviations that cover 95 % of a normal distribution."""

NUM_RESAMPLES = 10_000
NUM_SCORE_RESAMPLES = 2_000
"""For scores that are not means and take longer to compute."""

_ENDS = (2.5, 97.5)
_DRAWS_AT_ONCE = 2**22
_MANY_ALIKE = 8  # examples per distinct row


@dataclass(frozen=True)
class Measured:
    """A score with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def wilson_interval(num_correct: int, num_examples: int) -> Interval:
    """Wilson score interval of a proportion (Wilson 1927; Brown, Cai & DasGupta 2001 recommend it also for few
    examples).

    Raises:
        UsageError: no examples, or more correct ones than examples.

    >>> tuple(round(end, 4) for end in wilson_interval(8, 10))
    (0.4902, 0.9433)
    """
    if not 0 <= num_correct <= num_examples or num_examples < 1:
        raise UsageError(f"{num_correct} of {num_examples} examples are correct: expected 0 to all of at least one")
    share, spread = num_correct / num_examples, _Z**2 / num_examples
    middle = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    low, high = ((middle + side * half) / (1 + spread) for side in (-1, 1))
    return max(0.0, low), min(1.0, high)


def bootstrap_interval(values: Sequence[float] | np.ndarray, seed: int = 0) -> Interval:
    """Percentile bootstrap of a mean, with NUM_RESAMPLES resamples (Efron 1979).

    For two models, pass the differences for each example: the interval of a real difference excludes 0.

    Raises:
        UsageError: no values.
    """
    given, random = np.asarray(values, np.float64), np.random.default_rng(seed)
    if not len(given):
        raise UsageError("an interval of a mean needs values: expected at least one")
    means = [
        given[random.integers(len(given), size=(number, len(given)))].mean(axis=1)
        for number in _portions(NUM_RESAMPLES, len(given))
    ]
    low, high = np.percentile(np.concatenate(means), _ENDS)
    return float(low), float(high)


def measured_mean(values: np.ndarray) -> Measured:
    """The mean of (n,) values of examples, with its `bootstrap_interval`."""
    return Measured(float(values.mean()), *bootstrap_interval(values))


def bootstrap_scores(scoring: Scoring, rows: np.ndarray) -> dict[str, Measured]:
    """Percentile bootstrap of scores, with NUM_SCORE_RESAMPLES resamples of the examples.

    Args:
        rows: (N, K) rows of the examples, from ``scoring``.
    """
    different, times = _different(rows)
    draws = [scoring.results(different, weights) for weights in _weights(times)]
    return _measured(scoring.results(different, times[None]), draws)


def bootstrap_difference(scoring: Scoring, rows: np.ndarray, other_rows: np.ndarray) -> dict[str, Measured]:
    """Paired bootstrap of the scores of one model minus those of another on the same examples, with the same resamples
    for both: the interval of a real difference excludes 0."""
    both, times = _different(np.concatenate([rows, other_rows], axis=1))

    def difference(weights: np.ndarray) -> dict[str, np.ndarray]:
        first, second = (scoring.results(part, weights) for part in np.split(both, 2, axis=1))
        return {name: first[name] - second[name] for name in first}

    return _measured(difference(times[None]), [difference(weights) for weights in _weights(times)])


def bootstrap_f1(scoring: Scoring, rows: np.ndarray) -> np.ndarray:
    """(2, C) lower and upper bound of the F1 of each label."""
    different, times = _different(rows)
    draws = []
    for weights in _weights(times):
        correct, true, predicted = scoring.counts(different, weights)
        draws.append(2 * correct / np.maximum(true + predicted, 1))
    return np.percentile(np.concatenate(draws), _ENDS, axis=0)


def _different(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(G, K) distinct rows, and (G,) float64 count of each."""
    different, times = np.unique(rows, axis=0, return_counts=True)
    return different, times.astype(np.float64)


def _weights(times: np.ndarray) -> Iterator[np.ndarray]:
    """(R, G) float64 count of each row in samples of the original size.

    Counts are drawn from a multinomial distribution, whose cost grows with the number of distinct rows; if most rows
    are distinct, drawing indices is faster.
    """
    random, number, num_rows = np.random.default_rng(0), int(times.sum()), len(times)
    row_of = np.repeat(np.arange(num_rows), times.astype(np.int64))
    for size in _portions(NUM_SCORE_RESAMPLES, num_rows):
        if _MANY_ALIKE * num_rows < number:
            yield random.multinomial(number, times / number, size=size).astype(np.float64)
        else:
            draws = (row_of[random.integers(number, size=number)] for _ in range(size))
            yield np.stack([np.bincount(drawn, minlength=num_rows) for drawn in draws]).astype(np.float64)


def _portions(num_draws: int, size: int) -> Iterator[int]:
    """The number of bootstrap samples to draw at once, in bounded memory."""
    most = max(1, _DRAWS_AT_ONCE // size)
    while num_draws:
        yield min(most, num_draws)
        num_draws -= min(most, num_draws)


def _measured(values: dict[str, np.ndarray], draws: list[dict[str, np.ndarray]]) -> dict[str, Measured]:
    results = {}
    for name, value in values.items():
        drawn = np.concatenate([draw[name] for draw in draws])
        drawn = drawn[~np.isnan(drawn)]  # such as the correlation of a sample of equal numbers
        low, high = np.percentile(drawn, _ENDS) if len(drawn) else (math.nan, math.nan)
        results[name] = Measured(float(value[0]), float(low), float(high))
    return results
