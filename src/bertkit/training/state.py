"""Checkpoints of a run: model, optimizer and position, written atomically.

``checkpoints/step-00000100`` holds ``model``, a model directory like any other, ``optimizer.safetensors`` and
``state.json``. With the settings of the run this is the complete state: order, masks and dropout depend only on the
position.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertkit.errors import CheckpointError, TrainingError
from bertkit.files.json_files import read_json, write_json
from bertkit.files.whole_files import whole_folder
from bertkit.training.optimizers import CombinedOptimizer
from bertkit.training.ranks import gather_full_tensor, placed_like

STATE = "state.json"

_BETWEEN = "//"  # separates a parameter's name and the name of its state


@dataclass
class TrainingState:
    """Progress of a run."""

    step: int = 0  # number of optimizer steps
    position: int = 0  # position of the loader
    seconds: float = 0.0  # time in the loop by the trainer's clock, interruptions excluded
    num_tokens: int = 0  # real tokens processed
    best: float | None = None  # the best value of the selecting metric
    best_step: int | None = None
    step_evaluated: int = -1  # step of the latest evaluation
    num_worse: int = 0  # number of the latest evaluations that did not improve on the best
    num_threads: int = 0  # torch's number of threads when saved: it determines the order of sums
    num_ranks: int = 1


def optimizer_tensors(network: nn.Module, optimizer: CombinedOptimizer) -> dict[str, Tensor]:
    """Optimizer state by parameter and name; every rank must call it."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
    return {
        f"{names[parameter]}{_BETWEEN}{key}": gather_full_tensor(value)
        for parameter, kept in sorted(optimizer.state.items(), key=lambda item: names[item[0]])
        for key, value in kept.items()
    }


def save_state(
    folder: Path, state: TrainingState, tensors: dict[str, Tensor], save_model: Callable[[Path], None]
) -> None:
    """Write a checkpoint folder atomically.

    Raises:
        TrainingError: it cannot be written, for example because the disk is full.
    """
    try:
        with whole_folder(folder, overwrite=True) as temporary:
            save_model(temporary / "model")
            save_file(tensors, str(temporary / "optimizer.safetensors"))
            write_json(temporary / STATE, asdict(state))
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"the checkpoint {folder} cannot be written ({reason}); earlier checkpoints are intact: resume the run "
            "when it can be"
        ) from error


def load_state(folder: Path, network: nn.Module, optimizer: CombinedOptimizer) -> TrainingState:
    """Load the progress of a run and its optimizer state.

    Raises:
        CheckpointError: a file that is missing, damaged, or from another network or optimizer.
    """
    if (state := read_state(folder / STATE)) is None:
        raise CheckpointError(f"{folder / STATE} is missing or not the state of a run")
    parameters = dict(network.named_parameters())
    try:
        tensors = load_file(str(folder / "optimizer.safetensors"))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder / 'optimizer.safetensors'} cannot be read: {error}") from None
    for full_name, value in tensors.items():
        name, _, key = full_name.partition(_BETWEEN)
        parameter = parameters.get(name)
        if parameter is None or (value.dim() and value.shape != parameter.shape):
            raise CheckpointError(f"{folder} holds the optimizer's {full_name}, which this network lacks")
        # A step count is not sharded; fused optimizers need it on the parameter's device.
        kept = placed_like(value, parameter) if value.dim() else value.to(parameter.device)
        optimizer.state_of(parameter)[key] = kept
    return state


def read_state(path: Path) -> TrainingState | None:
    """The progress of a run; None: the file is missing or malformed."""
    return state_of(read_json(path))


def state_of(record: dict[str, Any] | None) -> TrainingState | None:
    """The progress of a run from its JSON record; None if that is missing or lacks a value."""
    names = {field.name for field in fields(TrainingState)}
    return TrainingState(**record) if record is not None and set(record) == names else None


def checkpoints(run: Path) -> list[Path]:
    """The checkpoint folders of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def checkpoint_folder(run: Path, step: int) -> Path:
    """Folder of the checkpoint of a step."""
    return run / "checkpoints" / f"step-{step:08d}"


def remove_older(run: Path, keep_last: int, best_step: int | None) -> None:
    """Remove all checkpoints except the last few and the best, and incomplete ones of killed runs."""
    for folder in checkpoints(run)[:-keep_last]:
        if best_step is None or folder != checkpoint_folder(run, best_step):
            shutil.rmtree(folder)
    for leftover in (run / "checkpoints").glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def differences(state: TrainingState, num_ranks: int) -> Iterator[str]:
    """Differences that change the last bits of a resumed run: different numbers of threads or ranks change the order of
    sums."""
    now = torch.get_num_threads()
    if state.num_threads not in (0, now):
        yield (
            f"this run used {state.num_threads} threads and resumes with {now}: its numbers will differ in the last "
            f"bits from an uninterrupted one (set OMP_NUM_THREADS={state.num_threads} for the same)"
        )
    if state.num_ranks != num_ranks:
        yield (
            f"this run used {state.num_ranks} ranks and resumes with {num_ranks}: the same examples in the same order, "
            "sums that differ in the last bits"
        )
