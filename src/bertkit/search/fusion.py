"""One ranking out of several: by scores where they have known bounds, otherwise by ranks."""

from collections.abc import Callable, Sequence

import numpy as np

RANK_OFFSET = 60
"""The constant of Cormack, Clarke & Büttcher 2009."""

WEIGHT_OF_WORDS = 0.2
"""Weight of the largest possible BM25 relative to a cosine of 1. With weights from 0.2 to 0.4 the combined ranking is
not significantly worse (95 % interval) than the better of the two rankings on any of the five collections of
`benchmarks/search_quality.py`."""

Ranking = tuple[np.ndarray, np.ndarray]
"""(n,) int64 rows and (n,) scores, best first; each row occurs once."""


def fuse_scores(
    nearest: np.ndarray,
    cosines: Callable[[np.ndarray], np.ndarray],
    rows: np.ndarray,
    bm25: np.ndarray,
    largest_bm25: float,
    k: int,
) -> Ranking:
    """The rows with the ``k`` largest scores: the cosine plus WEIGHT_OF_WORDS * BM25 / the largest BM25 possible for
    the query.

    If a text contains the rare words of a query, its BM25 is a large share of the bound, and words determine the
    ranking. If the query uses other words than the texts, the share is small, and meaning determines it (a convex
    combination with theoretical bounds: Bruch, Gai & Ingber 2023).

    The cosine of a row that is not among the nearest is at most the smallest cosine of the nearest. So a row outside
    them is compared only if its BM25 is large enough to reach the ``k``-th score of the nearest.

    Args:
        nearest: the rows with the largest cosines, best first: at least ``k``, or all.
        cosines: returns the cosines of (n,) rows.
        rows: (num_rows,) int64, ascending: every row whose words are indexed.
        bm25: (num_rows,) float32, their BM25.
        largest_bm25: the bound of BM25 for this query, 0 if no text contains a word of it.

    Returns:
        Rows and float64 scores; ties in ascending order of rows.

    >>> values = {7: 0.5, 8: 0.4, 9: 0.3}
    >>> rows, scores = fuse_scores(
    ...     np.array([7, 8]), lambda some: np.array([values[row] for row in some.tolist()]),
    ...     np.array([7, 8, 9]), np.array([0, 3, 4]), largest_bm25=4.0, k=2,
    ... )  # fmt: skip
    >>> rows.tolist(), scores.round(2).tolist()
    ([8, 7], [0.55, 0.5])
    """
    factor = WEIGHT_OF_WORDS / largest_bm25 if largest_bm25 else 0.0

    def shares(some: np.ndarray) -> np.ndarray:
        if not factor:
            return np.zeros(len(some))
        at = np.minimum(np.searchsorted(rows, some), len(rows) - 1)
        return factor * np.where(rows[at] == some, bm25[at], 0).astype(np.float64)

    some = nearest
    if factor:
        least = 0.0  # the share that another row needs
        if len(nearest) >= k:
            of_meaning = cosines(nearest)
            least = float(np.partition(of_meaning + shares(nearest), -k)[-k] - of_meaning.min())
        some = np.union1d(nearest, rows[bm25 > least / factor])
    scores = cosines(some) + shares(some)
    order = np.lexsort((some, -scores))[:k]
    return some[order], scores[order]


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
    rows = sorted(scores, key=lambda row: -scores[row])  # stable: rows are in the order of the lists
    return np.array(rows, np.int64), np.array([scores[row] for row in rows])
