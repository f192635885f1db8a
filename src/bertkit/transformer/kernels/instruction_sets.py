"""The instruction sets of this processor."""

import platform
from functools import cache
from pathlib import Path

import llvmlite.binding

_CPUINFO = Path("/proc/cpuinfo")


@cache
def instruction_sets() -> frozenset[str]:
    """Those that this process may use: on x86 by CPUID, as all libraries see them, and by LLVM's names ("avx512vnni",
    "amx-bf16"); elsewhere by Linux and its names ("asimd", "sve"), and none on other systems."""
    if platform.machine() in ("x86_64", "AMD64"):
        features = llvmlite.binding.get_host_cpu_features()
        return frozenset(name for name, is_here in features.items() if is_here)
    return features_of(_CPUINFO.read_text() if _CPUINFO.is_file() else "")


def features_of(cpuinfo: str) -> frozenset[str]:
    """The features of an ARM processor in the text of Linux's /proc/cpuinfo."""
    lists = [line.partition(":")[2].split() for line in cpuinfo.splitlines() if line.startswith("Features")]
    return frozenset(lists[0] if lists else ())
