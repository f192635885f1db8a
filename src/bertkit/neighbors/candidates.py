"""Rows that can be among the k nearest of each query, collected by a scan."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bertkit.compiled import lean_part
from bertkit.neighbors.block_sizes import LANES
from bertkit.neighbors.int8_tiles import TILE_BLOCKS

_ROOM = 1024  # candidates of a query before they are first pruned


class Candidates(NamedTuple):
    """State of a scan for each query."""

    lowest: np.ndarray  # (num_queries, k) float32, a heap: the k largest lower bounds
    positions: np.ndarray  # (num_queries, room) int64: rows that can be among the k nearest
    upper: np.ndarray  # (num_queries, room) float32: their upper bounds
    counts: np.ndarray  # (num_queries,) int64

    @classmethod
    def empty(cls, num_queries: int, k: int) -> "Candidates":
        room = _ROOM + 4 * k
        return cls(
            np.full((num_queries, k), -np.inf, np.float32),
            np.empty((num_queries, room), np.int64),
            np.empty((num_queries, room), np.float32),
            np.zeros(num_queries, np.int64),
        )

    def with_more_room(self) -> "Candidates":
        """The same with twice the room."""
        positions, upper = (
            np.concatenate([part, np.empty_like(part)], axis=1) for part in (self.positions, self.upper)
        )
        return Candidates(self.lowest, positions, upper, self.counts)


ScanBlocks = Callable[[int, int], Candidates]
"""A scan of some blocks, from the first to the end: the rows that can be among the nearest."""


def collected(num_queries: int, k: int, first: int, end: int, step: Callable[[int, Candidates], int]) -> Candidates:
    """The candidates of a scan.

    Args:
        k: at least 1.
        first, end: range of blocks.
        step: scans from a block on; returns the block where it stopped: the end, or earlier if a query ran out of room.
    """
    candidates = Candidates.empty(num_queries, k)
    while first < end:
        first = step(first, candidates)
        if first < end:
            candidates = candidates.with_more_room()
    return candidates


@lean_part
def collect(query, block, one, hits, low, high, numbers, lowest, positions, upper, counts):
    """Record the rows of a block that reach the threshold. Returns True if the next blocks may not fit."""
    bits, lane = hits[one], 0
    while bits:
        if bits & 1 and high[one * LANES + lane] >= numbers[query, 3]:
            count = counts[query]
            positions[query, count], upper[query, count] = block * LANES + lane, high[one * LANES + lane]
            counts[query] = count + 1
            if low[one * LANES + lane] > lowest[query, 0]:
                replace_smallest(lowest, query, low[one * LANES + lane])
                numbers[query, 3] = lowest[query, 0]
        bits >>= 1
        lane += 1
    room = positions.shape[1]
    if counts[query] + TILE_BLOCKS * LANES > room:
        _thin_out(query, numbers[query, 3], positions, upper, counts)
        return counts[query] > room // 2
    return False


@lean_part
def replace_smallest(lowest, query, value):
    """Replace the smallest value of a heap."""
    k = lowest.shape[1]
    index = 0
    while True:
        child = 2 * index + 1
        if child >= k:
            break
        if child + 1 < k and lowest[query, child + 1] < lowest[query, child]:
            child += 1
        if lowest[query, child] >= value:
            break
        lowest[query, index] = lowest[query, child]
        index = child
    lowest[query, index] = value


@lean_part
def _thin_out(query, threshold, positions, upper, counts):
    """Drop rows below the threshold."""
    kept = 0
    for index in range(counts[query]):
        if upper[query, index] >= threshold:
            positions[query, kept], upper[query, kept] = positions[query, index], upper[query, index]
            kept += 1
    counts[query] = kept
