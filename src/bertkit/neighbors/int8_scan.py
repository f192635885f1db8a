"""One pass over int8 blocks: the rows that can be among the k nearest of each query."""

import numpy as np

from bertkit.compiled import lean
from bertkit.neighbors.candidates import Candidates, ScanBlocks, collect, collected
from bertkit.neighbors.int8_codes import encode_queries
from bertkit.neighbors.int8_tiles import (
    LANES,
    TILE_BLOCKS,
    TILE_QUERIES,
    bounds_of_blocks,
    bounds_of_one,
    bounds_of_tile,
)

_FEWEST_AT_ONCE = 3 * TILE_QUERIES
"""Number of queries from which blocks are processed together; with fewer, memory is slower than the products."""


def scan_for(queries: np.ndarray, rows: np.ndarray, blocks: np.ndarray, masks: np.ndarray, k: int) -> ScanBlocks:
    """See `bertkit.neighbors.scans.Scan`."""
    encoded = encode_queries(queries)

    def scan(first: int, end: int) -> Candidates:
        own = encoded._replace(numbers=encoded.numbers.copy())  # thresholds change
        number = TILE_BLOCKS * TILE_QUERIES
        scratch = (
            np.empty(number, np.int32), np.empty(number * LANES, np.float32), np.empty(number * LANES, np.float32)
        )  # fmt: skip
        return collected(
            len(queries), k, first, end, lambda block, state: _scan(blocks, masks, block, end, *own, *state, *scratch)
        )

    return scan


@lean
def _scan(blocks, masks, first, end, words, numbers, offsets, lowest, positions, upper, counts, hits, low, high):
    """Scan blocks; returns the block where it stopped: the end, or earlier if a query ran out of room."""
    num_queries = lowest.shape[0]
    block = first
    while block < end:
        is_full, at_once = False, 1
        if num_queries == 1:
            if masks[block] and bounds_of_one(blocks, masks, block, words, 0, numbers, offsets, hits, low, high):
                is_full = collect(0, block, 0, hits, low, high, numbers, lowest, positions, upper, counts)
        else:
            at_once = TILE_BLOCKS if num_queries >= _FEWEST_AT_ONCE and block + TILE_BLOCKS <= end else 1
            is_counted = masks[block] != 0 or masks[block + at_once - 1] != 0
            for query in range(0, num_queries if is_counted else 0, TILE_QUERIES):
                if at_once == TILE_BLOCKS:
                    any_hit = bounds_of_blocks(blocks, masks, block, words, query, numbers, offsets, hits, low, high)
                else:
                    any_hit = bounds_of_tile(blocks, masks, block, words, query, numbers, offsets, hits, low, high)
                if any_hit:
                    for one in range(at_once * TILE_QUERIES):
                        own = query + one % TILE_QUERIES
                        if own < num_queries:
                            is_full |= collect(
                                own, block + one // TILE_QUERIES, one, hits, low, high, numbers, lowest, positions,
                                upper, counts,
                            )  # fmt: skip
        block += at_once
        if is_full:
            break
    return block
