"""The emulator of AMX, checked against numpy, oneDNN's products with it, and instruction sets that are hidden."""

import os
import re
import subprocess
import sys
import textwrap
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from emulated_processor import COMPILER, EMULATOR, EMULATOR_FLAGS, PROCESSORS, SOURCES, environment_or_reason, with_amx
from other_processes import compiled

FLAGS = [*EMULATOR_FLAGS, "-mamx-tile", "-mamx-bf16", "-mamx-int8"]
SMALLEST = np.float32(2.0**-126)


@cache
def driver() -> Path:
    with_amx()  # skips where it cannot be
    return compiled("instructions", *COMPILER, *FLAGS, SOURCES / "instructions.c", *EMULATOR)


def run_instruction(name: str, records: bytes = b"", *, patched: bool = False) -> np.ndarray:
    """Results of an instruction.

    Args:
        patched: emulate it even if the processor has it.
    """
    command = [driver(), name, *["patched"][: int(patched)]]
    result = subprocess.run(command, input=records, capture_output=True)
    assert result.returncode == 0, result.stderr
    return np.frombuffer(result.stdout, np.uint8)


def flushed(x: np.ndarray) -> np.ndarray:
    """Denormals as zeros of the same sign."""
    return np.where(np.abs(x) < SMALLEST, np.copysign(np.float32(0), x), x)


