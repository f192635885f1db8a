"""One pass over int8 blocks: the rows that can be among the k nearest of each query."""

import numpy as np

from bertkit.compiled import lean
from bertkit.neighbors.candidates import Candidates, ScanBlocks, collect, collected
from bertkit.neighbors.int8_codes import encode_queries
from bertkit.neighbors.int8_tiles import LANES, TILE_QUERIES, bounds_of_one, bounds_of_tile


def scan_for(queries: np.ndarray, rows: np.ndarray, blocks: np.ndarray, masks: np.ndarray, k: int) -> ScanBlocks:
    """See `bertkit.neighbors.scans.Scan`."""
    encoded = encode_queries(queries)

    def scan(first: int, end: int) -> Candidates:
        own = encoded._replace(numbers=encoded.numbers.copy())  # thresholds change
        size = TILE_QUERIES * LANES
        scratch = np.empty(TILE_QUERIES, np.int32), np.empty(size, np.float32), np.empty(size, np.float32)
        return collected(
            len(queries), k, first, end, lambda block, state: _scan(blocks, masks, block, end, *own, *state, *scratch)
        )

    return scan


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
