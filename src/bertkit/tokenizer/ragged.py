"""Indices of concatenated ranges (ragged arrays)."""

import numpy as np


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenated ranges of ``length`` integers from each start.

    >>> ranges(np.array([2, 9]), np.array([3, 1])).tolist()
    [2, 3, 4, 9]
    """
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
