"""Reciprocal rank fusion of rankings."""

from collections.abc import Sequence

import numpy as np

RANK_OFFSET = 60
"""The constant of Cormack, Clarke & Büttcher 2009."""


def fuse(rankings: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Reciprocal rank fusion: a row's score is the sum of 1 / (60 + rank), over the lists that contain it.

    Args:
        rankings: (n,) int64 rows each, best first; each row occurs once per list.

    Returns:
        (m,) int64 rows of any list and (m,) float64 scores, best first; ties in order of the first list with the row,
        then by rank in it.

    >>> rows, scores = fuse([np.array([7, 8]), np.array([8, 9])])
    >>> rows.tolist(), bool(scores[0] == 1 / 62 + 1 / 61)
    ([8, 7, 9], True)
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking.tolist(), start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (RANK_OFFSET + rank)
    order = sorted(scores, key=lambda row: -scores[row])  # stable: rows are in the order of the lists
    return np.array(order, np.int64), np.array([scores[row] for row in order])
