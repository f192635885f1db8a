"""`few_rows` in 8 bits: products of quantized rows, everything else in float32.

Panels of packed weights have four inputs in each row: (N / 64, K / 4, 64, 4) int8. Sums are integers, so that no order
of terms matters; but from 2^24 on, it matters whether the part of the zero point is subtracted before a sum becomes
float32, as oneDNN does, or after it, as oneDNN does with AMX.

Shape letters: M num_rows, D hidden_size, F intermediate_size, K inputs, N outputs, L layers.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import extending, types

from bertkit.compiled import compiled
from bertkit.transformer.kernels.few_rows import (
    PANEL,
    ROOM,
    after_product,
    for_each_tile,
    sums_of_tile,
    take_columns,
    tile_rows,
    with_room,
)
from bertkit.transformer.kernels.llvm_vectors import FLOATS, INT, INTS, pointer_of
from bertkit.transformer.kernels.pair_attention import attend
from bertkit.transformer.kernels.rows import Norm, Product, Quantized, gelu_rows, norm_rows, quantize_rows, read
from bertkit.transformer.kernels.shared_steps import claim, finish, wait
from bertkit.transformer.kernels.vectors import WIDTH, store

intrinsic: Any = extending.intrinsic

_STEPS = 6  # of a layer

COUNTERS = 2 * _STEPS
"""Counters of a layer."""

_BYTES = ir.VectorType(ir.IntType(8), 4 * WIDTH)


class Int8Layers(NamedTuple):
    """The weights of all layers. Of a product 6 rows: what is subtracted from sums in int32 (its bits), and then in
    float32; scales; `Product`'s weight_sums and bias, and zeros, as a vector may begin at the last columns."""

    addresses: np.ndarray  # (L, 4) int64, of the packed weights: query, key and value; output; expand; project
    query_key_value: np.ndarray  # (L, 6, 3 D) float32
    output: np.ndarray  # (L, 6, D) float32
    expand: np.ndarray  # (L, 6, F) float32
    project: np.ndarray  # (L, 6, D) float32
    attention_norm: np.ndarray  # (L, 2, D) float32, weight and bias
    feed_forward_norm: np.ndarray  # (L, 2, D) float32, weight and bias
    eps: np.ndarray  # (2,) float32, of both norms


class Int8Space(NamedTuple):
    """Memory that the threads share; arrays have ROOM rows more where it says so."""

    hidden: np.ndarray  # (M, D) float32, the input
    quantized: Quantized  # (M, D), the input
    query_key_value: np.ndarray  # (M + ROOM, 3 D) float32
    context: np.ndarray  # (M + ROOM, D) float32
    context_values: np.ndarray  # (M + ROOM, D) uint8 zeros
    context_scales: np.ndarray  # (L, M) float32 zeros
    context_middles: np.ndarray  # (L, M) float32 zeros
    attended: np.ndarray  # (L, M + ROOM, D) float32
    expanded: np.ndarray  # (M + ROOM, F) float32
    expanded_values: np.ndarray  # (M + ROOM, F) uint8
    expanded_scales: np.ndarray  # (L, M) float32
    expanded_middles: np.ndarray  # (L, M) float32
    projected: np.ndarray  # (L, M + ROOM, D) float32
    counters: np.ndarray  # (COUNTERS * L,) int64 zeros


