"""Attention in Triton, without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
from other_processes import environment_with, run_tests


@pytest.mark.slow
def test_kernels_in_triton(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, "triton"]
    if subprocess.run(command, check=False).returncode:
        pytest.skip("triton, which comes with torch for CUDA, cannot be installed here")
    run_tests(environment_with({"TRITON_INTERPRET": "1"}, tmp_path), "gpu/triton_kernels.py")
    run_tests(environment_with({}, tmp_path), "gpu/triton_compilation.py")
