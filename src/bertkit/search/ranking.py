"""The ranking of passages for one query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bertkit.errors import UsageError
from bertkit.search.filters import Filter, keys_of
from bertkit.search.fusion import Ranking, fuse_ranks, fuse_scores, with_exact
from bertkit.search.query import Query
from bertkit.search.records import Record
from bertkit.search.results import Result, Results, result_of
from bertkit.search.source_table import stored_sources
from bertkit.search.store.snapshot import Snapshot
from bertkit.search.tables import Tables

if TYPE_CHECKING:
    from bertkit.model import Model

Mode = Literal["hybrid", "dense", "lexical", "sparse"]
_DEPTH = 100
"""Number of rows of each fused list."""
_NONE = np.empty(0, np.int64), np.empty(0)
"""A ranking without rows."""


@dataclass(frozen=True)
class RankedQuery:
    """A query to one state of an index."""

    snapshot: Snapshot
    tables: Tables
    query: str  # its words
    mode: Mode
    vector: np.ndarray | None  # (1, dimensions) of the query; None without meaning
    identity: Any  # of the encoder of the vector
    reranker: Model | None  # a cross-encoder for the first rows
    where: Filter | None
    nearest: dict[int, Ranking] = field(default_factory=dict)  # known already, by the number of rows

    def results(self, k: int) -> list[Result]:
        """The ``k`` best passages; equal texts are one."""
        num_rows = k
        while True:
            numbers, scores = self._ranked(num_rows)
            best: dict[str, tuple[float, Record]] = {}
            for score, record in zip(scores, self.snapshot.records(numbers[:num_rows]), strict=False):
                best.setdefault(record.text, (float(score), record))
            if len(best) >= k or len(numbers) < num_rows:
                return self._results([*best.values()][:k])
            num_rows *= 2

    @property
    def adds_scores(self) -> bool:
        """Whether cosines and BM25 are added."""
        is_cosine = self.snapshot.identity.similarity == "cosine"
        return self.mode == "hybrid" and self.tables.sparse(self.snapshot.connection) is None and is_cosine

    def num_nearest(self, k: int) -> int:
        """Number of nearest vectors for the ``k`` best rows."""
        depth = max(k, _DEPTH)
        wanted = k if self.reranker is None else depth
        return max(2 * wanted, _DEPTH) if self.adds_scores else depth  # then few others can reach the sums

    def _ranked(self, k: int) -> Ranking:
        """The best rows, at least ``k`` unless fewer match."""
        snapshot, query, mode, vector, where = self.snapshot, self.query, self.mode, self.vector, self.where
        depth = max(k, _DEPTH)
        rankings: list[Ranking] = []
        sparse = self.tables.sparse(snapshot.connection)
        if mode == "sparse" and sparse is None:
            raise UsageError("mode='sparse': this index has no sparse model; index into a new folder with one")
        adds_scores, num_nearest = self.adds_scores, self.num_nearest(k)
        wanted = k if self.reranker is None else depth
        if vector is not None:
            if num_nearest not in self.nearest:
                share_pass([self], k)
            rankings.append(self.nearest[num_nearest])
        exact = self.tables.exact_matches(snapshot, query, where) if mode == "hybrid" else _NONE
        if adds_scores and vector is not None:
            numbers, scores = self._sums(vector[0], rankings[0][0], exact, wanted)
        else:
            if mode in ("hybrid", "lexical"):
                rankings.append(self.tables.search(snapshot, query, depth, where))
            if mode in ("hybrid", "sparse") and sparse is not None:
                rankings.append(sparse.search(snapshot, query, depth, where))
            numbers, scores = rankings[0]
            if len(rankings) > 1:
                numbers, scores = with_exact(fuse_ranks([rows for rows, _ in rankings]), exact)
        if self.reranker is not None:
            records = snapshot.records(numbers[:_DEPTH])
            ranked = self.reranker.rank(query, [record.text for record in records])
            numbers = np.append(numbers[[one.index for one in ranked]], numbers[_DEPTH:])
            scores = np.append([one.score for one in ranked], scores[_DEPTH:])
        return numbers, scores

    def _sums(self, vector: np.ndarray, nearest: np.ndarray, exact: Ranking, k: int) -> Ranking:
        """The ``k`` largest sums of cosine and BM25, given the nearest records: none if the vector is zero."""

        def cosines(numbers: np.ndarray) -> np.ndarray:
            return self.snapshot.similarities(vector, numbers) if vector.any() else np.zeros(len(numbers))

        numbers, bm25 = self.tables.scores(self.snapshot, self.query, self.where)
        return fuse_scores(
            nearest, cosines, numbers, bm25, self.tables.largest_score(self.snapshot, self.query), exact, k
        )

    def _results(self, best: Sequence[tuple[float, Record]]) -> list[Result]:
        weights = self.tables.weights(self.snapshot, self.query)
        words_of = self.tables.words_shared_with(self.snapshot, self.query)
        names = [record.id.rpartition("#")[0] for _, record in best]
        files = stored_sources(self.snapshot.connection, names)
        results = []
        for rank, (name, (score, record)) in enumerate(zip(names, best, strict=True), start=1):
            copies = self.snapshot.documents_with(record.text, self.where)
            results.append(result_of(rank, score, record, weights, words_of, copies, files.get(name)))
        return results


def results_of(
    queries: Sequence[Query],
    k: int,
    where: Filter | None,
    snapshot: Snapshot,
    tables: Tables,
    mode: Mode,
    vectors: np.ndarray | None,
    identity: Any,
    reranker: Model | None,
) -> list[Results]:
    """The results of each query, whose conditions restrict the filter; other arguments as of `RankedQuery`."""
    if reranker is not None:
        from bertkit.model import check_model

        check_model(reranker, "the reranker")
    keys, ranked, missing = keys_of(where), list[RankedQuery](), list[list[str]]()
    for number, asked in enumerate(queries):
        own, lacking = asked.restrict(snapshot, tables, where)
        vector = None if vectors is None else vectors[number : number + 1]
        ranked.append(RankedQuery(snapshot, tables, asked.text, mode, vector, identity, reranker, own))
        missing.append(lacking + (tables.missing(snapshot, asked.text) if mode in ("hybrid", "lexical") else []))
    all_keys = snapshot.keys() if keys else []
    unknown = sorted(keys.difference(all_keys))
    share_pass(ranked, k)
    return [Results(one.results(k), of_one, unknown, all_keys) for one, of_one in zip(ranked, missing, strict=True)]


def share_pass(queries: Sequence[RankedQuery], k: int) -> None:
    """Find the nearest vectors for the ``k`` best rows of queries to one state of an index, in one pass for each
    filter."""
    by_filter: dict[int, list[RankedQuery]] = {}
    for one in queries:
        if one.vector is None:
            continue
        if one.vector.any():
            by_filter.setdefault(id(one.where), []).append(one)
        else:
            one.nearest[one.num_nearest(k)] = _NONE  # without a known word
    for group in by_filter.values():
        first, vectors = group[0], np.concatenate([one.vector for one in group if one.vector is not None])
        number = first.num_nearest(k)
        found = first.snapshot.search(vectors, first.identity, number, first.where)
        for one, ranking in zip(group, found, strict=True):
            one.nearest[number] = ranking
