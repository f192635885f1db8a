"""One ranking out of several: by scores where they have known bounds, otherwise by ranks."""

from collections.abc import Sequence

import numpy as np

RANK_OFFSET = 60
"""The constant of Cormack, Clarke & Büttcher 2009."""

WEIGHT_OF_WORDS = 0.2
"""Weight of the largest possible BM25 beside a cosine of 1. From 0.2 to 0.4 the joined ranking is, within the 95 %
interval, not below the better of the two on any of the five collections of `benchmarks/search_quality.py`."""

Ranking = tuple[np.ndarray, np.ndarray]
"""(n,) int64 rows and (n,) scores, best first; each row occurs once."""


def fuse_scores(dense: Ranking, lexical: Ranking, largest_bm25: float) -> Ranking:
    """Sum of the cosine and the share that BM25 has of the largest value possible for the query.

    A query of rare words that a text contains has a large share, and words decide; one in words of its own has a small
    share, and meaning decides (a convex combination with theoretical bounds: Bruch, Gai & Ingber 2023). A row that only
    the lexical list contains counts with the smallest cosine of the dense list, which its own does not exceed; a row
    that only the dense list contains has a share of 0.

    Args:
        dense: the rows with the largest cosines.
        lexical: the rows with the largest BM25.
        largest_bm25: the bound of BM25 for this query, above 0 unless ``lexical`` is empty.

    Returns:
        Rows of any list and float64 scores; ties in order of the dense list, then of the lexical one.

    >>> dense, lexical = (np.array([7, 8]), np.array([0.5, 0.4])), (np.array([8, 9]), np.array([3.0, 1.0]))
    >>> rows, scores = fuse_scores(dense, lexical, largest_bm25=4.0)
    >>> rows.tolist(), scores.round(2).tolist()
    ([8, 7, 9], [0.55, 0.5, 0.45])
    """
    scores = dict(zip(dense[0].tolist(), dense[1].tolist(), strict=True))
    smallest = min(scores.values(), default=0.0)
    for row, bm25 in zip(lexical[0].tolist(), lexical[1].tolist(), strict=True):
        scores[row] = scores.get(row, smallest) + WEIGHT_OF_WORDS * bm25 / largest_bm25
    return _sorted(scores)


def fuse_ranks(rankings: Sequence[np.ndarray]) -> Ranking:
    """Reciprocal rank fusion: a row's score is the sum of 1 / (60 + rank), over the lists that contain it.

    Args:
        rankings: (n,) int64 rows each, best first; each row occurs once per list.

    Returns:
        Rows of any list and float64 scores; ties in order of the first list with the row, then by rank in it.

    >>> rows, scores = fuse_ranks([np.array([7, 8]), np.array([8, 9])])
    >>> rows.tolist(), bool(scores[0] == 1 / 62 + 1 / 61)
    ([8, 7, 9], True)
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking.tolist(), start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (RANK_OFFSET + rank)
    return _sorted(scores)


def _sorted(scores: dict[int, float]) -> Ranking:
    rows = sorted(scores, key=lambda row: -scores[row])  # stable: rows are in the order of the lists
    return np.array(rows, np.int64), np.array([scores[row] for row in rows])
