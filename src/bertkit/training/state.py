"""The state of a run on disk: the model, the optimizer, and where the run is; whole folders, or none.

``checkpoints/step-00000100`` holds ``model``, a model directory like any other, ``optimizer.safetensors`` and
``state.json``. With the settings of the run that is everything: order, masks and dropout are functions of the position.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertkit.errors import CheckpointError, TrainingError
from bertkit.files.json_files import read_json, write_json
from bertkit.files.whole_files import whole_folder
from bertkit.training.optimizers import CombinedOptimizer
from bertkit.training.ranks import gather_full_tensor, placed_like

_BETWEEN = "//"  # a parameter's name, and what is kept of it


@dataclass
class TrainingState:
    """Where a run is."""

    step: int = 0  # optimizer steps done
    position: int = 0  # of the loader
    seconds: float = 0.0  # wall-clock time in the loop, over all its sessions
    num_tokens: int = 0  # real tokens read
    best: float | None = None  # the best value of the metric that decides
    best_step: int | None = None
    num_threads: int = 0  # of torch, when this was saved: another number sums in another order
    num_ranks: int = 1


def optimizer_tensors(network: nn.Module, optimizer: CombinedOptimizer) -> dict[str, Tensor]:
    """What the optimizer keeps, by parameter and name; every rank must ask for it."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
    return {
        f"{names[parameter]}{_BETWEEN}{key}": gather_full_tensor(value)
        for parameter, kept in sorted(optimizer.state.items(), key=lambda item: names[item[0]])
        for key, value in kept.items()
    }


def save_state(
    folder: Path, state: TrainingState, tensors: dict[str, Tensor], save_model: Callable[[Path], None]
) -> None:
    """Write a checkpoint folder, whole or not at all.

    Raises:
        TrainingError: it cannot be written, such as on a disk that is full.
    """
    try:
        with whole_folder(folder, overwrite=True) as temporary:
            save_model(temporary / "model")
            save_file(tensors, str(temporary / "optimizer.safetensors"))
            write_json(temporary / "state.json", asdict(state))
    except (OSError, SafetensorError) as error:
        raise TrainingError(
            f"the checkpoint {folder} cannot be written ({error.__cause__ or error}); those before it are whole. Make "
            "room on its disk, and resume the run"
        ) from error


def load_state(folder: Path, network: nn.Module, optimizer: CombinedOptimizer) -> TrainingState:
    """Read where a run was, and fill the optimizer in.

    Raises:
        CheckpointError: a file that is missing or damaged, or is of another network or optimizer.
    """
    record = read_json(folder / "state.json")
    names = {field.name for field in fields(TrainingState)}
    if not isinstance(record, dict) or set(record) != names:
        raise CheckpointError(f"{folder / 'state.json'} is missing or not the state of a run")
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
        # A count of steps is no shard; fused optimizers want it on the parameter's device.
        kept = placed_like(value, parameter) if value.dim() else value.to(parameter.device)
        optimizer.state_of(parameter)[key] = kept
    return TrainingState(**record)


def checkpoints(run: Path) -> list[Path]:
    """The checkpoint folders of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def checkpoint_folder(run: Path, step: int) -> Path:
    """Where the checkpoint of a step goes."""
    return run / "checkpoints" / f"step-{step:08d}"


def remove_older(run: Path, keep_last: int, best_step: int | None) -> None:
    """Remove checkpoints but for the last few and the best, and what a killed run left half-written."""
    for folder in checkpoints(run)[:-keep_last]:
        if best_step is None or folder != checkpoint_folder(run, best_step):
            shutil.rmtree(folder)
    for leftover in (run / "checkpoints").glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def differences(state: TrainingState, num_ranks: int) -> Iterator[str]:
    """What changes the last bits of a resumed run: other numbers of threads and ranks sum in another order."""
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
