"""Clusters of texts by their vectors: communities, duplicates, k-means, agglomerative and density-based."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertkit.clusters.names import class_words
from bertkit.errors import DataError, UsageError, check_type, required
from bertkit.neighbors import communities, duplicate_groups, number_rows
from bertkit.tokenizer.tokenizer import listed_texts
from bertkit.tokenizer.wordpiece import explain_bad_text

_NUM_TYPICAL = 3
_NUM_WORDS = 4


@dataclass(frozen=True)
class ClusterOptions:
    """Method and parameters of clustering."""

    method: str = "communities"  # a name from METHODS
    threshold: float | None = None  # minimum cosine; None: 0.75 for communities, 0.95 for duplicates
    min_size: int | None = None  # minimum size; None: 1 with num_clusters, 2 for duplicates, else 10
    num_clusters: int | None = None  # for kmeans and agglomerative
    seed: int = 0  # seed of the initial centers of k-means

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"method={self.method!r}: expected one of {', '.join(METHODS)}")
        for name in ("min_size", "num_clusters"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer)):
                raise UsageError(f"{name}={value!r}: expected an int of at least 1, or None")
        takes_number = self.method in ("kmeans", "agglomerative")
        if takes_number and (self.num_clusters is None or self.num_clusters < 1):
            raise UsageError(f"method {self.method} requires num_clusters of at least 1, got {self.num_clusters}")
        if not takes_number and self.num_clusters is not None:
            raise UsageError(f"method {self.method} finds the number of clusters itself: omit num_clusters")
        if self.min_size is not None and self.min_size < 1:
            raise UsageError(f"min_size={self.min_size}: expected at least 1")
        is_int = isinstance(self.seed, int | np.integer) and not isinstance(self.seed, bool)
        if not is_int or not 0 <= self.seed < 2**32:
            raise UsageError(f"seed={self.seed!r}: expected an integer from 0 to 2**32 - 1")
        if isinstance(self.threshold, int | float) and self.threshold > 1:
            raise UsageError(f"threshold={self.threshold}: expected a cosine, at most 1")
        if self.threshold is not None and self.method not in ("communities", "duplicates"):
            raise UsageError(f"method {self.method} has no threshold: omit it")


@dataclass(frozen=True, eq=False)
class Cluster:
    """Similar texts."""

    name: str  # words frequent in the cluster and rare elsewhere, most distinctive first
    rows: np.ndarray  # (size,) int64 indices of its texts; the central one of a community first
    typical: tuple[str, ...]  # the texts nearest to the mean of its vectors


def _communities(vectors: np.ndarray, options: ClusterOptions) -> list[np.ndarray]:
    threshold = 0.75 if options.threshold is None else options.threshold
    return communities(vectors, threshold, 10 if options.min_size is None else options.min_size)


def _duplicates(vectors: np.ndarray, options: ClusterOptions) -> list[np.ndarray]:
    groups = duplicate_groups(vectors, 0.95 if options.threshold is None else options.threshold)
    return [group for group in groups if len(group) >= (options.min_size or 2)]


def _kmeans(vectors: np.ndarray, options: ClusterOptions) -> list[np.ndarray]:
    estimator = _scikit_learn().KMeans(options.num_clusters, random_state=options.seed)
    return _groups(estimator.fit_predict(vectors), options.min_size or 1)


def _agglomerative(vectors: np.ndarray, options: ClusterOptions) -> list[np.ndarray]:
    rows = np.flatnonzero(vectors.any(axis=1))  # a vector of zeros, of a text without known words, has no cosine
    num_clusters: Any = options.num_clusters
    if num_clusters > len(rows):
        raise UsageError(f"num_clusters={num_clusters}, but only {len(rows)} of {len(vectors)} vectors are not zero")
    if len(rows) == 1:
        return [rows] if (options.min_size or 1) == 1 else []
    estimator = _scikit_learn().AgglomerativeClustering(num_clusters, metric="cosine", linkage="average")
    return [rows[group] for group in _groups(estimator.fit_predict(vectors[rows]), options.min_size or 1)]


def _density(vectors: np.ndarray, options: ClusterOptions) -> list[np.ndarray]:
    min_size = 10 if options.min_size is None else options.min_size
    if min_size < 2:
        raise UsageError(f"method density: min_size={min_size}, expected at least 2")
    if len(vectors) < min_size:
        return []
    return _groups(_scikit_learn().HDBSCAN(min_size, copy=True).fit_predict(vectors), min_size)


METHODS: dict[str, Callable[[np.ndarray, ClusterOptions], list[np.ndarray]]] = {
    "communities": _communities,
    "duplicates": _duplicates,
    "kmeans": _kmeans,
    "agglomerative": _agglomerative,
    "density": _density,
}
"""Clustering functions by name."""


def find_clusters(
    texts: Sequence[str], vectors: np.ndarray, options: ClusterOptions = ClusterOptions()
) -> list[Cluster]:
    """Cluster texts by the cosine of their vectors, the larger clusters first.

    A text is in at most one cluster, and with a vector of zeros in none that is agglomerative.

    Args:
        texts: (num_texts,) str.
        vectors: (num_texts, embedding_dim), of any length.

    Raises:
        UsageError: different numbers of texts and vectors, vectors of another shape, more clusters than texts or than
            vectors to cluster, or a str or a table instead of texts.
        DataError: a vector with a component that is not finite.
        DependencyError: k-means, agglomerative or density clustering without scikit-learn.
    """
    check_type("options", options, ClusterOptions)
    texts, vectors = listed_texts(texts), number_rows(vectors, "find_clusters")
    explain_bad_text(texts, 0)
    if len(texts) != len(vectors):
        raise UsageError(
            f"find_clusters: {len(texts)} texts and {len(vectors)} vectors; expected one vector for each text"
        )
    if len(wrong := np.flatnonzero(~np.isfinite(vectors).all(axis=1))):
        raise DataError(f"find_clusters: vector {wrong[0]} has a component that is not finite: leave out its text")
    if options.num_clusters is not None and options.num_clusters > len(texts):
        raise UsageError(f"find_clusters: num_clusters={options.num_clusters}, but there are {len(texts)} texts")
    vectors = _of_length_one(vectors)
    groups = METHODS[options.method](vectors, options)
    names = class_words([[texts[row] for row in rows] for rows in groups], _NUM_WORDS)
    return [
        Cluster(" ".join(words), rows, tuple(texts[row] for row in _nearest_to_mean(vectors, rows)))
        for words, rows in zip(names, groups, strict=True)
    ]


def _of_length_one(vectors: np.ndarray) -> np.ndarray:
    """Vectors scaled to length 1; the given array if they have it. Zeros stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    if (np.abs(lengths - 1) < 1e-3)[lengths > 0].all():
        return vectors
    return (vectors / np.where(lengths > 0, lengths, 1)[:, None]).astype(np.float32)


def _scikit_learn() -> Any:
    return required("sklearn.cluster", "this clustering method needs scikit-learn", "sklearn")


def _groups(labels: np.ndarray, min_size: int) -> list[np.ndarray]:
    """The rows of each label from 0 on, larger groups first; -1 means unlabeled."""
    groups = [np.flatnonzero(labels == label) for label in range(int(labels.max(initial=-1)) + 1)]
    return sorted((group for group in groups if len(group) >= min_size), key=len, reverse=True)


def _nearest_to_mean(vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    members = vectors[rows]
    return rows[np.argsort(-(members @ members.mean(axis=0)), kind="stable")[:_NUM_TYPICAL]]
