"""The library of the simulated GPU (tests/gpu), compiled once for a process."""

import importlib.util
import os
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest
from other_processes import TESTS, compiled, environment_with

FLAGS = ["-O1", "-std=c++20", "-Wall", "-Wextra", "-shared", "-fPIC"]


def torch_folder() -> Path:
    """The folder of torch, which is not imported."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@cache
def library_or_reason() -> Path | str:
    """The library, or why there is none."""
    if not sys.platform.startswith("linux") or shutil.which("g++") is None:
        return "the simulated GPU needs Linux and g++"
    of_torch = torch_folder()
    if not {"libtorch_cuda.so", "libtorch_hip.so"}.isdisjoint(os.listdir(of_torch / "lib")):
        return "this build of torch has real GPUs"
    headers = [f"-isystem{of_torch / 'include' / more}" for more in ("", "torch/csrc/api/include")]
    libraries = [f"-L{of_torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    return compiled("libgpu.so", "g++", *FLAGS, *headers, TESTS / "gpu" / "device.cpp", *libraries)


def simulation(number: int = 1) -> dict[str, str]:
    """Environment of a process, and of those that it starts, with simulated GPUs; skips the test where there can be
    none."""
    library = library_or_reason()
    if isinstance(library, str):
        pytest.skip(library)
    return environment_with({"SIMULATED_GPU": str(library), "SIMULATED_GPUS": str(number)}, TESTS / "gpu")
