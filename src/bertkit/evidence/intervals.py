"""95 % intervals: how far a score may be off by the chance of which examples were drawn."""

import math
from collections.abc import Sequence

import numpy as np

Interval = tuple[float, float]
"""Low and high end."""

_Z = 1.959963984540054
"""Standard deviations that hold 95 % of a normal distribution."""

NUM_RESAMPLES = 10_000


def wilson_interval(num_correct: int, num_examples: int) -> Interval:
    """Wilson's score interval of a share (Wilson 1927; Brown, Cai & DasGupta 2001 recommend it also for few examples).

    >>> tuple(round(end, 4) for end in wilson_interval(8, 10))
    (0.4902, 0.9433)
    """
    share, spread = num_correct / num_examples, _Z**2 / num_examples
    middle = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    low, high = ((middle + side * half) / (1 + spread) for side in (-1, 1))
    return max(0.0, low), min(1.0, high)


def bootstrap_interval(values: Sequence[float] | np.ndarray, seed: int = 0) -> Interval:
    """Percentile bootstrap of a mean: the values are drawn again with replacement, NUM_RESAMPLES times (Efron 1979).

    For the difference of two models give the differences, example by example: the interval of a real one leaves out 0.
    """
    given = np.asarray(values, np.float64)
    draws = np.random.default_rng(seed).integers(len(given), size=(NUM_RESAMPLES, len(given)))
    low, high = np.percentile(given[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)
