"""The weights that a run changes, all of the model's or low-rank updates: which learn, and how they are stored."""

from pathlib import Path

from bertkit.checkpoint import save_checkpoint
from bertkit.finetuning.adapters import add_adapters, read_adapter, without_adapters, write_adapter
from bertkit.finetuning.network import freeze
from bertkit.finetuning.settings import FinetuningSettings
from bertkit.model import Model, load

_ADAPTER = "adapter"  # subfolder of a model


def choose_what_learns(model: Model, settings: FinetuningSettings, saved: Path | None) -> None:
    """Freeze the weights that do not learn, and add the updates, if the settings have any.

    Args:
        saved: the model of the last checkpoint, from which updates are read; None: a new run.
    """
    if settings.lora_rank is None:
        freeze(model, settings.frozen_layers)
        model.mark_trained()
        return
    add_adapters(model, settings.lora_rank, settings.lora_alpha, settings.training.seed)
    if saved is not None:
        read_adapter(model, saved / _ADAPTER)


def write_learned(model: Model, folder: Path, base: str, *, has_adapters: bool) -> None:
    """Write the model directory; with adapters, the merged model, and the adapters in a subfolder.

    Args:
        base: the model that the run started from, as the adapters' files name it.
    """
    if has_adapters:
        without_adapters(model).save(folder)
        write_adapter(model, folder / _ADAPTER, base)
    else:
        save_checkpoint(model.checkpoint, folder)


def read_learned(model: Model, folder: Path, *, has_adapters: bool) -> None:
    """Read the weights that `write_learned` wrote into the model."""
    if has_adapters:
        read_adapter(model, folder / _ADAPTER)
    else:
        model.network.load_state_dict(load(folder, device="cpu").network.state_dict())
