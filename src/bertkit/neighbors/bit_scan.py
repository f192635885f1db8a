"""Approximate nearest neighbors by one pass over the signs of the rows, with the nearest by sign compared in float32.

A block holds the signs of sixteen rows, one bit for each dimension: for every 32 dimensions sixteen words.
"""

from typing import Any

import numpy as np
from numba import extending, types

from bertkit.compiled import lean
from bertkit.neighbors.exact_scores import best
from bertkit.neighbors.int8_codes import Similarity
from bertkit.neighbors.int8_scan import replace_smallest
from bertkit.neighbors.int8_tiles import LANES
from bertkit.neighbors.proved import Nearest, RowMask, on_cores

QUERIES_AT_ONCE = 64
SCORED_AGAIN, SCORED_AGAIN_AT_LEAST = 20, 1000
"""Number of rows compared in float32: for each row of the result, and at least."""

_POSITION_BITS = 40
intrinsic: Any = extending.intrinsic


def block_bytes(dimensions: int) -> int:
    """Bytes of a block of sixteen rows."""
    return -(-dimensions // 32) * LANES * 4


def encode_rows(rows: np.ndarray, similarity: Similarity) -> np.ndarray:
    """Signs of (n, dimensions) float32 rows: (ceil(n / 16), block_bytes) uint8; zeros beyond n."""
    num_blocks = -(-len(rows) // LANES)
    words = np.zeros((num_blocks * LANES, block_bytes(rows.shape[1]) // (4 * LANES)), np.uint32)
    words[: len(rows)] = _signs(rows)
    lanes_last = words.reshape(num_blocks, LANES, -1).transpose(0, 2, 1)
    return np.ascontiguousarray(lanes_last).reshape(num_blocks, -1).view(np.uint8)


def nearest(
    queries: np.ndarray,
    rows: np.ndarray,
    blocks: np.ndarray,
    k: int,
    similarity: Similarity,
    mask: RowMask | None = None,
) -> list[Nearest]:
    """The ``k`` rows with the largest similarity among those whose signs agree most with the query's.

    As `bertkit.neighbors.proved.nearest`, but approximate: a row that is among the nearest can be missing.
    """
    mask = RowMask.of(len(rows)) if mask is None else mask
    k = min(k, mask.num_rows)
    if k == 0:
        return [Nearest(np.empty(0, np.int64), np.empty(0), 0) for _ in queries]
    number = min(max(SCORED_AGAIN * k, SCORED_AGAIN_AT_LEAST), mask.num_rows)
    results = []
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        part = queries[start : start + QUERIES_AT_ONCE]
        signs = _signs(part)

        def scan(first: int, end: int, signs: np.ndarray = signs) -> np.ndarray:
            keys = np.full((len(signs), number), np.iinfo(np.int64).min)
            _scan(blocks.view(np.uint32), mask.bits, first, end, signs, keys, np.empty(LANES, np.uint32))
            return keys

        keys = np.concatenate(on_cores(scan, len(mask.bits)), axis=1)
        keys = np.partition(keys, -number, axis=1)[:, -number:]
        for query, own in zip(part, keys, strict=True):
            positions = -own & ((1 << _POSITION_BITS) - 1)
            results.append(Nearest(*best(query, rows, positions, k, similarity), number))
    return results


def _signs(rows: np.ndarray) -> np.ndarray:
    """(n, dimensions) -> (n, ceil(dimensions / 32)) uint32, a bit for every positive number."""
    positive = np.zeros((len(rows), -(-rows.shape[1] // 32) * 32), bool)
    positive[:, : rows.shape[1]] = rows > 0
    return np.packbits(positive, axis=1, bitorder="little").view("<u4")


@intrinsic
def _num_bits(typing_context, word):
    """Number of bits that are set in an uint32."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint32(types.uint32), generate


@lean
def _scan(blocks, masks, first, end, signs, keys, distances):
    """Keep the rows with the fewest different signs for every query, earlier rows first: the key of a row is minus
    (distance, position), and a row of ``keys`` a heap of the largest."""
    num_words = signs.shape[1]
    for block in range(first, end):
        mask = masks[block]
        if mask == 0:
            continue
        for query in range(len(signs)):
            for lane in range(LANES):
                distances[lane] = 0
            for word in range(num_words):
                own = signs[query, word]
                for lane in range(LANES):
                    distances[lane] += _num_bits(blocks[block, word * LANES + lane] ^ own)
            for lane in range(LANES):
                key = -((np.int64(distances[lane]) << _POSITION_BITS) | np.int64(block * LANES + lane))
                if key > keys[query, 0] and mask >> lane & 1:
                    replace_smallest(keys, query, key)
