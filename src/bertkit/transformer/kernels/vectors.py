"""Sixteen float32 numbers at once, inside functions that numba compiles.

``load`` and ``store`` move sixteen neighbouring elements of an array; ``+ - *`` and the functions below work on all of
them. LLVM makes of each what the processor has: one AVX-512 register, two of AVX2, four of NEON.

An array is C-contiguous, of any shape, float32, or uint16 that holds bfloat16 (``tensor.view(torch.uint16)``): loading
widens, storing rounds to the nearest, ties to even. Indices count elements from its start and are not checked.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import PrimitiveModel
from numba.extending import intrinsic, overload, register_model

WIDTH = 16
"""Lanes of a vector."""


class VectorType(types.Type):
    """numba's name for sixteen float32."""

    def __init__(self) -> None:
        super().__init__(name="float32x16")


class _BFloat16(ir.types.Type):
    """LLVM's bfloat, which llvmlite has no class for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


_vector = VectorType()
_INT, _FLOAT = ir.IntType(32), ir.FloatType()
_BITS, _BYTES, _SHORTS, _INTS = (ir.VectorType(ir.IntType(bits), WIDTH) for bits in (1, 8, 16, 32))
_FLOATS, _BFLOATS = ir.VectorType(_FLOAT, WIDTH), ir.VectorType(_BFloat16(), WIDTH)
_STORED = {  # element -> sixteen of them, bytes of one
    types.float32: (_FLOATS, 4),
    types.uint16: (_SHORTS, 2),
    types.uint8: (_BYTES, 1),
}


@register_model(VectorType)
class _VectorModel(PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, _FLOATS)


# ---- memory


@intrinsic
def load(typing_context, array, index):
    """array[index : index + 16]."""

    def generate(context, builder, signature, arguments):
        place, _, align = _place(context, builder, signature.args[0], *arguments[:2])
        return _widen(builder, builder.load(place, align=align))

    return _vector(array, types.intp), generate


@intrinsic
def load_first(typing_context, array, index, count):
    """array[index : index + count] and zeros after it; a count above 16 is 16."""

    def generate(context, builder, signature, arguments):
        place, lanes, align = _place(context, builder, signature.args[0], *arguments[:2])
        masked = _llvm(builder, f"masked.load.{_suffix(lanes)}.p0", lanes, [place.type, _INT, _BITS, lanes])
        zeros = ir.Constant(lanes, None)
        return _widen(builder, builder.call(masked, [place, _INT(align), _first(builder, arguments[2]), zeros]))

    return _vector(array, types.intp, types.intp), generate


@intrinsic
def store(typing_context, array, index, vector):
    """array[index : index + 16] = vector."""

    def generate(context, builder, signature, arguments):
        place, lanes, align = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(_narrow(builder, arguments[2], lanes), place, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, _vector), generate


@intrinsic
def store_first(typing_context, array, index, vector, count):
    """array[index : index + count] = the first of vector; a count above 16 is 16."""

    def generate(context, builder, signature, arguments):
        place, lanes, align = _place(context, builder, signature.args[0], *arguments[:2])
        masked = _llvm(builder, f"masked.store.{_suffix(lanes)}.p0", ir.VoidType(), [lanes, place.type, _INT, _BITS])
        narrow = _narrow(builder, arguments[2], lanes)
        builder.call(masked, [narrow, place, _INT(align), _first(builder, arguments[3])])
        return context.get_dummy_value()

    return types.void(array, types.intp, _vector, types.intp), generate


@intrinsic
def store_lowest_bytes(typing_context, array, index, vector):
    """array[index : index + 16] = the lowest 8 bits of each lane; a uint8 array."""

    def generate(context, builder, signature, arguments):
        place, lanes, align = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(builder.trunc(builder.bitcast(arguments[2], _INTS), lanes), place, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, _vector), generate


@intrinsic
def broadcast(typing_context, number):
    """A float32 in all sixteen lanes."""

    def generate(context, builder, signature, arguments):
        return _in_all_lanes(builder, arguments[0])

    return _vector(types.float32), generate


@intrinsic
def broadcast_from(typing_context, array, index):
    """array[index], of a float32 array, in all sixteen lanes: without the test for an index below 0."""

    def generate(context, builder, signature, arguments):
        place, _, align = _place(context, builder, signature.args[0], *arguments[:2])
        one = builder.load(builder.bitcast(place, _FLOAT.as_pointer()), align=align)
        return _in_all_lanes(builder, one)

    return _vector(array, types.intp), generate


@intrinsic
def transpose(typing_context, source, source_index, source_stride, target, target_index, target_stride):
    """Sixteen rows of sixteen from one float32 array, ``source_stride`` apart, as columns into another."""

    def generate(context, builder, signature, arguments):
        def rows(first):
            array, index, stride = arguments[first : first + 3]
            places = [builder.add(index, builder.mul(stride, stride.type(row))) for row in range(WIDTH)]
            return [_place(context, builder, signature.args[first], array, place)[0] for place in places]

        vectors = [builder.load(place, align=4) for place in rows(0)]
        for step in (1, 2, 4, 8):  # swap the off-diagonal blocks of every 2 * step square
            for row in range(WIDTH):
                if not row & step:
                    upper, lower = vectors[row], vectors[row + step]
                    stays = [x - step + WIDTH if x & step else x for x in range(WIDTH)]
                    swaps = [x + WIDTH if x & step else x + step for x in range(WIDTH)]
                    vectors[row] = _shuffle(builder, upper, lower, stays)
                    vectors[row + step] = _shuffle(builder, upper, lower, swaps)
        for vector, place in zip(vectors, rows(3), strict=True):
            builder.store(vector, place, align=4)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp, types.intp), generate


# ---- arithmetic, lane by lane


def _binary(instruction: str) -> Any:
    @intrinsic
    def apply(typing_context, a, b):
        def generate(context, builder, signature, arguments):
            return getattr(builder, instruction)(*arguments)

        return _vector(_vector, _vector), generate

    return apply


def _define(operation: Any, instruction: str) -> None:
    apply = _binary(instruction)

    @overload(operation)
    def implement(a, b):
        if a is _vector and b is _vector:
            return lambda a, b: apply(a, b)


for _operation, _instruction in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _define(_operation, _instruction)


@intrinsic
def fma(typing_context, a, b, c):
    """a * b + c, rounded once."""

    def generate(context, builder, signature, arguments):
        return builder.call(_llvm(builder, f"fma.{_suffix(_FLOATS)}", _FLOATS, [_FLOATS] * 3), arguments)

    return _vector(_vector, _vector, _vector), generate


@intrinsic
def inverse(typing_context, a):
    """1 / a."""

    def generate(context, builder, signature, arguments):
        return builder.fdiv(ir.Constant(_FLOATS, [1.0] * WIDTH), arguments[0])

    return _vector(_vector), generate


@intrinsic
def larger(typing_context, a, b):
    """The larger of a and b; b where one is not a number."""

    def generate(context, builder, signature, arguments):
        return _larger(builder, *arguments)

    return _vector(_vector, _vector), generate


@intrinsic
def smaller(typing_context, a, b):
    """The smaller of a and b; b where one is not a number."""

    def generate(context, builder, signature, arguments):
        return _smaller(builder, *arguments)

    return _vector(_vector, _vector), generate


@intrinsic
def add_to_exponent(typing_context, a, bits):
    """a * 2**n for the whole number n in the lowest bits of ``bits``, where that is a normal number."""

    def generate(context, builder, signature, arguments):
        a, bits = (builder.bitcast(argument, _INTS) for argument in arguments)
        return builder.bitcast(builder.add(a, builder.shl(bits, ir.Constant(_INTS, [23] * WIDTH))), _FLOATS)

    return _vector(_vector, _vector), generate


@intrinsic
def where_positive(typing_context, condition, a, b):
    """a where the condition is above 0, else b."""

    def generate(context, builder, signature, arguments):
        condition, a, b = arguments
        return builder.select(builder.fcmp_ordered(">", condition, ir.Constant(_FLOATS, None)), a, b)

    return _vector(_vector, _vector, _vector), generate


@intrinsic
def drop(typing_context, vector, key, index, limit, scale):
    """Lane x times ``scale``, or 0 where the random number of (key, index + x) is below ``limit``, of 2**32.

    The number is a hash of its counter (Wellons 2018, "Prospecting for hash functions", lowbias32), so any part of a
    mask can be drawn again at any time, on any thread.
    """

    def generate(context, builder, signature, arguments):
        vector, key, index, limit, scale = arguments

        def constant(number: int) -> Any:
            return ir.Constant(_INTS, [number & 0xFFFFFFFF] * WIDTH)

        step = 0x9E3779B9  # counters of one key lie far apart
        first = builder.add(builder.mul(builder.trunc(index, _INT), _INT(step)), key)
        lanes = ir.Constant(_INTS, [(step * x) & 0xFFFFFFFF for x in range(WIDTH)])
        bits = builder.add(_in_all_lanes(builder, first), lanes)
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            bits = builder.mul(builder.xor(bits, builder.lshr(bits, constant(shift))), constant(factor))
        bits = builder.xor(bits, builder.lshr(bits, constant(16)))
        stays = builder.icmp_unsigned(">=", bits, _in_all_lanes(builder, limit))
        scaled = builder.fmul(vector, _in_all_lanes(builder, scale))
        return builder.select(stays, scaled, ir.Constant(_FLOATS, None))

    return _vector(_vector, types.uint32, types.intp, types.uint32, types.float32), generate


# ---- across lanes


def _across(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Reduce a vector by folding it in halves."""

    @intrinsic
    def reduce(typing_context, a):
        def generate(context, builder, signature, arguments):
            (vector,) = arguments
            for half in (8, 4, 2, 1):
                vector = combine(builder, vector, _shuffle(builder, vector, vector, [x ^ half for x in range(WIDTH)]))
            return builder.extract_element(vector, _INT(0))

        return types.float32(_vector), generate

    return reduce


