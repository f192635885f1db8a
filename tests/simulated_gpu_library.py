"""The library of the simulated GPU (tests/gpu), compiled once for a process."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parent
FLAGS = ["-O1", "-std=c++20", "-Wall", "-Wextra", "-shared", "-fPIC"]


@cache
def library_or_reason() -> Path | str:
    """The library, or why there is none."""
    if not sys.platform.startswith("linux") or shutil.which("g++") is None:
        return "the simulated GPU needs Linux and g++"
    if torch.version.cuda or torch.version.hip:
        return "this build of torch has real GPUs"
    folder, of_torch = Path(tempfile.mkdtemp()), Path(torch.__file__).parent
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    headers = [f"-isystem{of_torch / 'include' / more}" for more in ("", "torch/csrc/api/include")]
    libraries = [f"-L{of_torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    library = folder / "libgpu.so"
    source = str(TESTS / "gpu" / "device.cpp")
    subprocess.run(["g++", *FLAGS, *headers, source, "-o", str(library), *libraries], check=True)
    return library


def simulation() -> dict[str, str]:
    """Environment of a process with the simulated GPU; skips the test where there can be none."""
    library = library_or_reason()
    if isinstance(library, str):
        pytest.skip(library)
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    unset = {"PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return {**kept, "SIMULATED_GPU": str(library), "PYTHONPATH": paths}
