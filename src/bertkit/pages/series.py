"""Long series made short for the eye, honestly: extremes are kept, and averages say what they are."""

import numpy as np


def thin(columns: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which points to draw so that the line looks as if all were drawn: of each column the first, the last, the lowest
    and the highest.

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
    """At most ``most`` of ``count`` indices, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)) if count else np.arange(0)


def running_mean(y: np.ndarray, window: int) -> np.ndarray:
    """The mean of ``window`` points around each. Near the start of fewer, as many on both sides, so that a fall there
    is not blurred; near the end of those there are, so that the last points are not raw. Points that are not finite are
    left out, and NaN stands where none are left.

    Args:
        y: (n,) float64.
        window: points; an even number counts as the next odd one.
    """
    places = np.arange(len(y))
    half = np.minimum(window // 2, places)
    starts, ends = places - half, np.minimum(places + half + 1, len(y))
    finite = np.isfinite(y)
    sums = np.append(0.0, np.cumsum(np.where(finite, y, 0.0)))
    counts = np.append(0, np.cumsum(finite))
    number = counts[ends] - counts[starts]
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums[ends] - sums[starts]) / number
