"""Rotation of rows before they are rounded to 8 bits, and of the weights that multiply them.

In the rows of a Transformer a few columns hold far larger numbers than all others, so that one scale for a row leaves
few steps for most of it. A Hadamard transform spreads each column over a block of columns (QuaRot, Ashkboos et al.
2024). With H its matrix for B columns, ``H H = B I``: products of ``H x`` and ``H w / B`` are those of x and w.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from bertkit.compiled import compiled, part
from bertkit.transformer.kernels.llvm_vectors import (
    FLOATS,
    WIDTH,
    float_products,
    pointer_of,
    shuffle,
)
from bertkit.transformer.kernels.product_tiles import for_each_case

intrinsic: Any = extending.intrinsic

_BLOCKS = tuple(count * WIDTH for count in (1, 2, 4, 8))
"""Columns of a block."""


@intrinsic
def _rotate_block(typing_context, rows, start, block):
    """Replace numbers from an index on, as many as a block has, by their Hadamard transform: sum over y of
    number y * (-1)**(bits that x and y share)."""

    def generate(context, builder, signature, arguments):
        rows, start, block = arguments

        def rotate(count: int) -> None:
            indices = [builder.add(start, start.type(WIDTH * number)) for number in range(count // WIDTH)]
            pointers = [pointer_of(context, builder, signature.args[0], rows, index)[0] for index in indices]
            vectors = [_transform_of_lanes(builder, builder.load(pointer, align=4)) for pointer in pointers]
            half = 1
            while half < len(vectors):
                for x in (x for x in range(len(vectors)) if not x & half):
                    a, b = vectors[x], vectors[x + half]
                    vectors[x], vectors[x + half] = builder.fadd(a, b), builder.fsub(a, b)
                half *= 2
            for pointer, vector in zip(pointers, vectors, strict=True):
                builder.store(vector, pointer, align=4)

        for_each_case(builder, block, _BLOCKS, rotate)
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp), generate


def _transform_of_lanes(builder: Any, vector: Any) -> Any:
    """The Hadamard transform of the numbers of a vector."""
    half = 1
    while half < WIDTH:
        other = shuffle(builder, vector, vector, [x ^ half for x in range(WIDTH)])
        signs = ir.Constant(FLOATS, [-1.0 if x & half else 1.0 for x in range(WIDTH)])
        vector = float_products(builder, vector, signs, other)
        half *= 2
    return vector


@part
def block_of(width):
    """Columns of a block: a power of two that divides the width, 1 where rows are not rotated."""
    block = 1
    while 2 * block <= _BLOCKS[-1] and width % (2 * block) == 0:
        block *= 2
    return block if block >= WIDTH else 1


@part
def rotate_row(rows, start, width):
    """Rotate the row of ``width`` numbers from an index on, in place."""
    block, end = block_of(width), start + width
    if block == 1:
        return
    for first in range(start, end, block):
        _rotate_block(rows, first, block)


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
