"""Row invariance and exact outputs on every processor that this machine can simulate.

A library chooses its machine code by the processor's instruction sets. Where CPUID can be emulated, it answers without
some of them; elsewhere environment variables forbid them to each library. Each simulated processor is another process,
which runs other tests again: those marked `every_processor`, and in `make test-slow` all tests of exactness.
"""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pytest
from emulated_processor import EMULATED, environment_or_reason, with_amx
from other_processes import TESTS, environment_with, run_tests

from bertkit.transformer.kernels.instruction_sets import instruction_sets

pytestmark = pytest.mark.full

MARK = re.compile(r"^(@|    )pytest\.mark\.every_processor,?$", re.MULTILINE)
MARKED = {file.name for file in TESTS.glob("test_*.py") if MARK.search(file.read_text())}
KERNELS = {"test_kernels.py", "test_modern_kernels.py", "test_training_kernels.py"}
TOKENIZER = {"test_tokenizer_engine.py", "test_tokenizer_exact.py"}
MODELS = {"test_exact.py", "test_modern_exact.py"}


class Processor(NamedTuple):
    """Environment of a process, and the instruction sets it then needs, by LLVM's names."""

    settings: Mapping[str, str] = MappingProxyType({})
    needs: str = ""
    arguments: Sequence[str] = ()
    emulated: str = ""  # one of PROCESSORS, instead of the settings where it can be emulated


def numba(processor: str, features: str = "") -> dict[str, str]:
    """For LLVM the name stands for features; those that we ask for are also listed."""
    return {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": features}


LIBRARIES_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
MANY_THREADS = {"OMP_NUM_THREADS": str(max(16, (os.cpu_count() or 1) + 3)), "OMP_WAIT_POLICY": "passive"}
WITHOUT_ONEDNN = ["-p", "without_onednn"]

AMX = Processor({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX"}, "amx-bf16 amx-int8")
AVX2 = Processor({**LIBRARIES_AVX2, **numba("haswell", "+avx2,+fma")}, "avx2 fma", emulated="avx2")

SHORT = {
    "AMX": AMX._replace(arguments=("-k", "regardless and bfloat16 or int8_product_is")),
    "AVX2": AVX2._replace(arguments=("-k", "regardless or kernels")),
    "no oneDNN, more threads than cores": Processor(MANY_THREADS, arguments=WITHOUT_ONEDNN),
}
WHOLE = {
    "one thread": Processor({"OMP_NUM_THREADS": "1"}),
    "more threads than cores": Processor(MANY_THREADS),
    "no oneDNN": Processor(arguments=WITHOUT_ONEDNN),
    "no vectors beyond SSE4": Processor(
        {"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default", **numba("nehalem")}, "sse4.1"
    ),
    "libraries with AVX2": Processor(LIBRARIES_AVX2, "avx2 fma"),
    "AVX2": AVX2,
    "AVX2 VNNI": Processor({"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", **numba("alderlake", "+avx2,+fma,+avxvnni")}, "avxvnni"),
    "AVX2 VNNI 2": Processor({"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI_2"}, "avxvnniint8 avxneconvert"),
    "AVX-512": Processor(
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", **numba("skylake-avx512")}, "avx512bw", emulated="avx512"
    ),
    "AVX-512 VNNI": Processor({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, "avx512vnni", emulated="avx512_vnni"),
    "AVX-512 BF16": Processor({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, "avx512bf16", emulated="avx512_bf16"),
    "AVX-512 FP16": Processor({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}, "avx512fp16"),
    "AMX": AMX,
    "Sapphire Rapids": Processor(numba("sapphirerapids"), "amx-bf16 amx-int8 avxvnni avx512bf16 avx512fp16"),
    "AMX FP16": Processor({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX_FP16"}, "amx-fp16"),
}


def environment_of(processor: Processor) -> dict[str, str]:
    lacking = set(processor.needs.split()) - instruction_sets()
    if not lacking <= EMULATED:
        pytest.skip(f"this machine has no {', '.join(sorted(lacking))}")
    emulated = environment_or_reason(processor.emulated) if processor.emulated and not lacking else ""
    if isinstance(emulated, dict):
        return environment_with(emulated)
    return environment_with({**(with_amx() if lacking else {}), **processor.settings})


def run_again(processor: Processor, files: set[str], marker: str) -> None:
    run_tests(environment_of(processor), "-m", marker, *processor.arguments, *sorted(files))


def test_libraries_use_the_simulated_processor() -> None:
    code = """
        import torch, without_onednn, bertkit.transformer.kernels.dispatch as choice
        from numba.core.registry import cpu_target
        print(torch.backends.cpu.get_cpu_capability(), cpu_target.target_context.codegen().magic_tuple()[1:])
        print(torch.ops.mkldnn._is_mkldnn_bf16_supported(), choice.kernels_for("float32", torch.device("cpu")).linear)
        """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment_of(AVX2._replace(emulated="")), capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, second = result.stdout.splitlines()
    assert first == "AVX2 ('haswell', '+avx2,+fma')"
    assert second.startswith("False ") and "CompiledLinear" in second


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "threads" in name else ()) for name in SHORT]
)
def test_promises(name: str) -> None:
    run_again(SHORT[name], MARKED if name == "AVX2" else MARKED - KERNELS, "every_processor")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", WHOLE)
def test_every_test_of_exactness(name: str) -> None:
    run_again(WHOLE[name], MARKED | KERNELS | TOKENIZER | MODELS, "not slow")
