"""Sixteen float32 numbers at once, inside functions that numba compiles.

``load`` and ``store`` move sixteen neighboring elements of an array; ``+ - *`` and the functions below work on all of
them. LLVM compiles each to what the processor has: one AVX-512 register, two of AVX2, four of NEON.

An array is C-contiguous, of any shape, float32, or uint16 that holds bfloat16 (``tensor.view(torch.uint16)``): loading
widens, storing rounds to the nearest, ties to even. Indices count elements from its start and are not checked.
"""

import operator
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir
from numba import extending, types

from bertkit.compiled import overload
from bertkit.transformer.kernels.llvm_vectors import (
    BITS,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    SHORTS,
    STORED,
    VECTOR,
    WIDTH,
    bfloat16_products,
    first_lanes,
    float_products,
    in_all_lanes,
    larger_of,
    llvm_function,
    narrow,
    pointer_of,
    shuffle,
    smaller_of,
    suffix,
    widen,
)

intrinsic: Any = extending.intrinsic  # numba's annotations count the typing context among a call's arguments


# ---- memory


@intrinsic
def load(typing_context, array, index):
    """array[index : index + 16]."""

    def generate(context, builder, signature, arguments):
        pointer, _, align = pointer_of(context, builder, signature.args[0], *arguments[:2])
        return widen(builder, builder.load(pointer, align=align))

    return VECTOR(array, types.intp), generate


@intrinsic
def load_first(typing_context, array, index, count):
    """array[index : index + count] and zeros after it; a count above 16 is 16."""

    def generate(context, builder, signature, arguments):
        pointer, lanes, align = pointer_of(context, builder, signature.args[0], *arguments[:2])
        masked = llvm_function(builder, f"masked.load.{suffix(lanes)}.p0", lanes, [pointer.type, INT, BITS, lanes])
        zeros = ir.Constant(lanes, None)
        return widen(builder, builder.call(masked, [pointer, INT(align), first_lanes(builder, arguments[2]), zeros]))

    return VECTOR(array, types.intp, types.intp), generate


@intrinsic
def store(typing_context, array, index, vector):
    """array[index : index + 16] = vector."""

    def generate(context, builder, signature, arguments):
        pointer, lanes, align = pointer_of(context, builder, signature.args[0], *arguments[:2])
        builder.store(narrow(context, builder, arguments[2], lanes), pointer, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, VECTOR), generate


@intrinsic
def store_first(typing_context, array, index, vector, count):
    """array[index : index + count] = the first elements of vector; a count above 16 is 16."""

    def generate(context, builder, signature, arguments):
        pointer, lanes, align = pointer_of(context, builder, signature.args[0], *arguments[:2])
        masked = llvm_function(
            builder, f"masked.store.{suffix(lanes)}.p0", ir.VoidType(), [lanes, pointer.type, INT, BITS]
        )
        numbers = narrow(context, builder, arguments[2], lanes)
        builder.call(masked, [numbers, pointer, INT(align), first_lanes(builder, arguments[3])])
        return context.get_dummy_value()

    return types.void(array, types.intp, VECTOR, types.intp), generate


@intrinsic
def store_pairs(typing_context, array, index, lower, upper):
    """Sixteen numbers of a float32 array from ``index`` on: the bits of two vectors rounded to bfloat16."""

    def generate(context, builder, signature, arguments):
        pointer, lanes, align = pointer_of(context, builder, signature.args[0], *arguments[:2])
        lower, upper = (builder.zext(narrow(context, builder, each, SHORTS), INTS) for each in arguments[2:])
        bits = builder.or_(lower, builder.shl(upper, ir.Constant(INTS, [16] * WIDTH)))
        builder.store(builder.bitcast(bits, lanes), pointer, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, VECTOR, VECTOR), generate


@intrinsic
def store_lowest_bytes(typing_context, array, index, vector):
    """array[index : index + 16] = the lowest 8 bits of each lane; a uint8 array."""

    def generate(context, builder, signature, arguments):
        pointer, lanes, align = pointer_of(context, builder, signature.args[0], *arguments[:2])
        builder.store(builder.trunc(builder.bitcast(arguments[2], INTS), lanes), pointer, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, VECTOR), generate


