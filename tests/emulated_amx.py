"""AMX, AVX-512 BF16 and FP16 and AVX-VNNI, emulated in user space (tests/amx) on an Intel processor without them.

oneDNN then chooses the kernels of such a processor and runs them: their bits are right, their speed means nothing.
"""

import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from other_processes import TESTS, compiled

SOURCES = TESTS / "amx"
EMULATOR = [SOURCES / name for name in ("processor.c", "patches.c", "registers.c", "tiles.c", "vectors.c")]
EMULATOR_FLAGS = ["-march=skylake-avx512", "-mavx512vnni", "-ffp-contract=off"]
SHARED = ["-shared", "-fPIC", "-ftls-model=initial-exec"]
COMPILER = ["gcc", "-O2", "-std=gnu17", "-Wall", "-Wextra"]
EMULATED = {"amx_bf16", "amx_int8", "avx512_bf16", "avx512_fp16", "avx_vnni"}
"""Instruction sets, by their names in /proc/cpuinfo; of FP16 only what oneDNN and LLVM use here."""

NEEDED = "avx512bw avx512dq avx512vl avx512_vnni"
"""Those of the emulator itself."""


def processor_flags() -> list[str]:
    """Instruction sets of an x86 processor, by their names in /proc/cpuinfo."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if platform.machine() == "x86_64" and information.exists() else []
    return next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])


@cache
def library_or_reason() -> Path | str:
    """The library to preload, or why there is none."""
    if lacking := [name for name in NEEDED.split() if name not in processor_flags()]:
        return f"the emulator of AMX needs {', '.join(lacking)}"
    if "amx_tile" in processor_flags():
        return "this processor has AMX, and executes a part of its instructions before an emulator could"
    if shutil.which("gcc") is None:
        return "the emulator of AMX needs gcc"
    library = compiled("libamx.so", *COMPILER, *EMULATOR_FLAGS, *SHARED, *EMULATOR)
    tried = subprocess.run(["true"], env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True)
    return library if tried.returncode == 0 else f"AMX cannot be emulated here: {tried.stderr.strip()}"


def emulation() -> dict[str, str]:
    """Environment of an emulated processor; skips the test where there can be none.

    numba compiles for the real processor, unless settings override it, so that its cached kernels are used again.
    """
    library = library_or_reason()
    if isinstance(library, str):
        pytest.skip(library)
    features = llvm.get_host_cpu_features().flatten()
    numba = {"NUMBA_CPU_NAME": llvm.get_host_cpu_name(), "NUMBA_CPU_FEATURES": features}
    return {"LD_PRELOAD": str(library), **numba}
