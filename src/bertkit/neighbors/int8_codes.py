"""float32 rows and queries as int8, with proven error bounds.

A row x is stored as x' = factor * code with int8 codes, with the length r of x - x' and the length of x. For a query q,
scaled to length 1 and stored as q' in the same way, Cauchy and Schwarz give

    |q.x - q'.x'| <= |q'| r + |q - q'| |x|

so a row whose largest possible product is below the k-th largest smallest possible product is not among the k
best. All lengths are computed in float64 and rounded up, with a margin for the rounding of sums in float32.
"""

from typing import Literal, NamedTuple

import numpy as np

from bertkit.compiled import lean
from bertkit.errors import UsageError
from bertkit.neighbors.block_sizes import BLOCK_BYTES, BOUND_BYTES, LANES, padded
from bertkit.neighbors.int8_tiles import TILE_QUERIES, WORDS

Similarity = Literal["cosine", "dot"]
"""Per row of a block: factor, length of the error, length of the row; float32."""

MAX_DIMENSIONS = 32_768
"""More dimensions could overflow 32-bit sums."""

_SLACK = 2.0**-20  # relative margin for float32 rounding of a product: some units of 2**-24
SMALLEST, LARGEST = 1e-28, 1e30  # lengths between which float32 neither overflows nor loses bits


class Queries(NamedTuple):
    """Queries as int8, padded to whole tiles; padding matches no row."""

    words: np.ndarray  # int32, in the layout of `int8_tiles`
    numbers: np.ndarray  # (n, 4) float32: scale, length, length of the error, threshold
    offsets: np.ndarray  # (n,) int32


def encode_rows(rows: np.ndarray, similarity: Similarity) -> np.ndarray:
    """Rows as int8 blocks.

    Args:
        rows: (n, dimensions) float32, finite.
        similarity: for "cosine" rows are scaled to length 1 first; no row may be zero.

    Returns:
        (ceil(n / 16), block_bytes) uint8; rows beyond n are zeros.

    Raises:
        UsageError: too many dimensions.
    """
    if rows.shape[1] > MAX_DIMENSIONS:
        raise UsageError(f"vectors have {rows.shape[1]} dimensions: expected at most {MAX_DIMENSIONS} for int8 codes")
    blocks = np.zeros((-(-len(rows) // LANES), BLOCK_BYTES["int8"](rows.shape[1])), np.uint8)
    _encode(np.ascontiguousarray(rows, np.float32), similarity == "cosine", blocks, blocks.view(np.float32))
    return blocks


@lean
def _encode(rows, is_cosine, blocks, floats):
    num_rows, dimensions = rows.shape
    codes_end = blocks.shape[1] - BOUND_BYTES
    for block in range(blocks.shape[0]):
        for position in range(codes_end):
            blocks[block, position] = 128
        for lane in range(LANES):
            row = block * LANES + lane
            if row >= num_rows:
                continue
            largest, squares = 0.0, 0.0
            for column in range(dimensions):
                value = np.float64(rows[row, column])
                largest = max(largest, abs(value))
                squares += value * value
            length = np.sqrt(squares)
            scale = 1.0 / length if is_cosine else 1.0
            length *= scale
            bounds = codes_end // 4 + lane
            if length == 0.0:
                continue
            if not (SMALLEST < length < LARGEST):  # always compared in full precision
                floats[block, bounds + LANES] = np.inf
                continue
            factor = np.float32(largest * scale / 127)
            errors = 0.0
            for column in range(dimensions):
                value = rows[row, column] * scale
                code = min(max(np.rint(value / factor), -127.0), 127.0)
                errors += (value - code * factor) ** 2
                position = (column // 4 * LANES + lane) * 4 + column % 4
                blocks[block, position] = np.uint8(np.int32(code) + 128)
            error = np.sqrt(errors)
            floats[block, bounds] = factor
            floats[block, bounds + LANES] = (error + _SLACK * (length + error)) * (1 + _SLACK)
            floats[block, bounds + 2 * LANES] = length * (1 + _SLACK)


def encode_queries(queries: np.ndarray) -> Queries:
    """Queries as int8: (n, dimensions) float32, finite; each is scaled to length 1; zero stays zero."""
    number, dimensions = queries.shape
    whole = -(-number // TILE_QUERIES) * TILE_QUERIES if number > 1 else number
    exact = queries.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    exact /= np.where(lengths > 0, lengths, 1)
    scales = np.maximum(np.abs(exact).max(axis=1, initial=0), 1e-3 / dimensions).astype(np.float32) / np.float32(127)
    codes = np.clip(np.rint(exact / scales[:, None]), -127, 127)
    kept = codes * scales[:, None].astype(np.float64)
    numbers = np.zeros((whole, 4), np.float32)
    numbers[:number, 0] = scales
    # above 0 also for a zero query: its product with an infinite error would be NaN
    numbers[:number, 1] = np.maximum(np.linalg.norm(kept, axis=1) * (1 + _SLACK), 1e-12)
    numbers[:number, 2] = np.linalg.norm(exact - kept, axis=1) * (1 + _SLACK) + 1e-12
    numbers[:, 3] = np.where(np.arange(whole) < number, -np.inf, np.inf)
    bytes_of = np.zeros((whole, padded(dimensions)), np.int8)
    bytes_of[:number, :dimensions] = codes
    offsets = 128 * bytes_of.sum(axis=1, dtype=np.int32)
    return Queries(_words(bytes_of, 1 if number == 1 else TILE_QUERIES), numbers, offsets)


def _words(codes: np.ndarray, tile: int) -> np.ndarray:
    """For every tile of queries, group of four dimensions and word: one number for each query."""
    groups = codes.reshape(len(codes) // tile, tile, -1, 4)  # (tiles, tile, G, 4)
    if WORDS == 1:
        words = np.ascontiguousarray(groups).view(np.int32)
    else:
        pairs = np.stack([groups[..., 0::2], groups[..., 1::2]], axis=-2)  # bytes 0 and 2, bytes 1 and 3
        words = np.ascontiguousarray(pairs.astype(np.int16)).view(np.int32)[..., 0]
    return np.ascontiguousarray(words.transpose(0, 2, 3, 1)).reshape(-1)
