"""Threshold communities: rows around a central row, like sentence-transformers' community_detection, in bounded
memory."""

import numpy as np

from bertkit.errors import UsageError
from bertkit.neighbors.close_pairs import Vectors
from bertkit.neighbors.pairs import check_threshold

_CENTERS_AT_ONCE = 256


def communities(vectors: np.ndarray, threshold: float = 0.75, min_size: int = 10) -> list[np.ndarray]:
    """Groups of rows whose dot product with a central row is at least the threshold, larger groups first.

    The greedy rule of sentence-transformers (util/retrieval.py, version 6.2): rows are visited in descending order of
    their number of close rows. A row without a group becomes a center if it has ``min_size`` or more close rows without
    a group. Only the number of close rows is stored for each row, and close rows are recomputed for a few centers at a
    time, so memory does not grow with the number of close pairs.

    Args:
        vectors: (num_vectors, embedding_dim), of length 1 for cosines.
        threshold: minimum dot product with the center.
        min_size: minimum number of rows in a group, the center included.

    Returns:
        (size,) int64 rows of each group: the center, then by descending score.

    Raises:
        UsageError: the array does not have two dimensions, ``min_size`` below 1, or a threshold that is not a number.
        DataError: a component that is not finite.
    """
    if min_size < 1:
        raise UsageError(f"communities: min_size={min_size}, expected at least 1")
    check_threshold("communities", "threshold", threshold)
    prepared = Vectors(vectors, "communities")
    sizes = np.ones(len(prepared), np.int64)
    for pairs in prepared.close_pairs(lambda: threshold):
        sizes += np.bincount(pairs.first, minlength=len(sizes)) if len(pairs.first) else 0
        sizes += np.bincount(pairs.second, minlength=len(sizes)) if len(pairs.first) else 0
    is_free = np.ones(len(prepared), bool)
    groups = []
    centers = np.argsort(-sizes, kind="stable")
    centers = centers[sizes[centers] >= min_size]
    while len(centers := centers[is_free[centers]]):
        for group in _close_rows(prepared, centers[:_CENTERS_AT_ONCE], threshold):
            if is_free[group[0]] and np.count_nonzero(is_free[group]) >= min_size:
                groups.append(group[is_free[group]])
                is_free[groups[-1]] = False
        centers = centers[_CENTERS_AT_ONCE:]
    return sorted(groups, key=len, reverse=True)


def _close_rows(prepared: Vectors, centers: np.ndarray, threshold: float) -> list[np.ndarray]:
    """Each center with its close rows by descending score, equal scores by ascending row."""
    parts = list(prepared.close_to(centers, threshold))
    first, second, scores = (np.concatenate(values) for values in zip(*parts, strict=True))
    others = first != second
    first, second, scores = first[others], second[others], scores[others]
    numbers = np.empty(len(prepared), np.int64)
    numbers[centers] = np.arange(len(centers))
    order = np.lexsort((second, -scores, numbers[first]))
    bounds = np.searchsorted(numbers[first][order], np.arange(1, len(centers)))
    return [
        np.concatenate([[center], rows]) for center, rows in zip(centers, np.split(second[order], bounds), strict=True)
    ]