def fused_multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Of bfloat16 factors, whose product is exact in float64."""
    return flushed((flushed(a).astype(np.float64) * flushed(b) + flushed(c)).astype(np.float32))


def random_floats(rng: np.random.Generator, *shape: int, scale: float = 1) -> np.ndarray:
    """With zeros and denormals."""
    x = (rng.standard_normal(shape) * scale).astype(np.float32)
    unusual = rng.choice(np.float32([0, -0.0, 2e-39, -2e-39]), shape)
    return np.where(rng.random(shape) < 0.2, unusual, x)


def random_bfloat16(rng: np.random.Generator, *shape: int, scale: float = 1) -> np.ndarray:
    return (random_floats(rng, *shape, scale=scale).view(np.uint32) >> 16).astype(np.uint16)


SCALES = [(1, 1, 1), (2.0**-63, 2.0**-63, 2.0**-125), (1e-39, 2.0**60, 2.0**-110)]
"""Of both factors and of sums: ordinary, results around the smallest normal number, and factors that are denormals."""


def to_float32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


SHAPES = [(16, 64, 64), (1, 4, 4), (3, 20, 12), (16, 12, 64), (7, 64, 36), (15, 60, 60), (5, 8, 64)]
"""Rows, bytes of a row of A, bytes of a row of C."""


def expected_bfloat16(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """In the order of Intel's manual: even and odd terms apart."""
    (rows, inner), columns = a.shape, c.shape[1]
    b = b.reshape(inner // 2, columns, 2)
    even, odd = np.zeros((2, rows, columns), np.float32)
    for k in range(inner // 2):
        even = fused_multiply_add(to_float32(a[:, 2 * k, None]), to_float32(b[k, :, 0]), even)
        odd = fused_multiply_add(to_float32(a[:, 2 * k + 1, None]), to_float32(b[k, :, 1]), odd)
    return flushed(flushed(c) + flushed(even + odd))


def test_bfloat16_tiles_have_the_bits_of_the_manual() -> None:
    rng, records, expected = np.random.default_rng(1), b"", []
    for (rows, inner, columns), (of_a, of_b, of_c) in product(SHAPES, SCALES):
        a = random_bfloat16(rng, rows, inner // 2, scale=of_a)
        b = random_bfloat16(rng, inner // 4, columns // 2, scale=of_b)
        c = random_floats(rng, rows, columns // 4, scale=of_c)
        records += np.int32([rows, inner, columns]).tobytes() + c.tobytes() + a.tobytes() + b.tobytes()
        expected.append(expected_bfloat16(a, b, c).ravel())
    results = run_instruction("TDPBF16PS", records)
    np.testing.assert_array_equal(results.view(np.uint32), np.concatenate(expected).view(np.uint32))


@pytest.mark.parametrize("signs", ["SS", "SU", "US", "UU"])
def test_int8_tiles_are_exact(signs: str) -> None:
    rng, records, expected = np.random.default_rng(2), b"", []
    of_a, of_b = (np.int8 if sign == "S" else np.uint8 for sign in signs)
    for rows, inner, columns in SHAPES * 2:
        a, b = (rng.integers(0, 256, shape).astype(np.uint8) for shape in [(rows, inner), (inner // 4, columns)])
        c = rng.integers(-(2**31), 2**31, (rows, columns // 4)).astype(np.int32)
        records += np.int32([rows, inner, columns]).tobytes() + c.tobytes() + a.tobytes() + b.tobytes()
        by_row = b.view(of_b).astype(np.int64).reshape(inner // 4, columns // 4, 4).transpose(0, 2, 1)
        product = a.view(of_a).astype(np.int64) @ by_row.reshape(inner, columns // 4)
        expected.append((c + product).astype(np.int32).ravel())
    results = run_instruction(f"TDPB{signs}D", records)
    np.testing.assert_array_equal(results.view(np.int32), np.concatenate(expected))


def rounded(x: np.ndarray) -> np.ndarray:
    """Floats to bfloat16: to nearest even."""
    bits = flushed(x).view(np.uint32).astype(np.uint64)
    values = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), (bits >> 16 | 0x40).astype(np.uint16), values)


def with_mask(name: str, mask: int, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """64 bytes of a destination: masked elements are kept or zeroed, and what is beyond the vector is zero."""
    chosen = (mask >> np.arange(len(new)) & 1).astype(bool) if "merge" in name or "zero" in name else True
    other = old.view(new.dtype)[: len(new)] if "merge" in name else np.zeros_like(new)
    result = np.where(chosen, new, other).view(np.uint8)
    return np.pad(result, (0, 64 - len(result)))


def expected_vector(name: str, mask: int, old: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The destination as bytes; all arguments are vectors of 64 bytes."""
    operation, size = name.split()[0], next((int(word) // 8 for word in name.split() if word.isdigit()), 64)
    b = np.tile(b[:4], 16) if "broadcast" in name else b
    old_part, a, b = old[:size], a[:size], b[:size]
    if operation == "VCVTNEPS2BF16":
        source = np.arange(1, 17, dtype=np.float32) if "relative" in name else b.view(np.float32)
        return with_mask(name, mask, old, rounded(source))
    if operation == "VCVTNE2PS2BF16":
        return with_mask(name, mask, old, rounded(np.concatenate([b, a]).view(np.float32)))
    if operation == "VMOVW":
        return np.pad((a if "memory" in name else b)[:2], (0, 62))
    if operation == "VDPBF16PS":
        x, y = (to_float32(vector.view(np.uint16)) for vector in (a, b))
        odd = fused_multiply_add(x[1::2], y[1::2], old_part.view(np.float32))
        return with_mask(name, mask, old, fused_multiply_add(x[::2], y[::2], odd))
    of_a, of_b = (np.uint8, np.int8) if "BUSD" in operation else (np.int16, np.int16)
    products = a.view(of_a).astype(np.int64) * b.view(of_b)
    total = old_part.view(np.int32) + products.reshape(size // 4, -1).sum(axis=1)
    saturated = np.clip(total, -(2**31), 2**31 - 1) if operation.endswith("DS") else total
    return with_mask(name, mask, old, saturated.astype(np.int32))


CASES = [line.split('"')[1] for line in (SOURCES / "instructions.c").read_text().splitlines() if '    CASE("' in line]


@pytest.mark.parametrize("patched", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_vector_instructions_have_the_bits_of_the_manual(name: str, patched: bool) -> None:
    """Emulated if ``patched``; otherwise a processor that has them shows that the expected values are right."""
    rng, records, expected = np.random.default_rng(3), b"", []
    for number in range(30):
        of_a, of_b, of_c = SCALES[number % 3]
        vectors = [random_floats(rng, 16, scale=of_c).view(np.uint8) for _ in range(3)]
        if "VCVT" in name and number % 2:
            unusual = np.float32([np.inf, -np.inf, np.nan, 3.39e38, 1 + 2**-8, 1 + 3 * 2**-8, 1e-40, -0.0])
            vectors = [rng.choice(unusual, 16).view(np.uint8) for _ in range(3)]
        if "VDP" in name:
            vectors[1:] = [random_bfloat16(rng, 32, scale=scale).view(np.uint8) for scale in (of_a, of_b)]
        if "VPDP" in name:
            vectors = [rng.integers(0, 256, 64).astype(np.uint8) for _ in range(3)]
        mask = int(rng.integers(0, 2**63))
        records += np.uint64(mask).tobytes() + b"".join(vector.tobytes() for vector in vectors)
        expected.append(expected_vector(name, mask, *vectors))
    np.testing.assert_array_equal(run_instruction(name, records, patched=patched), np.concatenate(expected))


@pytest.mark.parametrize("patched", [False, True])
def test_registers_are_kept(patched: bool) -> None:
    run_instruction("registers", patched=patched)


def run_python(code: str, **settings: str) -> str:
    environment = {**os.environ, **with_amx(), "OMP_NUM_THREADS": "2", **settings}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_rows_of_amx_products_depend_on_their_number_and_ours_do_not() -> None:
    """The fault of an AMX processor in bfloat16, where oneDNN's kernels for AMX run: 1536 x 384, 33 rows among 350."""
    output = run_python(
        """
        import torch
        from bertkit.transformer.kernels.linear import OneDNNLinear
        generator = torch.Generator().manual_seed(4)
        weight, rows = (torch.randn(n, 1536, generator=generator).bfloat16() for n in (384, 350))
        linear = OneDNNLinear(weight, None)
        library, ours = (lambda x: linear.multiply(None, x)), linear
        for multiply in (library, ours):
            whole = multiply(rows)
            print("equal:", [torch.equal(multiply(rows[:n].clone()), whole[:n]) for n in (4, 33)])
        """,
        ONEDNN_VERBOSE="1",
    )
    assert re.search(r"brg_matmul:avx10_1_512_amx,.*wei:bf16.*,mb33ic1536oc384,", output)
    assert [line for line in output.splitlines() if line.startswith("equal")] == [
        "equal: [True, False]", "equal: [True, True]",
    ]  # fmt: skip


def test_int8_products_are_exact_on_amx() -> None:
    output = run_python(
        """
        import torch
        from bertkit.transformer.kernels.dispatch import linear_for
        print("fast:", *(linear_for(precision).is_fast for precision in ("int8", "bfloat16")))
        weight, rows = torch.randint(-127, 128, (96, 384)), torch.randint(0, 256, (70, 384))
        weight[:, 5], rows[:9] = 127, 255
        product = linear_for("int8").linear(weight.float(), torch.zeros(96)).multiply(rows.to(torch.uint8))
        print("exact:", torch.equal(product, ((rows - 128) @ weight.T).float()))
        """,
        ONEDNN_VERBOSE="1",
    )
    assert "fast: True True" in output and "exact: True" in output
    assert re.search(r"brg_matmul:avx10_1_512_amx,.*wei:s8.*,70x384:384x96,", output)


def test_doctor_reports_amx() -> None:
    output = run_python("from bertkit.cli import doctor; print(doctor._onednn_instruction_sets())")
    assert "Intel AMX with bfloat16 and 8-bit integer support" in output


SEEN = {  # by numpy, torch, oneDNN, which emulates bfloat16 with AVX-512, and numba; and the fastest linear layers
    "avx2": ("False AVX2 False", "Intel AVX2", "znver3", "CompiledBFloat16Linear CompiledInt8Linear"),
    "avx512": (
        "True AVX512 True", "Intel AVX-512 with AVX512BW, AVX512VL, and AVX512DQ extensions", "skylake-avx512",
        "CompiledBFloat16Linear CompiledInt8Linear",
    ),
    "avx512_vnni": (
        "True AVX512 True", "Intel AVX-512 with Intel DL Boost", "icelake-server",
        "CompiledBFloat16Linear OneDNNInt8Linear",
    ),
    "avx512_bf16": (
        "True AVX512 True", "Intel AVX-512 with Intel DL Boost and bfloat16 support", "znver4",
        "OneDNNLinear OneDNNInt8Linear",
    ),
}  # fmt: skip


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("name", PROCESSORS)
def test_hidden_instruction_sets_are_hidden_from_all_libraries(name: str) -> None:
    environment = environment_or_reason(name)
    if isinstance(environment, str):
        pytest.skip(environment)
    code = """
        import numba, numpy, torch
        from numba.core.registry import cpu_target
        from bertkit.cli.doctor import _onednn_instruction_sets
        from bertkit.transformer.kernels.dispatch import linear_for
        from bertkit.transformer.kernels.llvm_vectors import has_wide_registers
        from bertkit.transformer.kernels.vectors import load, store
        features = numpy._core._multiarray_umath.__cpu_features__
        bfloat16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        print(features["AVX512F"], torch.backends.cpu.get_cpu_capability(), bfloat16)
        print(_onednn_instruction_sets())
        print(cpu_target.target_context.codegen().magic_tuple()[1])
        print(*(linear_for(precision).linear.__name__ for precision in ("bfloat16", "int8")))
        copy = numba.njit(lambda x: store(x, 1, load(x, 0)))
        copy(numpy.ones(17, numpy.float32))
        print(has_wide_registers(), *(has_wide_registers("avx512" + each) for each in ("vnni", "bf16")))
        print("zmm" in "".join(copy.inspect_asm().values()))
        """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    classes = list(PROCESSORS)
    registers = [str(classes.index(name) >= number) for number in (1, 2, 3)]
    *seen, of_numba, uses_wide = result.stdout.splitlines()
    assert tuple(seen) == SEEN[name]
    assert of_numba.split() == registers
    assert uses_wide == str(name != "avx2")
