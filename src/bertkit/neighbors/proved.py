"""Exact nearest neighbors by bounds: only rows whose upper bound reaches the k-th largest lower bound are compared in
float32."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bertkit.executor import map_on_cores, num_cores
from bertkit.neighbors.candidates import Candidates, ScanBlocks
from bertkit.neighbors.exact_scores import best
from bertkit.neighbors.int8_codes import Similarity
from bertkit.neighbors.row_mask import RowMask

QUERIES_AT_ONCE = 1024
_BLOCKS_AT_LEAST = 1024  # minimum blocks per thread


@dataclass(frozen=True)
class Nearest:
    """The nearest rows of one query."""

    positions: np.ndarray  # (n,) int64, best first; for equal scores, the lower position first
    scores: np.ndarray  # (n,) float64
    num_scored_again: int  # number of rows rescored in float32

    def first(self, k: int) -> "Nearest":
        """The first ``k`` of them."""
        return Nearest(self.positions[:k], self.scores[:k], self.num_scored_again)


def by_bounds(
    queries: np.ndarray,
    rows: np.ndarray,
    k: int,
    similarity: Similarity,
    mask: RowMask,
    scan_for: Callable[[np.ndarray, np.ndarray, int], ScanBlocks],
    at_least: int,
) -> list[Nearest]:
    """As `bertkit.neighbors.scans.nearest`, with any bounds of the products.

    Args:
        scan_for: a scan for some queries, the bits of a mask, and the number of rows to find.
        at_least: number of rows to find by their bounds, if larger than k.
    """
    k, number = min(k, mask.num_rows), min(max(k, at_least), mask.num_rows)
    if k == 0:
        return [Nearest(np.empty(0, np.int64), np.empty(0), 0) for _ in queries]
    results: list[Nearest] = []
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        part = queries[start : start + QUERIES_AT_ONCE]
        candidates = _on_cores(scan_for(part, mask.bits, number), len(mask.bits))
        results += [
            _nearest_of(index, query, candidates, number, rows, k, similarity) for index, query in enumerate(part)
        ]
    return results


def _on_cores(scan: ScanBlocks, num_blocks: int) -> list[Candidates]:
    """The candidates in consecutive parts of the blocks, one for each core."""
    parts = max(1, min(num_cores(), num_blocks // _BLOCKS_AT_LEAST))
    edges = [num_blocks * part // parts for part in range(parts + 1)]
    if parts == 1:
        return [scan(0, num_blocks)]
    return list(map_on_cores(lambda part: scan(edges[part], edges[part + 1]), range(parts)))


def _nearest_of(
    index: int,
    query: np.ndarray,
    candidates: list[Candidates],
    number: int,
    rows: np.ndarray,
    k: int,
    similarity: Similarity,
) -> Nearest:
    """The best of the rows whose upper bound reaches the ``number``-th largest lower bound of a query."""
    threshold = np.partition(np.concatenate([each.lowest[index] for each in candidates]), -number)[-number]
    kept = []
    for each in candidates:
        count = each.counts[index]
        kept.append(each.positions[index, :count][each.upper[index, :count] >= threshold])
    positions = np.concatenate(kept)
    return Nearest(*best(query, rows, positions, k, similarity), len(positions))