@intrinsic
def rounded_as(typing_context, array, vector):
    """The numbers rounded to the dtype of an array."""

    def generate(context, builder, signature, arguments):
        lanes, _ = STORED[signature.args[0].dtype]
        return widen(builder, narrow(context, builder, arguments[1], lanes))

    return VECTOR(array, VECTOR), generate


@intrinsic
def broadcast(typing_context, number):
    """A float32 in all sixteen lanes."""

    def generate(context, builder, signature, arguments):
        return in_all_lanes(builder, arguments[0])

    return VECTOR(types.float32), generate


@intrinsic
def broadcast_from(typing_context, array, index):
    """array[index], of a float32 array, in all sixteen lanes: without the test for an index below 0."""

    def generate(context, builder, signature, arguments):
        pointer, _, align = pointer_of(context, builder, signature.args[0], *arguments[:2])
        one = builder.load(builder.bitcast(pointer, FLOAT.as_pointer()), align=align)
        return in_all_lanes(builder, one)

    return VECTOR(array, types.intp), generate


@intrinsic
def transpose(typing_context, source, source_index, source_stride, target, target_index, target_stride):
    """Sixteen rows of sixteen from one array, ``source_stride`` apart, as columns into another, of float32."""

    def generate(context, builder, signature, arguments):
        def rows(first):
            array, index, stride = arguments[first : first + 3]
            indices = [builder.add(index, builder.mul(stride, stride.type(row))) for row in range(WIDTH)]
            return [pointer_of(context, builder, signature.args[first], array, pointer) for pointer in indices]

        vectors = [widen(builder, builder.load(pointer, align=align)) for pointer, _, align in rows(0)]
        for step in (1, 2, 4, 8):  # swap the off-diagonal blocks of every 2 * step square
            for row in range(WIDTH):
                if not row & step:
                    upper, lower = vectors[row], vectors[row + step]
                    stays = [x - step + WIDTH if x & step else x for x in range(WIDTH)]
                    swaps = [x + WIDTH if x & step else x + step for x in range(WIDTH)]
                    vectors[row] = shuffle(builder, upper, lower, stays)
                    vectors[row + step] = shuffle(builder, upper, lower, swaps)
        for vector, (pointer, _, align) in zip(vectors, rows(3), strict=True):
            builder.store(vector, pointer, align=align)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp, types.intp), generate


# ---- arithmetic, lane by lane


def _of_lanes(number: int, generate: Callable[..., Any]) -> Any:
    """An intrinsic of vectors to a vector, from a function of LLVM's builder and their values."""

    def typed(typing_context: Any, *operands: Any) -> Any:
        return VECTOR(*operands), lambda context, builder, signature, arguments: generate(builder, *arguments)

    names = ("typing_context", "a", "b", "c")[: number + 1]
    vars(typed)["__signature__"] = Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])
    return intrinsic(typed)


def _define(operation: Any, instruction: str) -> None:
    apply = _of_lanes(2, lambda builder, a, b: getattr(builder, instruction)(a, b))

    @overload(operation)
    def implement(a, b):
        if a is VECTOR and b is VECTOR:
            return lambda a, b: apply(a, b)


for _operation, _instruction in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _define(_operation, _instruction)


def _in_all_lanes(number: float) -> Any:
    """A constant: of integers in the bits of the lanes, or of floats."""
    return ir.Constant(INTS if isinstance(number, int) else FLOATS, [number] * WIDTH)


def _difference(builder: Any, a: Any, b: Any) -> Any:
    return builder.sitofp(builder.sub(builder.bitcast(a, INTS), builder.bitcast(b, INTS)), FLOATS)


def _with_exponent(builder: Any, a: Any, bits: Any) -> Any:
    shifted = builder.shl(builder.bitcast(bits, INTS), _in_all_lanes(23))
    return builder.bitcast(builder.add(builder.bitcast(a, INTS), shifted), FLOATS)