@compiled
def encode_few_rows_int8(layers, space, num_rows, num_heads, cu_seqlens, bias):
    """All layers: a share of the work on this thread, the rest on other threads that call it with the same arguments.

    Args:
        num_rows: M, a key of TILE_ROWS.
        bias: as of `attend_tiles`.

    Returns:
        (M + ROOM, D) float32 hidden states, the same on all threads.
    """
    counters, (_, width), wide = space.counters, space.hidden.shape, space.expanded.shape[1]
    hidden, attended = with_room(space.hidden), with_room(space.hidden)  # each thread has its own
    given = space.quantized
    hidden_bytes = Quantized(with_room(given.values), given.scales.copy(), given.middles.copy())
    attended_bytes = Quantized(with_room(given.values), given.scales.copy(), given.middles.copy())
    columns = np.zeros(num_rows * max(width, wide) // 4 + WIDTH, np.float32)
    for layer in range(len(layers.addresses)):
        weights, step = layers.addresses[layer], _STEPS * layer
        vectors = layers.query_key_value[layer]
        multiply_int8(
            counters, step, hidden_bytes.values, num_rows, weights[0], vectors, space.query_key_value, columns
        )
        context = Quantized(space.context_values, space.context_scales[layer], space.context_middles[layer])
        if claim(counters, step + 1) == 0:
            product = product_of(space.query_key_value, hidden_bytes, vectors)
            attend(product, cu_seqlens, num_heads, space.context, context, None, None, bias)
            finish(counters, step + 1)
        wait(counters, step + 1, 1)
        vectors = layers.output[layer]
        multiply_int8(counters, step + 2, context.values, num_rows, weights[1], vectors, space.attended[layer], columns)
        norm = Norm(layers.attention_norm[layer, 0], layers.attention_norm[layer, 1], layers.eps[0])
        product = product_of(space.attended[layer], context, vectors)
        norm_rows(product, hidden, norm, attended[:num_rows], attended_bytes)
        vectors = layers.expand[layer]
        multiply_int8(counters, step + 3, attended_bytes.values, num_rows, weights[2], vectors, space.expanded, columns)
        expanded = Quantized(space.expanded_values, space.expanded_scales[layer], space.expanded_middles[layer])
        row = claim(counters, step + 4)
        while row < num_rows:
            product = product_of(space.expanded[row : row + 1], rows_of(attended_bytes, row), vectors)
            gelu_rows(product, rows_of(expanded, row))
            finish(counters, step + 4)
            row = claim(counters, step + 4)
        wait(counters, step + 4, num_rows)
        vectors = layers.project[layer]
        multiply_int8(
            counters, step + 5, expanded.values, num_rows, weights[3], vectors, space.projected[layer], columns
        )
        norm = Norm(layers.feed_forward_norm[layer, 0], layers.feed_forward_norm[layer, 1], layers.eps[1])
        product = product_of(space.projected[layer], expanded, vectors)
        norm_rows(product, attended, norm, hidden[:num_rows], hidden_bytes)
    return hidden


@compiled
def rows_of(quantized, row):
    """One row, as a view."""
    end = row + 1
    return Quantized(quantized.values[row:end], quantized.scales[row:end], quantized.middles[row:end])


@compiled
def product_of(values, quantized, vectors):
    """The products of quantized rows."""
    return Product(values, quantized.scales, quantized.middles, vectors[3], vectors[4])


@compiled
def multiply_int8(counters, step, x, num_rows, address, vectors, out, columns):
    """One step: the values of a `Product`.

    Args:
        x: (M + ROOM, K) uint8, K a multiple of 64.
        address: of the packed (N, K) weight, N a multiple of PANEL.
        vectors: (6, N) float32: of `Int8Layers`.
        out: (M + ROOM, N) float32.
        columns: memory of this thread: M * K / 4 + 16 numbers.
    """
    groups, num_units, tile = x.shape[1] // 4, out.shape[1] // PANEL, tile_rows(num_rows)
    has_columns = False
    unit = claim(counters, step)
    while unit < num_units:
        if not has_columns:
            take_columns(x.view(np.float32), num_rows, tile, columns)
            has_columns = True
        multiply_int8_panel(columns, num_rows, tile, address, unit, groups, vectors, out)
        finish(counters, step)
        unit = claim(counters, step)
    wait(counters, step, num_units)


@compiled
def multiply_int8_panel(columns, num_rows, tile, address, unit, groups, vectors, out):
    """One unit of `multiply_int8`, the columns of a panel; ``groups`` are those of four inputs."""
    weights = address + 4 * unit * PANEL * groups
    for row in range(0, num_rows, tile):
        multiply_int8_tile(columns, row * groups, tile, weights, groups, vectors, unit * PANEL, out.shape[1], out, row)


@compiled
def multiply_rounded(counters, step, x, num_rows, address, vectors, then, residual, out, columns):
    """One step of `RoundedLinear`: ``out = x W^T + bias``, then one of PLAIN to RELU.

    Args:
        x: (M + ROOM, K) float32, K a multiple of 64; each thread quantizes it.
        residual: (M, N) float32, read for ADD only.
        address, vectors, out, columns: as of `multiply_int8`.
    """
    width, num_outputs = x.shape[1], out.shape[1]
    num_units, tile = num_outputs // PANEL, tile_rows(num_rows)
    values = np.empty((num_rows + ROOM, width), np.uint8)
    quantized = Quantized(values, np.empty(num_rows, np.float32), np.empty(num_rows, np.float32))
    product = product_of(out, quantized, vectors)
    has_columns = False
    unit = claim(counters, step)
    while unit < num_units:
        if not has_columns:
            quantize_rows(x, 0, num_rows, quantized)
            take_columns(values.view(np.float32), num_rows, tile, columns)
            has_columns = True
        multiply_int8_panel(columns, num_rows, tile, address, unit, width // 4, vectors, out)
        for row in range(num_rows):
            for c in range(unit * PANEL, (unit + 1) * PANEL, WIDTH):
                at = row * num_outputs + c
                store(out, at, after_product(read(product, row, c), out, then, residual, at))
        finish(counters, step)
        unit = claim(counters, step)
    wait(counters, step, num_units)


@intrinsic
def multiply_int8_tile(
    typing_context, columns, at, num_rows, address, count, vectors, column, num_outputs, out, first_row
):
    """Rows ``first_row`` on, columns ``column`` on, of the values of a product: a tile.

    Args:
        columns: float32 that hold four bytes each; those of row r and group k at ``at + k * num_rows + r``.
        num_rows: one of the values of TILE_ROWS.
        address: of (count, 64, 4) weights.
    """

    def generate(context, builder, signature, arguments):
        _, at, num_rows, address, count, _, column, num_outputs, _, first_row = arguments

        def pointer(number: int, index: Any, kind: ir.Type) -> Any:
            element = pointer_of(context, builder, signature.args[number], arguments[number], index)[0]
            return builder.bitcast(element, kind.as_pointer())

        inputs, weights = pointer(0, at, INT), builder.inttoptr(address, INTS.as_pointer())
        twice = builder.add(num_outputs, num_outputs)
        vectors = (
            pointer(5, column, INTS),
            pointer(5, builder.add(num_outputs, column), FLOATS),
            pointer(5, builder.add(twice, column), FLOATS),
        )

        def tile(rows: int) -> None:
            num_vectors = PANEL // WIDTH
            zeros = [ir.Constant(INTS, None)] * (rows * num_vectors)
            none, all_lines = count.type(0), count.type(num_vectors)
            sums = sums_of_tile(builder, rows, inputs, weights, count, _byte_products, zeros, none, all_lines)
            for number, each in enumerate(sums):
                r, v = divmod(number, num_vectors)
                row = builder.add(first_row, first_row.type(r))
                index = builder.add(builder.mul(row, num_outputs), builder.add(column, column.type(v * WIDTH)))
                before, after, scale = (builder.load(builder.gep(part, [INT(v)]), align=4) for part in vectors)
                value = builder.fsub(builder.sitofp(builder.sub(each, before), FLOATS), after)
                builder.store(builder.fmul(value, scale), pointer(8, index, FLOATS), align=4)

        for_each_tile(builder, num_rows, tile)
        return context.get_dummy_value()

    kinds = (columns, *[types.intp] * 4, vectors, types.intp, types.intp, out, types.intp)
    return types.void(*kinds), generate


def _byte_products(builder: Any, sums: Any, weights: Any, number: Any) -> Any:
    """sums + the products of four unsigned bytes of a row and four weights, in each lane."""
    name = "llvm.x86.avx512.vpdpbusd.512"
    kind = ir.FunctionType(INTS, [INTS, _BYTES, _BYTES])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, [sums, builder.bitcast(number, _BYTES), builder.bitcast(weights, _BYTES)])
