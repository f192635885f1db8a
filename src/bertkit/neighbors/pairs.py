"""The most similar pairs of a collection, and groups of near duplicates, exact, in bounded memory."""

from numbers import Real

import numpy as np

from bertkit.compiled import lean
from bertkit.errors import UsageError, checked_count
from bertkit.neighbors.close_pairs import BLOCK_ROWS, Pairs, Vectors

_PENDING = 10_000  # pairs collected before the best are selected again


def top_pairs(vectors: np.ndarray, k: int = 100, *, min_score: float = -np.inf) -> Pairs:
    """The ``k`` pairs of a collection with the largest dot product, each once; the cosine if vectors have length 1.

    Exact: the same pairs and order as from sorting all scores in float64. All pairs are compared in 8 bits with an
    error bound, and those that can be among the best are summed again (see `bertkit.neighbors.close_pairs`). Memory is
    that of the vectors, a quarter more, the ``k`` pairs, and a few blocks of 4 MiB.

    Args:
        vectors: (num_vectors, embedding_dim), any float dtype; compared as float32. May be memory-mapped.
        k: maximum number of pairs.
        min_score: minimum score of a pair.

    Returns:
        Pairs, best first; ties are ordered by the first row, then by the second.

    Raises:
        UsageError: the array does not have two dimensions, ``k`` below 1, or a ``min_score`` that is not a number.
        DataError: a component that is not finite.
    """
    k = checked_count("k", k)
    check_threshold("top_pairs", "min_score", min_score)
    prepared = Vectors(vectors, "top_pairs")
    best = _Best(k, max(min_score, _kth_of_sample(prepared.vectors, k)))
    for pairs in prepared.close_pairs(lambda: best.least):
        best.add(pairs)
    return best.select()


def duplicate_groups(vectors: np.ndarray, threshold: float = 0.95) -> list[np.ndarray]:
    """Groups of near duplicates: rows connected by pairs with a dot product of at least the threshold.

    Two rows of a group may be less similar, if other rows connect them. To remove duplicates, keep the first row
    of each group.

    Args:
        vectors: (num_vectors, embedding_dim), of length 1 for cosines.

    Returns:
        The rows of each group of at least two, ascending, int64; larger groups first, then by first row.

    Raises:
        UsageError: the array does not have two dimensions, or a threshold that is not a number.
        DataError: a component that is not finite.
    """
    check_threshold("duplicate_groups", "threshold", threshold)
    prepared = Vectors(vectors, "duplicate_groups")
    parents = np.arange(len(prepared))
    for pairs in prepared.close_pairs(lambda: threshold):
        _connect(parents, pairs.first, pairs.second)
    _flatten(parents)
    order = np.argsort(parents, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(parents[order])) + 1)
    return sorted((group for group in groups if len(group) > 1), key=lambda group: (-len(group), group[0]))


def check_threshold(caller: str, name: str, value: float) -> None:
    """Check that a threshold is a number.

    Raises:
        UsageError: it is of another type, or NaN.
    """
    if not isinstance(value, Real) or np.isnan(value):
        raise UsageError(f"{caller}: {name}={value!r}, expected a number")


def _kth_of_sample(vectors: np.ndarray, k: int) -> float:
    """A score that at least ``k`` pairs reach: the k-th largest among the pairs of some rows, minus its rounding
    error."""
    sample = vectors[:: max(1, len(vectors) // BLOCK_ROWS)][:BLOCK_ROWS].astype(np.float64)
    if k > len(sample) * (len(sample) - 1) // 2:
        return -np.inf
    scores = sample @ sample.T
    scores[np.tri(len(sample), dtype=bool)] = -np.inf
    kth = np.partition(scores.reshape(-1), scores.size - k)[scores.size - k]
    return kth - 1e-9 * np.einsum("ij,ij->i", sample, sample).max()


class _Best:
    """The ``k`` best of the added pairs, and the minimum score for another one."""

    def __init__(self, k: int, least: float) -> None:
        self._k, self.least = k, least
        self._parts = [Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
        self._num_pending = 0

    def add(self, pairs: Pairs) -> None:
        self._parts.append(pairs)
        self._num_pending += len(pairs.first)
        if self._num_pending > max(self._k, _PENDING):
            best = self.select()
            self._parts, self._num_pending = [best], 0
            if len(best.scores) == self._k:
                self.least = max(self.least, best.scores[-1])

    def select(self) -> Pairs:
        first, second, scores = (np.concatenate(values) for values in zip(*self._parts, strict=True))
        if len(scores) > self._k:
            reach = scores >= np.partition(scores, -self._k)[-self._k]
            first, second, scores = first[reach], second[reach], scores[reach]
        order = np.lexsort((second, first, -scores))[: self._k]
        return Pairs(first[order], second[order], scores[order])


@lean
def _connect(parents, first, second):
    """Join the groups of each pair; the parent of a group is its lowest row."""
    for number in range(len(first)):
        one, other = first[number], second[number]
        while parents[one] != one:
            parents[one] = parents[parents[one]]
            one = parents[one]
        while parents[other] != other:
            parents[other] = parents[parents[other]]
            other = parents[other]
        if one < other:
            parents[other] = one
        else:
            parents[one] = other


@lean
def _flatten(parents):
    for row in range(len(parents)):  # a parent is a lower row, whose own parent is final
        parents[row] = parents[parents[row]]
