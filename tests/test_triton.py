"""The kernels in Triton, without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
from other_processes import environment_with, run_tests
from simulated_gpu_library import simulation


@pytest.mark.slow
def test_kernels_in_triton(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, "triton"]
    if subprocess.run(command, check=False).returncode:
        pytest.skip("triton, which comes with torch for CUDA, cannot be installed here")
    interpreted = {"TRITON_INTERPRET": "1"}
    run_tests(environment_with(interpreted, tmp_path), "gpu/triton_kernels.py", "gpu/triton_invariance.py")
    run_tests(environment_with({}, tmp_path), "gpu/triton_compilation.py")
    simulated = simulation()
    paths = {"PYTHONPATH": f"{simulated['PYTHONPATH']}:{tmp_path}"}
    run_tests(simulated | interpreted | paths | {"BERTKIT_BATCH_INVARIANT": "1"}, "gpu/invariance.py")