def _selected(builder: Any, condition: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", condition, ir.Constant(FLOATS, None)), a, b)


fma = _of_lanes(3, float_products)
"""a * b + c, rounded once."""

add_pairs = _of_lanes(3, bfloat16_products)
"""c + a0 b0 + a1 b1 of the two bfloat16 in the bits of each lane of a and b. Needs AVX-512 BF16."""

difference_of_integers = _of_lanes(2, _difference)
"""a - b, of int32 in the bits of the lanes, as float32."""

inverse = _of_lanes(1, lambda builder, a: builder.fdiv(_in_all_lanes(1.0), a))
"""1 / a."""

larger = _of_lanes(2, larger_of)
"""The larger of a and b; b if one is NaN."""

smaller = _of_lanes(2, smaller_of)
"""The smaller of a and b; b if one is NaN."""

add_to_exponent = _of_lanes(2, _with_exponent)
"""a * 2**n for the whole number n in the lowest bits of b, where that is a normal number."""

where_positive = _of_lanes(3, _selected)
"""b where a is above 0, else c."""


@intrinsic
def drop(typing_context, vector, key, index, limit, scale):
    """Lane x times ``scale``, or 0 where the random number of (key, index + x) is below ``limit``, of 2**32.

    The number is a hash of its counter (Wellons 2018, "Prospecting for hash functions", lowbias32), so any part of a
    mask can be regenerated at any time, on any thread.
    """

    def generate(context, builder, signature, arguments):
        vector, key, index, limit, scale = arguments

        step = 0x9E3779B9  # counters of one key lie far apart
        first = builder.add(builder.mul(builder.trunc(index, INT), INT(step)), key)
        lanes = ir.Constant(INTS, [(step * x) & 0xFFFFFFFF for x in range(WIDTH)])
        bits = builder.add(in_all_lanes(builder, first), lanes)
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            bits = builder.mul(builder.xor(bits, builder.lshr(bits, _in_all_lanes(shift))), _in_all_lanes(factor))
        bits = builder.xor(bits, builder.lshr(bits, _in_all_lanes(16)))
        stays = builder.icmp_unsigned(">=", bits, in_all_lanes(builder, limit))
        scaled = builder.fmul(vector, in_all_lanes(builder, scale))
        return builder.select(stays, scaled, ir.Constant(FLOATS, None))

    return VECTOR(VECTOR, types.uint32, types.intp, types.uint32, types.float32), generate


# ---- across lanes


def _across(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Reduce a vector by folding it in halves."""

    @intrinsic
    def reduce(typing_context, a):
        def generate(context, builder, signature, arguments):
            (vector,) = arguments
            for half in (8, 4, 2, 1):
                vector = combine(builder, vector, shuffle(builder, vector, vector, [x ^ half for x in range(WIDTH)]))
            return builder.extract_element(vector, INT(0))

        return types.float32(VECTOR), generate

    return reduce


total = _across(lambda builder, a, b: builder.fadd(a, b))
"""The sum of the lanes, pair by pair."""

largest = _across(lambda builder, a, b: larger_of(builder, a, b))
"""The largest lane."""

smallest = _across(lambda builder, a, b: smaller_of(builder, a, b))
"""The smallest lane."""


def _eight_across(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Reduce eight vectors side by side: fold each in halves, two of them sharing a vector after each fold.

    After the first fold a vector holds two groups of eight lanes, then four of four, eight of two; the last fold
    combines the pairs. Result r is in lanes 2 * r and 2 * r + 1.
    """

    @intrinsic
    def reduce(typing_context, tile):
        def generate(context, builder, signature, arguments):
            vectors = [builder.extract_value(arguments[0], i) for i in range(8)]
            for half in (8, 4, 2):
                lower = [x for x in range(2 * WIDTH) if not x & half]
                upper = [x + half for x in lower]
                vectors = [
                    combine(builder, shuffle(builder, a, b, lower), shuffle(builder, a, b, upper))
                    for a, b in zip(vectors[::2], vectors[1::2], strict=True)
                ]
            (pairs,) = vectors
            return combine(builder, pairs, shuffle(builder, pairs, pairs, [x ^ 1 for x in range(WIDTH)]))

        return VECTOR(types.UniTuple(VECTOR, 8)), generate

    return reduce


totals_of_eight = _eight_across(lambda builder, a, b: builder.fadd(a, b))
"""The sums of the lanes of eight vectors: that of vector r in lane 2 * r."""

largest_of_eight = _eight_across(lambda builder, a, b: larger_of(builder, a, b))
"""The largest lanes of eight vectors: that of vector r in lane 2 * r."""


@intrinsic
def lane(typing_context, a, number):
    """One lane of a in all lanes."""

    def generate(context, builder, signature, arguments):
        return in_all_lanes(builder, builder.extract_element(arguments[0], builder.trunc(arguments[1], INT)))

    return VECTOR(VECTOR, types.intp), generate
