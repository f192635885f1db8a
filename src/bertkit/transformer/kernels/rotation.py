"""Rotation of rows before they are rounded to 8 bits, and of the weights that multiply them.

In the rows of a Transformer a few columns hold far larger numbers than all others, so that one scale for a row leaves
few steps for most of it. A Hadamard transform spreads each column over a block of columns (QuaRot, Ashkboos et al.
2024). With H its matrix for B columns, ``H H = B I``: products of ``H x`` and ``H w / B`` are those of x and w.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending

from bertkit.compiled import compiled, part
from bertkit.transformer.kernels.llvm_vectors import (
    FLOATS,
    VECTOR,
    WIDTH,
    float_products,
    shuffle,
)
from bertkit.transformer.kernels.vectors import load, store

intrinsic: Any = extending.intrinsic

_LARGEST_BLOCK = 8 * WIDTH
"""Columns of a block at most."""


@intrinsic
def combine_lanes(typing_context, a):
    """The Hadamard transform of the lanes: sum over y of a[y] * (-1)**(number of bits that x and y share)."""

    def generate(context, builder, signature, arguments):
        (vector,) = arguments
        for half in (1, 2, 4, 8):
            other = shuffle(builder, vector, vector, [x ^ half for x in range(WIDTH)])
            signs = ir.Constant(FLOATS, [-1.0 if x & half else 1.0 for x in range(WIDTH)])
            vector = float_products(builder, vector, signs, other)
        return vector

    return VECTOR(VECTOR), generate


@part
def block_of(width):
    """Columns of a block: a power of two that divides the width, 1 where rows are not rotated."""
    block = 1
    while 2 * block <= _LARGEST_BLOCK and width % (2 * block) == 0:
        block *= 2
    return block if block >= WIDTH else 1


@part
def rotate_row(rows, start, width):
    """Rotate the row of ``width`` numbers from an index on, in place."""
    block, end = block_of(width), start + width
    if block == 1:
        return
    for c in range(start, end, WIDTH):
        store(rows, c, combine_lanes(load(rows, c)))
    stride = WIDTH
    while stride < block:
        for first in range(start, end, 2 * stride):
            for c in range(first, first + stride, WIDTH):
                left, right = load(rows, c), load(rows, c + stride)
                store(rows, c, left + right)
                store(rows, c + stride, left - right)
        stride *= 2


@compiled
def _rotate_rows(rows):
    num_rows, width = rows.shape
    for row in range(num_rows):
        rotate_row(rows, row * width, width)


def rotated(rows: np.ndarray, is_weight: bool = False) -> np.ndarray:
    """(M, K) rows as `rows.quantize_row` rounds them, or (N, K) weights that multiply such rows; float32."""
    block = block_of(rows.shape[1])
    if block == 1:
        return rows
    rows = rows.astype(np.float32, order="C")
    _rotate_rows(rows)
    return rows / np.float32(block) if is_weight else rows
