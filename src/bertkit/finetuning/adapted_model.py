"""Opening an adapter's folder: its base model with the updates added to the weights, as the run saved it merged."""

import math
from os.path import expanduser
from pathlib import Path

from bertkit.checkpoint.own_record import NAME, read_record
from bertkit.checkpoint.trained_task import task_of_record
from bertkit.device import weights_dtype
from bertkit.errors import CheckpointError
from bertkit.files.json_files import check_required_values, member
from bertkit.finetuning.adapters import add_adapters, add_to_weights, read_adapter, read_adapter_config
from bertkit.finetuning.network import model_to_train
from bertkit.finetuning.settings import FinetuningSettings
from bertkit.locate import ADAPTER_CONFIG
from bertkit.model import Model
from bertkit.model.loading import model_of

_REQUIRED = {"use_rslora": (False,), "use_dora": (False,), "rank_pattern": ({},), "alpha_pattern": ({},)}
"""Settings of the PEFT library that change the updates."""


def load_adapter(name: str | Path, *, precision: str = "float32", device: str = "auto") -> Model:
    """Open an adapter that `bertkit finetune --lora-rank` wrote, with its base model.

    The weights that it leaves as they are stay mapped from the base model's file, which all adapters share. On the
    device that the adapter was trained on, outputs have the bits of the merged model.

    Args:
        name: the folder of the adapter.
        precision, device: as in `bertkit.load`.

    Raises:
        CheckpointError: files that are missing or damaged, or no such base model.
    """
    folder = Path(expanduser(name))
    config, record, path = read_adapter_config(folder), read_record(folder), folder / NAME
    where = folder / ADAPTER_CONFIG
    base = member(config, "base_model_name_or_path", str, where, "")
    rank, alpha = member(config, "r", int, where, 0), member(config, "lora_alpha", float, where, math.nan)
    check_required_values(config, _REQUIRED, where)
    if rank < 1 or not math.isfinite(alpha):
        raise CheckpointError(
            f"{where} has r={rank} and lora_alpha={alpha}: expected a rank of at least 1 and a number"
        )
    content = member(record or {}, "task", dict, path)
    if content is None:
        raise CheckpointError(
            f"{path} does not name the task of the adapter: expected a folder that bertkit finetune --lora-rank wrote"
        )
    names = member(record or {}, "label_names", list, path)
    trained = task_of_record(content, path, None if names is None else tuple(names), None)
    layout = trained.layout
    settings = FinetuningSettings.of(
        head="drawn", max_length=layout.max_length, on_long=layout.on_long, stride=layout.stride
    )
    try:
        model = model_to_train(base, trained.task, settings, lambda line: None)
    except CheckpointError as error:
        raise CheckpointError(f"the base model of the adapter {folder}: {error}") from None
    add_adapters(model, rank, alpha, seed=0)
    read_adapter(model, folder)
    add_to_weights(model)
    checkpoint = model.checkpoint
    checkpoint.trained = trained
    checkpoint.network.eval().requires_grad_(True)
    checkpoint.network.to(weights_dtype("float32" if precision == "auto" else precision))
    return model_of(checkpoint, precision, device)
