"""Exact nearest neighbors by one pass over float32 rows: no codes beside them, four times the memory traffic of int8.

A product of a query q and a row x, summed in float32 in any order, differs from the true one by at most g |q| |x| with
g = n u / (1 - n u) for n dimensions and u = 2**-24 (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). A
block of sixteen rows holds, for each row, the factor that makes the product a similarity, and the length of the row
after it.
"""

import numpy as np

from bertkit.compiled import lean_sums
from bertkit.neighbors.block_sizes import LANES
from bertkit.neighbors.candidates import Candidates, ScanBlocks, collect, collected
from bertkit.neighbors.int8_codes import LARGEST, SMALLEST, Similarity

_UNIT = 2.0**-24
_TILE = 4  # queries compared with a row that was read once
_SLACK = 2.0**-20


def encode_rows(rows: np.ndarray, similarity: Similarity) -> np.ndarray:
    """Factors and lengths of (n, dimensions) float32 rows: (ceil(n / 16), block_bytes) uint8; zeros beyond n."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    is_kept = (lengths > SMALLEST) & (lengths < LARGEST)
    factors = np.divide(1, lengths, where=is_kept, out=np.zeros(len(rows))) if similarity == "cosine" else 1.0 * is_kept
    blocks = np.zeros((-(-len(rows) // LANES), 2, LANES), np.float32)
    numbers, lanes = np.divmod(np.arange(len(rows)), LANES)
    blocks[numbers, 0, lanes] = factors
    blocks[numbers, 1, lanes] = np.where(is_kept, lengths * factors * (1 + _SLACK), np.where(lengths > 0, np.inf, 0))
    return blocks.reshape(len(blocks), -1).view(np.uint8)


def scan_for(queries: np.ndarray, rows: np.ndarray, blocks: np.ndarray, masks: np.ndarray, k: int) -> ScanBlocks:
    """See `bertkit.neighbors.scans.Scan`."""
    dimensions = rows.shape[1]
    error = np.float32((dimensions + 4) * _UNIT / (1 - (dimensions + 4) * _UNIT) * (1 + _SLACK))
    exact = queries.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    unit = np.zeros((-(-len(queries) // _TILE) * _TILE, dimensions), np.float32)
    unit[: len(queries)] = exact / np.where(lengths > 0, lengths, 1)

    def scan(first: int, end: int) -> Candidates:
        thresholds = np.full((len(queries), 4), -np.inf, np.float32)
        low, high, sums = (np.empty(_TILE * LANES, np.float32) for _ in range(3))
        hits = np.empty(_TILE, np.int32)

        def step(block: int, candidates: Candidates) -> int:
            return _scan(
                rows,
                blocks.view(np.float32),
                masks,
                block,
                end,
                unit,
                error,
                thresholds,
                *candidates,
                hits,
                sums,
                low,
                high,
            )

        return collected(len(queries), k, first, end, step)

    return scan


@lean_sums
def _scan(
    rows, bounds, masks, first, end, queries, error, thresholds, lowest, positions, upper, counts, hits, sums, low, high
):
    """Scan blocks; returns the block where it stopped: the end, or earlier if a query ran out of room."""
    num_queries, dimensions = len(lowest), rows.shape[1]
    for block in range(first, end):
        if masks[block] == 0:
            continue
        num_lanes = min(LANES, len(rows) - block * LANES)
        is_full = False
        for query in range(0, num_queries, _TILE):
            for lane in range(num_lanes):
                row = block * LANES + lane
                if num_queries == 1:
                    total = np.float32(0)
                    for column in range(dimensions):
                        total += rows[row, column] * queries[0, column]
                    sums[lane] = total
                else:
                    total, total_1, total_2, total_3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
                    for column in range(dimensions):
                        value = rows[row, column]
                        total += value * queries[query, column]
                        total_1 += value * queries[query + 1, column]
                        total_2 += value * queries[query + 2, column]
                        total_3 += value * queries[query + 3, column]
                    sums[lane], sums[LANES + lane] = total, total_1
                    sums[2 * LANES + lane], sums[3 * LANES + lane] = total_2, total_3
            for one in range(min(_TILE, num_queries - query)):
                hits[one] = 0
                for lane in range(num_lanes):
                    index = one * LANES + lane
                    width = bounds[block, LANES + lane] * error
                    if width == np.inf:
                        low[index], high[index] = -np.inf, np.inf
                    else:
                        estimate = sums[index] * bounds[block, lane]
                        low[index], high[index] = estimate - width, estimate + width
                    if high[index] >= thresholds[query + one, 3]:
                        hits[one] |= 1 << lane
                hits[one] &= masks[block]
                if hits[one]:
                    is_full |= collect(
                        query + one, block, one, hits, low, high, thresholds, lowest, positions, upper, counts
                    )
        if is_full:
            return block + 1
    return end
