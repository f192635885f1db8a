"""Sums of products of a tile: a few rows times one panel of packed weights, with all sums in registers.

Weights are packed in panels of `PANEL` outputs: one number of 32 bits, two of bfloat16 or four of 8 bits for each
output, then the same for the next inputs.
"""

from collections.abc import Callable, Collection
from typing import Any

from llvmlite import ir
from numba import extending, types

from bertkit.compiled import compiled, overload
from bertkit.transformer.kernels.llvm_vectors import (
    FLOATS,
    INT,
    INTS,
    SHORTS,
    WORDS_AT_ONCE,
    adds_in_16_bits,
    bfloat16_products,
    byte_products,
    float_products,
    has_wide_registers,
    in_all_lanes,
    llvm_function,
    pointer_of,
    widen,
)
from bertkit.transformer.kernels.vectors import WIDTH

intrinsic: Any = extending.intrinsic

NUM_VECTORS = 4 if has_wide_registers() else 1
"""Vectors of a row of a panel."""

PANEL = NUM_VECTORS * WIDTH
"""Outputs of a panel of packed weights."""

TILE_ROWS = 4 if NUM_VECTORS > 1 else 6
"""Rows of a tile that requests weights from memory, whose sums take 16 of 32 registers of AVX-512, 12 of 16 of AVX2;
with more, LLVM would move sums to memory and back."""

MANY_ROWS = 6
"""Rows of a tile that does not, whose sums take 24 of 32 registers of AVX-512, 12 of 16 of AVX2."""

_ROWS_IN_16_BITS = 4
"""Those of it where `byte_products` needs further registers."""

_FRACTION_BITS = 8
FRACTION = 1 << _FRACTION_BITS
"""Parts of a vector that is requested from memory."""

_AHEAD = 32  # rows of a panel between a weight and the one that is requested from memory


@compiled
def tile_rows(num_rows):
    """Rows of a tile that requests weights from memory: 1, 2 or TILE_ROWS."""
    return num_rows if num_rows <= 2 else TILE_ROWS


def many_rows(packed):
    """Rows of a tile that does not, for the packed weights (compiled only)."""
    raise NotImplementedError


@overload(many_rows)
def _many_rows(packed):
    num_rows = _many_rows_of(packed)
    return lambda packed: num_rows


def _many_rows_of(packed: Any) -> int:
    """`many_rows` by a numba type."""
    return _ROWS_IN_16_BITS if packed.dtype == types.int8 and adds_in_16_bits() else MANY_ROWS


@intrinsic
def multiply_tile(
    typing_context, packed, bias, words, row, column, num_rows, address, count, sums, continues, fetched, share
):
    """``sums[(row + r) * PANEL + c] = sum of words[row + r, column + k] * weights[k, c]`` over k < count.

    Args:
        packed, bias: arrays in the dtypes of the weights (float32, bfloat16 or int8) and of products.
        words: (M, K) float32, or two bfloat16 or four uint8 in the bits of each; rows after the last repeat it.
        num_rows: of a tile: `tile_rows`; `many_rows` if nothing is requested.
        address: of (count, PANEL) weights, or pairs or fours of them.
        sums: float32, of int8 the bits of int32.
        continues: they are added to those that are there.
        fetched, share: vectors of the next rows that are requested from memory before, and for each row, in parts of
            FRACTION: other tiles of the same weights request the rest, so that the memory is always busy. Or None:
            nothing is requested.
    """
    is_fetched, at_once = fetched != types.none, 1
    choices = (1, 2, TILE_ROWS) if is_fetched else (_many_rows_of(packed),)
    if packed.dtype == types.int8:
        add_products, vector, at_once = byte_products, INTS, 1 if is_fetched else WORDS_AT_ONCE
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
            request = _requests(builder, weights, fetched, share) if is_fetched else None
            results = _sums_of_tile(builder, inputs, weights, count, at_once, add_products, before, request)
            for pointer, each in zip(pointers, results, strict=True):
                builder.store(each, pointer, align=4)

        for_each_case(builder, num_rows, choices, tile)
        return context.get_dummy_value()

    requested = types.intp if is_fetched else types.none
    kinds = (packed, bias, words, *[types.intp] * 5, sums, types.boolean, requested, requested)
    return types.void(*kinds), generate


