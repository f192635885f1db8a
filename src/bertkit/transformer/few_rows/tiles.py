"""Sums of products of a tile: a few rows times one panel of packed weights, with all sums in registers."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types

from bertkit.compiled import compiled
from bertkit.transformer.kernels.llvm_vectors import (
    FLOATS,
    INT,
    INTS,
    SHORTS,
    bfloat16_products,
    byte_products,
    float_products,
    in_all_lanes,
    llvm_function,
    pointer_of,
    widen,
)
from bertkit.transformer.kernels.panel_product import PANEL
from bertkit.transformer.kernels.vectors import WIDTH

intrinsic: Any = extending.intrinsic

NUM_VECTORS = PANEL // WIDTH
"""Vectors of a row of a panel."""

TILE_ROWS = 4 if NUM_VECTORS > 1 else 6
"""Rows of a tile, whose sums take 16 of 32 registers of AVX-512, 12 of 16 of AVX2; with more, LLVM would move sums to
memory and back."""

_FRACTION_BITS = 8
FRACTION = 1 << _FRACTION_BITS
"""Parts of a vector that is requested from memory."""

_AHEAD = 32  # rows of a panel between a weight and the one that is requested from memory


@compiled
def tile_rows(num_rows):
    """Rows of a tile: 1, 2 or TILE_ROWS."""
    return num_rows if num_rows <= 2 else TILE_ROWS


@intrinsic
def multiply_tile(
    typing_context, packed, bias, words, row, column, num_rows, address, count, sums, continues, fetched, share
):
    """``sums[(row + r) * PANEL + c] = sum of words[row + r, column + k] * weights[k, c]`` over k < count.

    Args:
        packed, bias: arrays in the dtypes of the weights (float32, bfloat16 or int8) and of products.
        words: (M, K) float32, or two bfloat16 or four uint8 in the bits of each; rows after the last repeat it.
        num_rows: of a tile.
        address: of (count, PANEL) weights, or pairs or fours of them.
        sums: float32, of int8 the bits of int32.
        continues: they are added to those that are there.
        fetched, share: as in `_sums_of_tile`.
    """
    if packed.dtype == types.int8:
        add_products, vector = byte_products, INTS
    else:
        add_products = float_products if bias.dtype == types.float32 else bfloat16_products
        vector = FLOATS if packed.dtype == bias.dtype else SHORTS
    lanes = INTS if vector == INTS else FLOATS  # of sums

    def generate(context, builder, signature, arguments):
        _, _, words, row, column, num_rows, address, count, sums, continues, fetched, share = arguments
        array = context.make_array(signature.args[2])(context, builder, words)
        height, width = (builder.extract_value(array.shape, axis) for axis in range(2))
        last, data = builder.sub(height, row.type(1)), builder.bitcast(array.data, lanes.element.as_pointer())
        weights = builder.inttoptr(address, vector.as_pointer())
        to = builder.mul(row, row.type(PANEL))
        target = builder.bitcast(pointer_of(context, builder, signature.args[8], sums, to)[0], lanes.as_pointer())

        def tile(rows: int) -> None:
            inputs = []
            for number in range(rows):
                index = builder.add(row, row.type(number))
                index = builder.select(builder.icmp_signed("<", index, last), index, last)
                inputs.append(builder.gep(data, [builder.add(builder.mul(index, width), column)]))
            pointers = [builder.gep(target, [INT(number)]) for number in range(rows * NUM_VECTORS)]
            zeros = ir.Constant(lanes, None)
            before = [builder.select(continues, builder.load(pointer, align=4), zeros) for pointer in pointers]
            results = _sums_of_tile(builder, inputs, weights, count, add_products, before, fetched, share)
            for pointer, each in zip(pointers, results, strict=True):
                builder.store(each, pointer, align=4)

        _for_each_tile(builder, num_rows, tile)
        return context.get_dummy_value()

    kinds = (packed, bias, words, *[types.intp] * 5, sums, types.boolean, types.intp, types.intp)
    return types.void(*kinds), generate


def _sums_of_tile(
    builder: Any,
    inputs: list[Any],
    weights: Any,
    count: Any,
    add_products: Callable[..., Any],
    before: list[Any],
    fetched: Any,
    share: Any,
) -> list[Any]:
    """Generate a loop over ``count`` rows of a panel, with the vectors of sums of a tile in registers.

    Args:
        inputs: pointer to the words of each row of a tile.
        weights: pointer to vectors, the first in a row of the panel; of bfloat16 they are widened to float32.
        before: the sums before the first row.
        fetched, share: vectors of the next rows that are requested from memory before, and for each row, in parts of
            FRACTION: other tiles of the same weights request the rest, so that the memory is always busy.
        add_products: of builder, the bits of one row in all lanes, a vector of weights, and sums; returns new sums.

    Returns:
        The sums, row by row.
    """
    is_short = weights.type.pointee == SHORTS
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
    row, vectors = builder.mul(k, k.type(NUM_VECTORS)), []
    for v in range(NUM_VECTORS):
        loaded = builder.load(builder.gep(weights, [builder.add(row, k.type(v))]), align=2)
        vectors.append(widen(builder, loaded) if is_short else loaded)
    new = []
    for r, pointer in enumerate(inputs):
        number = in_all_lanes(builder, builder.load(builder.gep(pointer, [k]), align=4))
        new += [add_products(builder, number, vectors[v], sums[r * NUM_VECTORS + v]) for v in range(NUM_VECTORS)]
    following_lines = builder.lshr(builder.add(fetched, builder.mul(k, share)), k.type(_FRACTION_BITS))
    for v in range(NUM_VECTORS):  # after the products: before them it would keep sums from registers
        is_own = builder.icmp_signed("<", k.type(v * FRACTION), share)
        line = builder.select(is_own, k.type(v), k.type(0))
        line = builder.add(builder.add(following_lines, line), k.type(_AHEAD * NUM_VECTORS))
        ahead = builder.gep(weights, [line])
        builder.call(prefetch, [builder.bitcast(ahead, byte), INT(0), INT(3), INT(1)])  # to read, all caches, data
    following = builder.add(k, k.type(1))
    k.add_incoming(following, loop)
    for each, added in zip(sums, new, strict=True):
        each.add_incoming(added, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    builder.position_at_end(done)
    return new


def _for_each_tile(builder: Any, num_rows: Any, generate: Callable[[int], None]) -> None:
    """Generate code for each number of rows of a tile, and a switch between them."""
    end = builder.append_basic_block("end")
    switch = builder.switch(num_rows, end)
    for rows in (1, 2, TILE_ROWS):
        case = builder.append_basic_block(f"rows_{rows}")
        switch.add_case(num_rows.type(rows), case)
        builder.position_at_end(case)
        generate(rows)
        builder.branch(end)
    builder.position_at_end(end)
