"""Downsampling and smoothing of long series; extremes are kept."""

import numpy as np


def thin(columns: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of the points to draw for a line that looks complete: the first, last, lowest and highest of each
    column.

    Args:
        columns: (n,) the pixel column of each point, in the order of the line.
        y: (n,) finite.

    Returns:
        Ascending indices; at most four for a run of points in one column.
    """
    if len(y) == 0:
        return np.empty(0, np.int64)
    starts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 1))
    ends = np.append(starts[1:], len(y))
    run = np.repeat(np.arange(len(starts)), ends - starts)
    by_height = np.lexsort((y, run))  # within each run of points from the lowest to the highest
    return np.unique(np.concatenate([starts, ends - 1, by_height[starts], by_height[ends - 1]]))


def evenly(count: int, most: int) -> np.ndarray:
    """At most ``most`` of ``count`` indices, evenly spaced, including the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)) if count else np.arange(0)


def running_mean(y: np.ndarray, window: int) -> np.ndarray:
    """Centered running mean over ``window`` points. Near the start the window shrinks on both sides, so that a steep
    fall is not blurred; near the end on one side, so that the last points are smoothed, too. Values that are not finite
    are skipped; NaN if none remain.

    Args:
        y: (n,) float64.
        window: points; an even number counts as the next odd one.
    """
    indices = np.arange(len(y))
    half = np.minimum(window // 2, indices)
    starts, ends = indices - half, np.minimum(indices + half + 1, len(y))
    finite = np.isfinite(y)
    sums = np.append(0.0, np.cumsum(np.where(finite, y, 0.0)))
    counts = np.append(0, np.cumsum(finite))
    number = counts[ends] - counts[starts]
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums[ends] - sums[starts]) / number
