"""bertkit on simulated GPUs: torch with CUDA devices whose operators the CPU computes.

Numbers, devices, copies, waits, CUDA graphs and messages between ranks are then as on GPUs; kernels and speed are not.
"""

import pytest
from other_processes import run_tests
from simulated_gpu_library import simulation

pytestmark = [pytest.mark.full, pytest.mark.cpu_only]


def test_models_compute_and_learn_there() -> None:
    run_tests(
        simulation(),
        "gpu/checks.py",
        "gpu/recorded_training.py",
        "test_families.py",
        "test_static_shapes.py",
        "-k",
        "checks or recorded_training or fine_tuning and (albert or deberta) or verb or compiled_run",
    )


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_every_test_there() -> None:
    run_tests(simulation(2), "-m", "not slow and not cpu_only and not every_processor", "-n", "2", "--dist", "loadfile")


@pytest.mark.slow
def test_two_ranks_on_two_gpus() -> None:
    run_tests(
        simulation(2),
        "test_pretraining.py",
        "test_finetuning_ranks.py",
        "-m",
        "slow or not slow",
        "-k",
        "ranks or killed_rank",
    )
