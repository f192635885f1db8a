"""Rotation of rows before they are rounded to 8 bits, and of the weights that multiply them.

In the rows of a Transformer a few columns hold far larger numbers than all others, so that one scale for a row leaves
few steps for most of it. A Hadamard transform spreads each column over a block of columns (QuaRot, Ashkboos et al.
2024). With H its matrix for B columns, ``H H = B I``: products of ``H x`` and ``H w / B`` are those of x and w.
"""

import numpy as np

from bertkit.compiled import compiled, part
from bertkit.transformer.kernels.llvm_vectors import WIDTH, adds_pairs_of_bytes
from bertkit.transformer.kernels.vectors import combine_lanes, load, store

_LARGEST_BLOCK = 8 * WIDTH if adds_pairs_of_bytes() else 1
"""Columns of a block at most. Where pairs of products are added in 16 bits, weights lose a part of their 8 bits."""


@part
def rotate_line(line, width):
    """Rotate a row of ``width`` columns in place, by blocks of a power of two that divides it; returns their size."""
    block = 1
    while 2 * block <= _LARGEST_BLOCK and width % (2 * block) == 0:
        block *= 2
    if block < WIDTH:
        return 1
    for c in range(0, width, WIDTH):
        store(line, c, combine_lanes(load(line, c)))
    stride = WIDTH
    while stride < block:
        for start in range(0, width, 2 * stride):
            for c in range(start, start + stride, WIDTH):
                left, right = load(line, c), load(line, c + stride)
                store(line, c, left + right)
                store(line, c + stride, left - right)
        stride *= 2
    return block


@compiled
def _rotate_rows(rows, is_weight):
    for row in range(len(rows)):
        block = rotate_line(rows[row], rows.shape[1])
        if is_weight:
            rows[row] /= np.float32(block)


def rotated(rows: np.ndarray, is_weight: bool = False) -> np.ndarray:
    """(M, K) rows as `rows.quantize_row` rounds them, or (N, K) weights that multiply such rows; float32."""
    rows = np.array(rows, np.float32, order="C")
    _rotate_rows(rows, is_weight)
    return rows
