"""Building blocks of `vectors`: sixteen float32 as a numba type, and LLVM code for it."""

import platform
from functools import cache, reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import PrimitiveModel
from numba.core.registry import cpu_target
from numba.extending import register_model

WIDTH = 16
"""Number of lanes of a vector."""


class VectorType(types.Type):
    """numba type of sixteen float32."""

    def __init__(self) -> None:
        super().__init__(name="float32x16")


class BFloat16(ir.types.Type):
    """LLVM's bfloat, for which llvmlite has no class."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat16)

    def __hash__(self) -> int:
        return hash(BFloat16)


VECTOR = VectorType()
INT, FLOAT = ir.IntType(32), ir.FloatType()
BITS, BYTES, SHORTS, INTS = (ir.VectorType(ir.IntType(bits), WIDTH) for bits in (1, 8, 16, 32))
FLOATS, BFLOATS = ir.VectorType(FLOAT, WIDTH), ir.VectorType(BFloat16(), WIDTH)
_PAIRS, _FOURS = ir.VectorType(BFloat16(), 2 * WIDTH), ir.VectorType(ir.IntType(8), 4 * WIDTH)
STORED = {  # element type -> vector type of sixteen, bytes per element
    types.float32: (FLOATS, 4),
    types.uint16: (SHORTS, 2),
    types.uint8: (BYTES, 1),
}


@cache  # LLVM is asked for some tenths of a millisecond
def has_wide_registers(feature: str = "avx512f") -> bool:
    """Whether numba compiles for a processor with AVX-512, or another part of it."""
    context: Any = cpu_target.target_context
    return f"+{feature}" in context.codegen().magic_tuple()[2].split(",")


def has_fused_multiplication() -> bool:
    """Whether numba compiles ``a * b + c`` to one instruction: on x86 with FMA, as in AVX2; on any 64-bit ARM."""
    return platform.machine() not in ("x86_64", "AMD64") or has_wide_registers("fma")


def has_byte_products() -> bool:
    """Whether the processor has the instruction of `byte_products`."""
    return has_wide_registers("avx512vnni") or has_wide_registers("avxvnni")


def compiles_for(*processors: str) -> bool:
    """Whether numba compiles for one of some processors, by LLVM's names."""
    context: Any = cpu_target.target_context
    return context.codegen().magic_tuple()[1].startswith(processors)


@register_model(VectorType)
class _VectorModel(PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, FLOATS)


def pointer_of(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> tuple[Any, ir.VectorType, int]:
    """Pointer to array[index], vector type of sixteen elements, and bytes per element."""
    lanes, align = STORED[array_type.dtype]
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), lanes.as_pointer()), lanes, align


def widen(builder: Any, lanes: Any) -> Any:
    if lanes.type == FLOATS:
        return lanes
    upper = builder.shl(builder.zext(lanes, INTS), ir.Constant(INTS, [16] * WIDTH))
    return builder.bitcast(upper, FLOATS)


def narrow(context: Any, builder: Any, vector: Any, lanes: ir.VectorType) -> Any:
    """Sixteen float32 as the elements of an array: bfloat16 is rounded to the nearest, ties to even.

    Only AVX-512 BF16 has an instruction for it. Elsewhere LLVM would call a function of the compiler's run-time
    library, which is not available, so the lower half of the bits is rounded with integer operations.
    """
    if lanes == FLOATS:
        return vector
    if has_wide_registers("avx512bf16"):
        return builder.bitcast(builder.fptrunc(vector, BFLOATS), lanes)

    def constant(number: int) -> Any:
        return ir.Constant(INTS, [number] * WIDTH)

    bits = builder.bitcast(vector, INTS)
    odd = builder.and_(builder.lshr(bits, constant(16)), constant(1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, constant(0x7FFF))), constant(16))
    is_nan = builder.fcmp_unordered("uno", vector, vector)  # rounding could carry its last bits into the sign
    return builder.trunc(builder.select(is_nan, constant(0x7FC0), rounded), lanes)


def float_products(builder: Any, a: Any, b: Any, sums: Any) -> Any:
    """a * b + sums, rounded once."""
    return builder.call(llvm_function(builder, f"fma.{suffix(FLOATS)}", FLOATS, [FLOATS] * 3), [a, b, sums])


