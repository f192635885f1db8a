"""One pass over int8 blocks: the rows that can be among the k nearest of each query."""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import lean, lean_part
from bertkit.neighbors.int8_codes import Queries
from bertkit.neighbors.int8_tiles import LANES, TILE_QUERIES, bounds_of_one, bounds_of_tile

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


def scan(
    blocks: np.ndarray, masks: np.ndarray, first: int, end: int, queries: Queries, num_queries: int, k: int
) -> Candidates:
    """The rows of some blocks that can be among the ``k`` with the largest product, for every query.

    Args:
        blocks: from `encode_rows`.
        masks: (num_blocks,) uint16, a bit for every row to compare.
        first, end: range of blocks.
        k: at least 1.
    """
    candidates = Candidates.empty(num_queries, k)
    queries = queries._replace(numbers=queries.numbers.copy())  # thresholds change
    while first < end:
        first = _scan(blocks, masks, first, end, *queries, *candidates, *_scratch())
        if first < end:
            candidates = candidates.with_more_room()
    return candidates


def _scratch() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = TILE_QUERIES * LANES
    return np.empty(TILE_QUERIES, np.int32), np.empty(size, np.float32), np.empty(size, np.float32)


@lean
def _scan(blocks, masks, first, end, words, numbers, offsets, lowest, positions, upper, counts, hits, low, high):
    """Scan blocks; returns the block where it stopped: the end, or earlier if a query ran out of room."""
    num_queries = lowest.shape[0]
    for block in range(first, end):
        if masks[block] == 0:
            continue
        is_full = False
        if num_queries == 1:
            if bounds_of_one(blocks, masks, block, words, 0, numbers, offsets, hits, low, high):
                is_full = collect(0, block, 0, hits, low, high, numbers, lowest, positions, upper, counts)
        else:
            for query in range(0, num_queries, TILE_QUERIES):
                if bounds_of_tile(blocks, masks, block, words, query, numbers, offsets, hits, low, high):
                    for one in range(min(TILE_QUERIES, num_queries - query)):
                        is_full |= collect(
                            query + one, block, one, hits, low, high, numbers, lowest, positions, upper, counts
                        )
        if is_full:
            return block + 1
    return end


@lean_part
def collect(query, block, one, hits, low, high, numbers, lowest, positions, upper, counts):
    """Record the rows of a block that reach the threshold. Returns True if the next block may not fit."""
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
    if counts[query] + LANES > room:
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
