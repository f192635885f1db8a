"""One ranking out of several: by scores where they have known bounds, otherwise by ranks."""

from collections.abc import Callable, Sequence

import numpy as np

RANK_OFFSET = 60
"""The constant of Cormack, Clarke & Büttcher 2009."""

WEIGHT_OF_WORDS = 0.2
"""Weight of the largest possible BM25 relative to a cosine of 1, if some passage is near in meaning, or none has the
rare words of the query."""
WEIGHT_BESIDES = 0.8
"""Weight that is added to it if it is the other way round."""
WEIGHT_OF_EXACT = 3.0
"""Score of each code that a passage contains. It exceeds the differences of all other scores, which are below 2.2."""

Ranking = tuple[np.ndarray, np.ndarray]
"""(n,) int64 rows and (n,) scores, best first; each row occurs once."""


def weight_of_words(largest_cosine: float, largest_share: float) -> float:
    """Weight of words for a query: at least WEIGHT_OF_WORDS, and more, the less similar the nearest passage is, if the
    BM25 of the best passage is 0.2 to 0.3 of the largest possible or above.

    >>> weight_of_words(0.5, 0.1), round(weight_of_words(0.5, 0.4), 3), round(weight_of_words(1.0, 0.4), 3)
    (0.2, 0.6, 0.2)
    """
    return WEIGHT_OF_WORDS + WEIGHT_BESIDES * (1 - largest_cosine) * min(max((largest_share - 0.2) / 0.1, 0), 1)


def fuse_scores(
    nearest: np.ndarray,
    cosines: Callable[[np.ndarray], np.ndarray],
    rows: np.ndarray,
    bm25: np.ndarray,
    largest_bm25: float,
    exact: tuple[np.ndarray, np.ndarray],
    k: int,
) -> Ranking:
    """The rows with the ``k`` largest scores: the cosine, plus `weight_of_words` * BM25 / the largest BM25 possible for
    the query, plus WEIGHT_OF_EXACT for each code of the query in the text.

    If a text contains the rare words of a query, its BM25 is a large share of the bound, and words determine the
    ranking. If the query uses other words than the texts, the share is small, and meaning determines it (a convex
    combination with theoretical bounds: Bruch, Gai & Ingber 2023).

    The cosine of a row that is not among the nearest is at most the smallest cosine of the nearest. So a row outside
    them is compared only if it contains a code, or its BM25 is large enough to reach the ``k``-th score of the nearest.

    Args:
        nearest: the rows with the largest cosines, best first: at least ``k``, or all.
        cosines: returns the cosines of (n,) rows.
        rows: (num_rows,) int64, ascending: every row whose words are indexed.
        bm25: (num_rows,) float32, their BM25.
        largest_bm25: the bound of BM25 for this query, 0 if no text contains a word of it.
        exact: (n,) rows with codes of the query, ascending, and the number of codes in each.

    Returns:
        Rows and float64 scores; ties in ascending order of rows.

    >>> values = {7: 0.5, 8: 0.4, 9: 0.3}
    >>> rows, scores = fuse_scores(
    ...     np.array([7, 8]), lambda some: np.array([values[row] for row in some.tolist()]),
    ...     np.array([7, 8, 9]), np.array([0, 0.8, 0]), 4.0, (np.array([9]), np.array([1])), k=3,
    ... )  # fmt: skip
    >>> rows.tolist(), scores.round(2).tolist()
    ([9, 7, 8], [3.3, 0.5, 0.44])
    """
    of_nearest = cosines(nearest)
    factor = 0.0
    if largest_bm25:
        largest_share = float(bm25.max(initial=0)) / largest_bm25
        factor = weight_of_words(float(of_nearest.max(initial=0)), largest_share) / largest_bm25

    def shares(some: np.ndarray) -> np.ndarray:
        of_words = factor * _values_at(some, rows, bm25) if factor else 0.0
        return of_words + WEIGHT_OF_EXACT * _values_at(some, *exact)

    some = np.union1d(nearest, exact[0])
    if factor:
        least = 0.0  # the share that another row needs
        if len(nearest) >= k:
            least = float(np.partition(of_nearest + shares(nearest), -k)[-k] - of_nearest.min())
        some = np.union1d(some, rows[bm25 > least / factor])
    scores = cosines(some) + shares(some)
    order = np.lexsort((some, -scores))[:k]
    return some[order], scores[order]


def with_exact(ranking: Ranking, exact: tuple[np.ndarray, np.ndarray]) -> Ranking:
    """A ranking with WEIGHT_OF_EXACT more for each code of the query in a text, and the rows with codes that it lacks;
    ties in the order of the ranking."""
    rows = np.append(ranking[0], exact[0][~np.isin(exact[0], ranking[0])])
    scores = np.append(ranking[1], np.zeros(len(rows) - len(ranking[0]))) + WEIGHT_OF_EXACT * _values_at(rows, *exact)
    order = np.argsort(-scores, kind="stable")
    return rows[order], scores[order]


def _values_at(some: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(n,) float64: the value of each of some rows, 0 for others than the given rows, which ascend."""
    if not len(rows):
        return np.zeros(len(some))
    at = np.minimum(np.searchsorted(rows, some), len(rows) - 1)
    return np.where(rows[at] == some, values[at], 0).astype(np.float64)


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