def bfloat16_products(builder: Any, a: Any, b: Any, sums: Any) -> Any:
    """sums + the products of two bfloat16 in the bits of each lane, with AVX-512 BF16."""
    function = llvm_function(builder, "x86.avx512bf16.dpbf16ps.512", FLOATS, [FLOATS, _PAIRS, _PAIRS])
    return builder.call(function, [sums, builder.bitcast(a, _PAIRS), builder.bitcast(b, _PAIRS)])


def adds_in_16_bits() -> bool:
    """Whether `byte_products` adds products in 16 bits first: on x86 with AVX2 and without VNNI."""
    return has_wide_registers("avx2") and not has_byte_products()


WORDS_AT_ONCE = 3 if adds_in_16_bits() else 1
"""Words of four bytes whose products `byte_products` adds at once."""

LARGEST_BYTE = 150 if adds_in_16_bits() else 255
"""The largest number in a row of 8 bits. In 16 bits the sum of six products must fit: the smaller the numbers of rows,
the finer may those of weights be."""


def byte_products(builder: Any, *operands: Any) -> Any:
    """Sums + the products of four bytes in the bits of each lane, on x86 from AVX2 on.

    Without VNNI two of each word and those of all words are added in 16 bits first, which must not overflow.

    Args:
        operands: up to WORDS_AT_ONCE vectors of unsigned words, as many of weights, and sums.
    """
    bits = 512 if has_wide_registers("avx512vnni" if has_byte_products() else "avx512bw") else 256
    lanes, parts = bits // 32, []
    for first in range(0, WIDTH, lanes):
        numbers = ir.Constant(ir.VectorType(INT, lanes), list(range(first, first + lanes)))
        parts.append(_byte_products(builder, *(builder.shuffle_vector(each, each, numbers) for each in operands)))
    return parts[0] if len(parts) == 1 else builder.shuffle_vector(*parts, ir.Constant(INTS, list(range(WIDTH))))


def _byte_products(builder: Any, *operands: Any) -> Any:
    """`byte_products` of the lanes of a register."""
    *factors, sums = operands
    ints, bits = sums.type, 32 * sums.type.count
    shorts, bytes_ = (ir.VectorType(ir.IntType(size), bits // size) for size in (16, 8))
    factors = [builder.bitcast(each, bytes_) for each in factors]
    words, weights = factors[: len(factors) // 2], factors[len(factors) // 2 :]
    if has_byte_products():
        function = llvm_function(builder, f"x86.avx512.vpdpbusd.{bits}", ints, [ints, bytes_, bytes_])
        return builder.call(function, [sums, *words, *weights])
    names = ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512") if bits == 512 else ("avx2.pmadd.ub.sw", "avx2.pmadd.wd")
    multiply = llvm_function(builder, f"x86.{names[0]}", shorts, [bytes_, bytes_])
    pairs = [builder.call(multiply, each) for each in zip(words, weights, strict=True)]
    ones = ir.Constant(shorts, [1] * shorts.count)
    widen_pairs = llvm_function(builder, f"x86.{names[1]}", ints, [shorts, shorts])
    return builder.add(sums, builder.call(widen_pairs, [reduce(builder.add, pairs), ones]))


def in_all_lanes(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined), value, INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(INTS, None))


def shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Lanes by index: 0 to 15 from a, 16 to 31 from b."""
    return builder.shuffle_vector(a, b, ir.Constant(INTS, lanes))


def larger_of(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def smaller_of(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def first_lanes(builder: Any, count: Any) -> Any:
    """A mask bit for each lane, set for the first ``count``."""
    numbers = ir.Constant(INTS, list(range(WIDTH)))
    return builder.icmp_signed("<", numbers, in_all_lanes(builder, builder.trunc(count, INT)))


def suffix(lanes: ir.VectorType) -> str:
    return f"v{WIDTH}" + {FLOATS: "f32", SHORTS: "i16"}[lanes]


def llvm_function(builder: Any, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
    """An LLVM intrinsic by name."""
    name = f"llvm.{name}"
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)
