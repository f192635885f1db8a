"""Another processor, emulated in user space (tests/emulator): with AMX, or without some instruction sets.

With AMX, AVX-512 BF16 and FP16 and AVX-VNNI added, oneDNN chooses the kernels of such a processor and runs them: their
bits are right, their speed means nothing. Where sets are hidden, all libraries choose as on a processor of
PROCESSORS. As a program, it runs tests so: ``python tests/emulated_processor.py avx2 tests/test_kernels.py``.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
import pytest
from other_processes import TESTS, compiled

from bertkit.transformer.kernels.instruction_sets import instruction_sets

SOURCES = TESTS / "emulator"
EMULATOR = [SOURCES / name for name in ("processor.c", "patches.c", "registers.c", "tiles.c", "vectors.c")]
EMULATOR_FLAGS = ["-march=skylake-avx512", "-mavx512vnni", "-ffp-contract=off"]
SHARED = ["-shared", "-fPIC", "-ftls-model=initial-exec"]
COMPILER = ["gcc", "-O2", "-std=gnu17", "-Wall", "-Wextra"]
EMULATED = {"amx-bf16", "amx-int8", "avx512bf16", "avx512fp16", "avxvnni"}
"""Instruction sets, by LLVM's names; of FP16 only what oneDNN and LLVM use here."""

NEEDED = {"avx512bw", "avx512dq", "avx512vl", "avx512vnni"}
"""Those of the emulator itself."""


class ProcessorClass(NamedTuple):
    """A class of processors with fewer instruction sets."""

    vendor: str
    signature: int  # family, model and stepping
    newest: str  # the instruction set that the class before it lacks, by LLVM's name
    hidden: str  # the beginnings of names of instruction sets, as in /proc/cpuinfo


NEWER = "avx10 avx_ amx avx512_fp16 avx512_vp2intersect"
PROCESSORS = {
    "avx2": ProcessorClass("AuthenticAMD", 0xA20F10, "avx2", f"{NEWER} avx512"),  # Zen 3
    "avx512": ProcessorClass("GenuineIntel", 0x50654, "avx512f", f"{NEWER} avx512_ avx512ifma avx512vbmi"),  # Skylake
    "avx512_vnni": ProcessorClass("GenuineIntel", 0x606A6, "avx512vnni", f"{NEWER} avx512_bf16"),  # Ice Lake
    "avx512_bf16": ProcessorClass("AuthenticAMD", 0xA10F11, "avx512bf16", NEWER),  # Zen 4
}


@cache
def library_or_reason() -> Path | str:
    """The library to preload, or why there is none."""
    if "EMULATED_PROCESSOR" in os.environ:
        return "this processor is emulated"
    if lacking := sorted(NEEDED - instruction_sets()):
        return f"the emulator of processors needs {', '.join(lacking)}"
    if shutil.which("gcc") is None:
        return "the emulator of processors needs gcc"
    library = compiled("libprocessor.so", *COMPILER, *EMULATOR_FLAGS, *SHARED, *EMULATOR)
    tried = subprocess.run(["true"], env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True)
    return library if tried.returncode == 0 else f"no processor can be emulated here: {tried.stderr.strip()}"


def with_amx() -> dict[str, str]:
    """Environment of a processor with AMX; skips the test where there can be none.

    numba compiles for the real processor, unless settings override it, so that its cached kernels are used again.
    """
    library = library_or_reason()
    if isinstance(library, str):
        pytest.skip(library)
    if "amx-tile" in instruction_sets():
        pytest.skip("this processor has AMX, and executes a part of its instructions before an emulator could")
    features = llvm.get_host_cpu_features().flatten()
    numba = {"NUMBA_CPU_NAME": llvm.get_host_cpu_name(), "NUMBA_CPU_FEATURES": features}
    return {"LD_PRELOAD": str(library), **numba}


def environment_or_reason(name: str) -> dict[str, str] | str:
    """Environment of one of PROCESSORS, or why it cannot be emulated here."""
    library, processor = library_or_reason(), PROCESSORS[name]
    if isinstance(library, str):
        return library
    if processor.newest not in instruction_sets():
        return f"this processor lacks {processor.newest}"
    description = f"{processor.vendor} {processor.signature:#x} {processor.hidden}"
    return {"LD_PRELOAD": str(library), "EMULATED_PROCESSOR": description}


def main(name: str = "", *arguments: str) -> int | str:
    """The exit code of pytest with these arguments on one of PROCESSORS, or what is wrong."""
    if name not in PROCESSORS:
        return f"expected one of {', '.join(PROCESSORS)}, got {name!r}"
    environment = environment_or_reason(name)
    if isinstance(environment, str):
        return environment
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], env={**os.environ, **environment}).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
