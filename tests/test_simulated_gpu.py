"""bertkit on a simulated GPU: torch with a CUDA device whose operators the CPU computes.

Numbers, devices, copies, waits and CUDA graphs are then as on a GPU; its kernels and its speed are not.
"""

import subprocess
import sys
from pathlib import Path

from simulated_gpu_library import simulation

TESTS = Path(__file__).parent


def run_there(*arguments: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "simulated_gpu", "-p", "no:cacheprovider", "--timeout", "0"]
    result = subprocess.run(
        [*command, "--tb", "short", *arguments], cwd=TESTS, env=simulation(), capture_output=True, text=True
    )
    assert result.returncode == 0, f"{result.stdout[-9_000:]}\n{result.stderr[-3_000:]}"


def test_simulated_gpu_is_like_a_gpu() -> None:
    run_there("gpu/checks.py")
