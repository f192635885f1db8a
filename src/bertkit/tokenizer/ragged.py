"""Indices into rows of different lengths that lie end to end."""

import numpy as np


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Each start and the ``length - 1`` integers after it, end to end.

    >>> ranges(np.array([2, 9]), np.array([3, 1])).tolist()
    [2, 3, 4, 9]
    """
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
