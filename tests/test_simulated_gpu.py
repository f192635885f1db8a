"""bertkit on simulated GPUs: torch with CUDA devices whose operators the CPU computes.

Numbers, devices, copies, waits, CUDA graphs and messages between ranks are then as on GPUs; kernels and speed are not.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from simulated_gpu_library import simulation

TESTS = Path(__file__).parent

pytestmark = pytest.mark.cpu_only


def run_there(*arguments: str, number: int = 1) -> None:
    """Run tests with simulated GPUs."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "0"]
    result = subprocess.run(
        [*command, "--tb", "short", *arguments], cwd=TESTS, env=simulation(number), capture_output=True, text=True
    )
    assert result.returncode == 0, f"{result.stdout[-9_000:]}\n{result.stderr[-3_000:]}"


def test_simulated_gpu_is_like_a_gpu() -> None:
    run_there("gpu/checks.py")


def test_models_compute_and_learn_there() -> None:
    run_there(
        "test_families.py",
        "test_static_shapes.py",
        "-k",
        "fine_tuning and (albert or modern or deberta or gte) or verb or compiled_run",
    )


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_every_test_there() -> None:
    run_there("-m", "not slow and not cpu_only and not every_processor", "-n", "2", "--dist", "loadfile", number=2)


@pytest.mark.slow
def test_two_ranks_on_two_gpus() -> None:
    run_there(
        "test_pretraining.py",
        "test_finetuning_ranks.py",
        "-m",
        "slow or not slow",
        "-k",
        "ranks or killed_rank",
        number=2,
    )