total = _across(lambda builder, a, b: builder.fadd(a, b))
"""The sum of the lanes, pair by pair."""

largest = _across(lambda builder, a, b: _larger(builder, a, b))
"""The largest lane."""

smallest = _across(lambda builder, a, b: _smaller(builder, a, b))
"""The smallest lane."""


def _eight_across(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Reduce eight vectors side by side: fold each in halves, two of them sharing a vector after each fold.

    After the first fold a vector holds two groups of eight lanes, then four of four, eight of two; the last folds the
    pairs onto themselves. Result r stands in lanes 2 * r and 2 * r + 1.
    """

    @intrinsic
    def reduce(typing_context, tile):
        def generate(context, builder, signature, arguments):
            vectors = [builder.extract_value(arguments[0], i) for i in range(8)]
            for half in (8, 4, 2):
                lower = [x for x in range(2 * WIDTH) if not x & half]
                upper = [x + half for x in lower]
                vectors = [
                    combine(builder, _shuffle(builder, a, b, lower), _shuffle(builder, a, b, upper))
                    for a, b in zip(vectors[::2], vectors[1::2], strict=True)
                ]
            (pairs,) = vectors
            return combine(builder, pairs, _shuffle(builder, pairs, pairs, [x ^ 1 for x in range(WIDTH)]))

        return _vector(types.UniTuple(_vector, 8)), generate

    return reduce


totals_of_eight = _eight_across(lambda builder, a, b: builder.fadd(a, b))
"""The sums of the lanes of eight vectors: that of vector r in lane 2 * r."""

largest_of_eight = _eight_across(lambda builder, a, b: _larger(builder, a, b))
"""The largest lanes of eight vectors: that of vector r in lane 2 * r."""


@intrinsic
def lane(typing_context, a, number):
    """One lane of a in all lanes."""

    def generate(context, builder, signature, arguments):
        return _in_all_lanes(builder, builder.extract_element(arguments[0], builder.trunc(arguments[1], _INT)))

    return _vector(_vector, types.intp), generate


# ---- LLVM


def _place(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> tuple[Any, ir.VectorType, int]:
    """Where array[index] lies, what sixteen elements of it are, and the bytes of one."""
    lanes, align = _STORED[array_type.dtype]
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), lanes.as_pointer()), lanes, align


def _widen(builder: Any, lanes: Any) -> Any:
    if lanes.type == _FLOATS:
        return lanes
    upper = builder.shl(builder.zext(lanes, _INTS), ir.Constant(_INTS, [16] * WIDTH))
    return builder.bitcast(upper, _FLOATS)


def _narrow(builder: Any, vector: Any, lanes: ir.VectorType) -> Any:
    return vector if lanes == _FLOATS else builder.bitcast(builder.fptrunc(vector, _BFLOATS), lanes)


def _in_all_lanes(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTS, None))


def _shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Lanes by number: 0 to 15 of a, 16 to 31 of b."""
    return builder.shuffle_vector(a, b, ir.Constant(_INTS, lanes))


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _first(builder: Any, count: Any) -> Any:
    """A bit for each lane: is it among the first ``count``?"""
    numbers = ir.Constant(_INTS, list(range(WIDTH)))
    return builder.icmp_signed("<", numbers, _in_all_lanes(builder, builder.trunc(count, _INT)))


def _suffix(lanes: ir.VectorType) -> str:
    return f"v{WIDTH}" + {_FLOATS: "f32", _SHORTS: "i16"}[lanes]


def _llvm(builder: Any, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
    """LLVM's own function of a name."""
    name = f"llvm.{name}"
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)