def _sums_of_tile(
    builder: Any,
    inputs: list[Any],
    weights: Any,
    count: Any,
    at_once: int,
    add_products: Callable[..., Any],
    before: list[Any],
    request: Callable[[Any], None] | None,
) -> list[Any]:
    """Generate a loop over ``count`` rows of a panel, with the vectors of sums of a tile in registers.

    Args:
        inputs: pointer to the words of each row of a tile.
        weights: pointer to vectors, the first in a row of the panel; of bfloat16 they are widened to float32.
        at_once: rows of a panel that are multiplied at once; those that are left one by one.
        before: the sums before the first row.
        add_products: of builder, the bits of words of one row in all lanes, as many vectors of weights, and sums;
            returns new sums.
        request: called with the number of the row of the panel.

    Returns:
        The sums, row by row.
    """

    def products(k: Any, num_words: int, sums: list[Any]) -> list[Any]:
        rows = [builder.add(k, k.type(each)) for each in range(num_words)]
        columns = [
            [
                _weights_at(builder, weights, builder.add(builder.mul(row, k.type(NUM_VECTORS)), k.type(v)))
                for row in rows
            ]
            for v in range(NUM_VECTORS)
        ]
        new = []
        for r, pointer in enumerate(inputs):
            loaded = [builder.load(builder.gep(pointer, [row]), align=4) for row in rows]
            words = [in_all_lanes(builder, each) for each in loaded]
            for v in range(NUM_VECTORS):
                new.append(add_products(builder, *words, *columns[v], sums[r * NUM_VECTORS + v]))
        if request is not None:
            request(k)  # after the products: before them it would keep sums from registers
        return new

    if at_once == 1:
        return _loop(builder, count.type(0), count, 1, before, products)
    whole = builder.sub(count, builder.urem(count, count.type(at_once)))
    sums = _loop(builder, count.type(0), whole, at_once, before, products)
    return _loop(builder, whole, count, 1, sums, products)


def _weights_at(builder: Any, weights: Any, number: Any) -> Any:
    vector = builder.load(builder.gep(weights, [number]), align=2)
    return widen(builder, vector) if vector.type == SHORTS else vector


def _loop(
    builder: Any,
    start: Any,
    end: Any,
    step: int,
    before: list[Any],
    body: Callable[[Any, int, list[Any]], list[Any]],
) -> list[Any]:
    """Generate a loop over every ``step``-th number from ``start``, with values that each turn replaces."""
    first, loop, done = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", start, end), loop, done)
    builder.position_at_end(loop)
    k, values = builder.phi(start.type), [builder.phi(each.type) for each in before]
    for each, initial in zip([k, *values], [start, *before], strict=True):
        each.add_incoming(initial, first)
    new = body(k, step, values)
    following = builder.add(k, k.type(step))
    for each, replaced in zip([k, *values], [following, *new], strict=True):
        each.add_incoming(replaced, loop)
    builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
    builder.position_at_end(done)
    results = [builder.phi(each.type) for each in before]
    for each, initial, last in zip(results, before, new, strict=True):
        each.add_incoming(initial, first)
        each.add_incoming(last, loop)
    return results


def _requests(builder: Any, weights: Any, fetched: Any, share: Any) -> Callable[[Any], None]:
    """A function that generates the requests of a row of a panel."""
    byte = ir.IntType(8).as_pointer()
    prefetch = llvm_function(builder, "prefetch.p0", ir.VoidType(), [byte, INT, INT, INT])

    def request(k: Any) -> None:
        following = builder.lshr(builder.add(fetched, builder.mul(k, share)), k.type(_FRACTION_BITS))
        for v in range(NUM_VECTORS):
            is_own = builder.icmp_signed("<", k.type(v * FRACTION), share)
            line = builder.select(is_own, k.type(v), k.type(0))
            line = builder.add(builder.add(following, line), k.type(_AHEAD * NUM_VECTORS))
            ahead = builder.gep(weights, [line])
            builder.call(prefetch, [builder.bitcast(ahead, byte), INT(0), INT(3), INT(1)])  # to read, all caches, data

    return request


def for_each_case(builder: Any, number: Any, choices: Collection[int], generate: Callable[[int], None]) -> None:
    """Generate code for each of some values of a number, and a switch between them."""
    end = builder.append_basic_block("end")
    switch = builder.switch(number, end)
    for choice in choices:
        case = builder.append_basic_block(f"case_{choice}")
        switch.add_case(number.type(choice), case)
        builder.position_at_end(case)
        generate(choice)
        builder.branch(end)
    builder.position_at_end(end)
