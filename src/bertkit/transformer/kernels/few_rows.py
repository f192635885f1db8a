"""Encoder layers of a few rows in float32 or bfloat16, compiled as a whole: one short text at a time.

The product of a few rows takes as long as reading the weights. Here weights are prefetched, and no Python runs between
the steps, which threads share (`shared_steps`). The weights are those packed by oneDNN, in panels of 64 outputs:
(N / 64, K, 64) float32, or (N / 64, K / 2, 64, 2) bfloat16. Terms are added in the order of oneDNN, which makes the
bits those of larger batches: products of ``block`` inputs are added up from 0 in float32, then the sums of the blocks
in turn, then bias and residual. Rows of bfloat16 are multiplied with either, as in `OneDNNLinear` and `WidenedLinear`.

Arrays of bfloat16 are uint16; biases have the dtype of the weights. Shape letters: M num_rows, D hidden_size,
F intermediate_size, K inputs, N outputs, L layers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.extending import overload

from bertkit.compiled import compiled, part
from bertkit.transformer.kernels.llvm_vectors import (
    FLOAT,
    FLOATS,
    INT,
    SHORTS,
    bfloat16_products,
    in_all_lanes,
    llvm_function,
    pointer_of,
    suffix,
    widen,
)
from bertkit.transformer.kernels.pair_attention import attend
from bertkit.transformer.kernels.rows import Norm, norm_rows
from bertkit.transformer.kernels.shared_steps import claim, finish, wait
from bertkit.transformer.kernels.vector_functions import gelu, gelu_tanh, normal, silu
from bertkit.transformer.kernels.vectors import WIDTH, broadcast, larger, load, rounded_as, store, transpose

intrinsic: Any = extending.intrinsic

PANEL = 64
"""Outputs of a panel of packed weights."""

ROOM = WIDTH
"""Unused rows at the end of an array: rows are read in blocks of sixteen."""

TILE_ROWS = {1: 1, 2: 2, 4: 4, 8: 4, 12: 6, 14: 2, 16: 4, 24: 6, 32: 4, 48: 6}
"""Number of rows -> rows of a tile, whose sums for a panel are kept in registers. Tiles are as wide as a panel, since
weights that are read in the order of memory arrive up to 1.7 times as fast (AMD EPYC, Zen 4)."""

PLAIN, ADD, GELU, GELU_TANH, SILU, RELU = range(6)
"""What a product does after adding the bias: nothing, add the residual, or an activation. Callers pass
``np.intp(GELU)``: for plain constants numba would compile the product again for each value."""

CODES = {"gelu": GELU, "gelu_new": GELU_TANH, "silu": SILU, "relu": RELU}
"""Codes of activations by their names in ACTIVATIONS."""

_STEPS = 5  # of a layer

COUNTERS = 2 * _STEPS
"""Counters of a layer."""

_CHUNK = 32
"""Rows of a panel that all tiles of rows multiply before the next ones, which are read from memory meanwhile."""

_AHEAD = 32  # rows of a panel between a weight and the one that is requested from memory


class Layers(NamedTuple):
    """The weights of all layers."""

    packed: np.ndarray  # (0,) in the dtype of the packed weights
    addresses: np.ndarray  # (L, 4) int64, of the packed weights: query, key and value; output; expand; project
    blocks: np.ndarray  # (4,) int64, inputs whose products oneDNN adds up at a time
    query_key_value_bias: np.ndarray  # (L, 3 D) in the dtype of the weights, as those below
    output_bias: np.ndarray  # (L, D)
    expand_bias: np.ndarray  # (L, F)
    project_bias: np.ndarray  # (L, D)
    attention_norm: np.ndarray  # (L, 2, D) float32, weight and bias
    feed_forward_norm: np.ndarray  # (L, 2, D) float32, weight and bias
    eps: np.ndarray  # (2,) float32, of both norms
    activation: np.intp  # GELU to RELU


class Space(NamedTuple):
    """Memory that the threads share, float32 or bfloat16; arrays have ROOM rows more where it says so."""

    hidden: np.ndarray  # (M, D), the input
    query_key_value: np.ndarray  # (M + ROOM, 3 D)
    context: np.ndarray  # (M + ROOM, D) zeros
    attended: np.ndarray  # (L, M + ROOM, D)
    expanded: np.ndarray  # (M + ROOM, F)
    projected: np.ndarray  # (L, M + ROOM, D)
    counters: np.ndarray  # (COUNTERS * L,) int64 zeros


@compiled
def encode_few_rows(layers, space, num_rows, num_heads, cu_seqlens, bias):
    """All layers: a share of the work on this thread, the rest on other threads that call it with the same arguments.

    Args:
        num_rows: M, a key of TILE_ROWS.
        bias: as of `attend_tiles`.

    Returns:
        (M + ROOM, D) hidden states, the same on all threads.
    """
    counters, (_, width), wide = space.counters, space.hidden.shape, space.expanded.shape[1]
    hidden, attended = with_room(space.hidden), with_room(space.hidden)  # each thread has its own
    columns = np.zeros(num_rows * max(width, wide) + WIDTH, np.float32)
    sums = np.zeros((2, num_rows * PANEL), np.float32)
    for layer in range(len(layers.addresses)):
        weights, blocks, step = layers.addresses[layer], layers.blocks, _STEPS * layer
        multiply(
            counters, step, hidden, num_rows, weights[0], layers.packed, blocks[0], layers.query_key_value_bias[layer],
            np.intp(PLAIN), hidden, space.query_key_value, columns, sums,
        )  # fmt: skip
        if claim(counters, step + 1) == 0:
            attend(space.query_key_value, cu_seqlens, num_heads, space.context, None, None, None, bias)
            finish(counters, step + 1)
        wait(counters, step + 1, 1)
        multiply(
            counters, step + 2, space.context, num_rows, weights[1], layers.packed, blocks[1],
            layers.output_bias[layer], np.intp(ADD), hidden, space.attended[layer], columns, sums,
        )  # fmt: skip
        norm = Norm(layers.attention_norm[layer, 0], layers.attention_norm[layer, 1], layers.eps[0])
        norm_rows(space.attended[layer][:num_rows], None, norm, attended[:num_rows], None)
        multiply(
            counters, step + 3, attended, num_rows, weights[2], layers.packed, blocks[2], layers.expand_bias[layer],
            layers.activation, attended, space.expanded, columns, sums,
        )  # fmt: skip
        multiply(
            counters, step + 4, space.expanded, num_rows, weights[3], layers.packed, blocks[3],
            layers.project_bias[layer], np.intp(ADD), attended, space.projected[layer], columns, sums,
        )  # fmt: skip
        norm = Norm(layers.feed_forward_norm[layer, 0], layers.feed_forward_norm[layer, 1], layers.eps[1])
        norm_rows(space.projected[layer][:num_rows], None, norm, hidden[:num_rows], None)
    return hidden


@part
def with_room(rows):
    """A copy of (M, D) rows with ROOM rows of zeros after them."""
    num_rows, width = rows.shape
    copied = np.zeros((num_rows + ROOM, width), rows.dtype)
    for row in range(num_rows):
        for c in range(width):
            copied[row, c] = rows[row, c]
    return copied


def words_of(x, bias):
    """Rows of what is multiplied at a time, an element or two of bfloat16: with weights of bfloat16 as float32."""
    raise NotImplementedError


@overload(words_of)
def _words_of(x, bias):
    if x.dtype == bias.dtype:
        return lambda x, bias: x.view(np.float32)
    return lambda x, bias: x


@compiled
def multiply(counters, step, x, num_rows, address, packed, block, bias, then, residual, out, columns, sums):
    """One step: ``out = x W^T + bias``, then one of PLAIN to RELU.

    Args:
        x: (M, K) float32 or bfloat16, K a multiple of 16, for products of bfloat16 of 32.
        num_rows: M, a key of TILE_ROWS or a multiple of 8 or 12; ``x`` has ROOM rows more.
        address: of the packed (N, K) weight, N a multiple of PANEL.
        packed: an array in the dtype of the packed weight. With bfloat16 and a bias in float32, weights are (N / 64, K,
            64) and products are in float32.
        bias: (N,) in the dtype of products.
        residual: (M, N), read for ADD only.
        columns, sums: memory of this thread: M * K + 16 numbers, and (2, M * PANEL).
    """
    words, num_outputs, size = words_of(x, bias), out.shape[1], 4 if packed.itemsize == bias.itemsize else 2
    num_words, block = words.shape[1], block * words.shape[1] // x.shape[1]
    num_units, tile = num_outputs // PANEL, tile_rows(num_rows)
    chunk = num_words if num_rows == tile else _CHUNK
    lines = max(1, PANEL // WIDTH // (num_rows // tile))  # requested from memory for each row of a panel and tile
    has_columns = False
    unit = claim(counters, step)
    while unit < num_units:
        if not has_columns:
            take_columns(words, num_rows, tile, columns)
            has_columns = True
        panel = address + size * unit * PANEL * num_words
        for start in range(0, num_words, block):
            end, own = min(start + block, num_words), sums[min(start, 1)]
            for first in range(start, end, chunk):
                count = min(chunk, end - first)
                weights = panel + size * first * PANEL
                for row in range(0, num_rows, tile):
                    at, to, fetched = row * num_words + first * tile, row * PANEL, row // tile * count * lines
                    multiply_tile(
                        packed, bias, columns, at, tile, weights, count, own, to, first > start, fetched, lines
                    )
            if start > 0:
                add_sums(sums, num_rows * PANEL)
        put_panel(sums[0], num_rows, unit * PANEL, bias, then, residual, out)
        finish(counters, step)
        unit = claim(counters, step)
    wait(counters, step, num_units)


@part
def add_sums(sums, number):
    """Add the sums of a block of inputs, ``sums[1]``, to those of earlier blocks."""
    for at in range(0, number, WIDTH):
        store(sums[0], at, load(sums[0], at) + load(sums[1], at))


@part
def put_panel(sums, num_rows, first, bias, then, residual, out):
    """The sums of a panel, which starts at the column ``first``, to ``out``: bias and rest are added."""
    for row in range(num_rows):
        for c in range(0, PANEL, WIDTH):
            at = row * out.shape[1] + first + c
            vector = load(sums, row * PANEL + c) + load(bias, first + c)
            store(out, at, after_product(vector, bias, then, residual, at))


@part
def after_product(vector, bias, then, residual, at):
    """Add the residual at an index, or apply the activation to the vector in the precision of the bias."""
    if then == ADD:
        return vector + load(residual, at)
    if then == PLAIN:
        return vector
    vector = rounded_as(bias, vector)
    if then == GELU:
        if bias.itemsize == 2:
            return gelu(vector)
        cdf, _ = normal(vector)
        return vector * cdf
    if then == GELU_TANH:
        return gelu_tanh(vector)
    if then == SILU:
        return silu(vector)
    return larger(vector, broadcast(np.float32(0)))


@compiled
def tile_rows(num_rows):
    """Rows of a tile."""
    if num_rows % 12 == 0:
        return 6
    return 4 if num_rows % 4 == 0 else min(num_rows, 2)


@part
def take_columns(x, num_rows, tile, columns):
    """Copy the rows of each tile column by column: (M, K) to (M / tile, K, tile)."""
    width = x.shape[1]
    for row in range(0, num_rows, tile):
        for c in range(0, width, WIDTH):
            # Sixteen rows are copied; those beyond the tile are overwritten by the next column.
            transpose(x, row * width + c, width, columns, row * width + c * tile, tile)


@intrinsic
def multiply_tile(
    typing_context, packed, bias, columns, at, num_rows, address, count, sums, to, continues, fetched, lines
):
    """``sums[to + r * 64 + c] = sum of columns[at + k * num_rows + r] * weights[k, c]`` over k < count.

    Args:
        packed, bias: arrays in the dtypes of the weights and of products, float32 or bfloat16.
        columns: float32, or two bfloat16 in the bits of each.
        num_rows: one of the values of TILE_ROWS.
        address: of (count, 64) weights, or pairs of them.
        sums: float32; num_rows * 64 are written from ``to`` on.
        continues: they are added to those that are there.
        fetched, lines: as of `sums_of_tile`.
    """
    add_products = _float_products if bias.dtype == types.float32 else _bfloat16_products
    vector = FLOATS if packed.dtype == bias.dtype else SHORTS

    def generate(context, builder, signature, arguments):
        _, _, columns, at, num_rows, address, count, sums, to, continues, fetched, lines = arguments
        inputs = pointer_of(context, builder, signature.args[2], columns, at)[0]
        inputs = builder.bitcast(inputs, FLOAT.as_pointer())
        weights = builder.inttoptr(address, vector.as_pointer())
        target = pointer_of(context, builder, signature.args[7], sums, to)[0]

        def tile(rows: int) -> None:
            pointers = [builder.gep(target, [INT(number)]) for number in range(rows * PANEL // WIDTH)]
            zeros = ir.Constant(FLOATS, None)
            before = [builder.select(continues, builder.load(pointer, align=4), zeros) for pointer in pointers]
            results = sums_of_tile(builder, rows, inputs, weights, count, add_products, before, fetched, lines)
            for pointer, each in zip(pointers, results, strict=True):
                builder.store(each, pointer, align=4)

        for_each_tile(builder, num_rows, tile)
        return context.get_dummy_value()

    kinds = (packed, bias, columns, *[types.intp] * 4, sums, types.intp, types.boolean, types.intp, types.intp)
    return types.void(*kinds), generate


def _float_products(builder: Any, sums: Any, weights: Any, number: Any) -> Any:
    fma = llvm_function(builder, f"fma.{suffix(FLOATS)}", FLOATS, [FLOATS] * 3)
    return builder.call(fma, [number, weights, sums])


def _bfloat16_products(builder: Any, sums: Any, weights: Any, number: Any) -> Any:
    """sums + the products of two numbers of a row and two weights, in each lane."""
    return bfloat16_products(builder, number, weights, sums)


def sums_of_tile(
    builder: Any,
    num_rows: int,
    inputs: Any,
    weights: Any,
    count: Any,
    add_products: Callable[..., Any],
    before: list[Any],
    fetched: Any,
    lines: Any,
) -> list[Any]:
    """Generate a loop over ``count`` rows of a panel, with the vectors of sums of a tile in registers.

    Args:
        inputs: pointer to 32 bits of each row of a tile, for every row of the panel.
        weights: pointer to vectors, the first in a row of the panel; of bfloat16 they are widened to float32.
        before: the sums before the first row.
        fetched, lines: vectors of the next rows that are requested from memory before, and for each row: other tiles of
            the same weights request the rest, so that the memory is always busy.
        add_products: of builder, sums, a vector of weights, and the bits of one row in all lanes; returns new sums.

    Returns:
        The sums, row by row.
    """
    num_vectors, is_short = PANEL // WIDTH, weights.type.pointee == SHORTS
    byte = ir.IntType(8).as_pointer()
    prefetch = llvm_function(builder, "prefetch.p0", ir.VoidType(), [byte, INT, INT, INT])
    start, loop = builder.block, builder.append_basic_block("loop")
    done = builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(count.type)
    k.add_incoming(count.type(0), start)
    sums = [builder.phi(each.type) for each in before]
    for each, initial in zip(sums, before, strict=True):
        each.add_incoming(initial, start)
    row, column = builder.mul(k, k.type(num_vectors)), builder.gep(inputs, [builder.mul(k, k.type(num_rows))])
    vectors = []
    following_lines = builder.add(fetched, builder.mul(k, lines))
    for v in range(num_vectors):
        line = builder.select(builder.icmp_signed("<", k.type(v), lines), k.type(v), k.type(0))
        line = builder.add(builder.add(following_lines, line), k.type(_AHEAD * num_vectors))
        ahead = builder.gep(weights, [line])
        builder.call(prefetch, [builder.bitcast(ahead, byte), INT(0), INT(3), INT(1)])  # to read, all caches, data
    for v in range(num_vectors):
        loaded = builder.load(builder.gep(weights, [builder.add(row, k.type(v))]), align=2)
        vectors.append(widen(builder, loaded) if is_short else loaded)
    new = []
    for r in range(num_rows):
        number = in_all_lanes(builder, builder.load(builder.gep(column, [k.type(r)]), align=4))
        new += [add_products(builder, sums[r * num_vectors + v], vectors[v], number) for v in range(num_vectors)]
    following = builder.add(k, k.type(1))
    k.add_incoming(following, loop)
    for each, added in zip(sums, new, strict=True):
        each.add_incoming(added, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    builder.position_at_end(done)
    return new


def for_each_tile(builder: Any, num_rows: Any, generate: Callable[[int], None]) -> None:
    """Generate code for each number of rows of a tile, and a switch between them."""
    end = builder.append_basic_block("end")
    switch = builder.switch(num_rows, end)
    for rows in sorted(set(TILE_ROWS.values())):
        case = builder.append_basic_block(f"rows_{rows}")
        switch.add_case(num_rows.type(rows), case)
        builder.position_at_end(case)
        generate(rows)
        builder.branch(end)
    builder.position_at_end(end)
