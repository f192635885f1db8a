"""Approximate nearest neighbors by one pass over the signs of the rows; the best by sign are compared in float32.

A row x is taken for f sign(x), with one factor f for each row: the one that makes the product of the row with itself
right, f = |x|^2 / (sum of |x_i|) (as RaBitQ does, Gao and Long 2024, without its rotation). A query is rounded to
four bits, and its product with signs is a count of bits. A block holds sixteen rows: for every 32 dimensions sixteen
words of signs, then sixteen factors.
"""

from typing import Any

import numpy as np
from numba import extending, types

from bertkit.compiled import lean
from bertkit.neighbors.block_sizes import BLOCK_BYTES, LANES
from bertkit.neighbors.candidates import Candidates, ScanBlocks, collect, collected
from bertkit.neighbors.int8_codes import Similarity

SCORED_AGAIN, SCORED_AGAIN_AT_LEAST = 20, 400
"""Number of rows compared in float32: for each row of the result, and at least."""

_PLANES = 4
intrinsic: Any = extending.intrinsic


def encode_rows(rows: np.ndarray, similarity: Similarity) -> np.ndarray:
    """Signs and factors of (n, dimensions) float32 rows: (ceil(n / 16), block_bytes) uint8; zeros beyond n."""
    num_blocks = -(-len(rows) // LANES)
    words = np.zeros((num_blocks * LANES, BLOCK_BYTES["1-bit"](rows.shape[1]) // (4 * LANES)), np.uint32)
    words[: len(rows), :-1] = _packed(rows > 0)
    words[: len(rows), -1] = _factors(rows.astype(np.float64), similarity).view(np.uint32)
    lanes_last = words.reshape(num_blocks, LANES, -1).transpose(0, 2, 1)
    return np.ascontiguousarray(lanes_last).reshape(num_blocks, -1).view(np.uint8)


def _factors(rows: np.ndarray, similarity: Similarity) -> np.ndarray:
    lengths, sums = np.linalg.norm(rows, axis=1), np.abs(rows).sum(axis=1)
    factors = np.divide(lengths, sums, where=sums > 0, out=np.zeros(len(rows)))
    return (factors if similarity == "cosine" else factors * lengths).clip(max=1e30).astype(np.float32)


def num_compared(k: int) -> int:
    """Number of rows to compare in float32 for a result of ``k``."""
    return max(SCORED_AGAIN * k, SCORED_AGAIN_AT_LEAST)


def scan_for(queries: np.ndarray, rows: np.ndarray, blocks: np.ndarray, masks: np.ndarray, k: int) -> ScanBlocks:
    """See `bertkit.neighbors.scans.Scan`; the bounds are estimates, so a row that is among the nearest can be
    missing."""
    planes = _planes(queries)

    def scan(first: int, end: int) -> Candidates:
        thresholds = np.full((len(queries), 4), -np.inf, np.float32)
        hits, products, estimates = np.empty(1, np.int32), np.empty(LANES, np.int32), np.empty(LANES, np.float32)

        def step(block: int, candidates: Candidates) -> int:
            return _scan(
                blocks.view(np.uint32), blocks.view(np.float32), masks, block, end, planes, thresholds, *candidates,
                hits, products, estimates,
            )  # fmt: skip

        return collected(len(queries), k, first, end, step)

    return scan


def _planes(queries: np.ndarray) -> np.ndarray:
    """(n, dimensions) -> (n, 4, words) uint32: the bits of numbers from -7 to 7, of value 1, 2, 4 and -8."""
    largest = np.abs(queries).max(axis=1, keepdims=True).astype(np.float64)
    numbers = np.rint(queries / np.where(largest > 0, largest, 1) * 7).astype(np.int64)
    return np.stack([_packed((numbers >> plane & 1).astype(bool)) for plane in range(_PLANES)], axis=1)


def _packed(flags: np.ndarray) -> np.ndarray:
    """(n, dimensions) bool -> (n, ceil(dimensions / 32)) uint32."""
    whole = np.zeros((len(flags), -(-flags.shape[1] // 32) * 32), bool)
    whole[:, : flags.shape[1]] = flags
    return np.packbits(whole, axis=1, bitorder="little").view("<u4")


@intrinsic
def _num_bits(typing_context, word):
    """Number of bits that are set in an uint32."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint32(types.uint32), generate


@lean
def _scan(
    blocks, factors, masks, first, end, planes, thresholds, lowest, positions, upper, counts, hits, products, estimates
):
    """Scan blocks; returns the block where it stopped: the end, or earlier if a query ran out of room.

    The product of a query and signs of +1 and -1 is twice the sum over the positive signs, less a constant of the
    query, which is the sum of its numbers.
    """
    num_queries, num_words = len(planes), planes.shape[2]
    for block in range(first, end):
        if masks[block] == 0:
            continue
        is_full = False
        for query in range(num_queries):
            total = 0
            for lane in range(LANES):
                products[lane] = 0
            for word in range(num_words):
                one, two = planes[query, 0, word], planes[query, 1, word]
                four, eight = planes[query, 2, word], planes[query, 3, word]
                total += np.int64(_num_bits(one)) + 2 * np.int64(_num_bits(two))
                total += 4 * np.int64(_num_bits(four)) - 8 * np.int64(_num_bits(eight))
                for lane in range(LANES):
                    signs = blocks[block, word * LANES + lane]
                    low = _num_bits(signs & one) + (_num_bits(signs & two) << np.uint32(1))
                    high = (_num_bits(signs & four) << np.uint32(2)) - (_num_bits(signs & eight) << np.uint32(3))
                    products[lane] += np.int32(low + high)
            hits[0] = 0
            for lane in range(LANES):
                estimates[lane] = np.float32(2 * products[lane] - total) * factors[block, num_words * LANES + lane]
                if estimates[lane] >= thresholds[query, 3]:
                    hits[0] |= 1 << lane
            hits[0] &= masks[block]
            if hits[0]:
                is_full |= collect(
                    query, block, 0, hits, estimates, estimates, thresholds, lowest, positions, upper, counts
                )
        if is_full:
            return block + 1
    return end
