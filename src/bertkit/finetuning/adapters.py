"""Low-rank adapters (LoRA): train a low-rank update of each query and value projection, and what follows the encoder.

Hu et al. 2021, "LoRA: low-rank adaptation of large language models": ``W + alpha / rank B A``. Files are those of the
PEFT library, ``adapter_config.json`` and ``adapter_model.safetensors``. Shape letters: N outputs, D inputs.
"""

import copy
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bertkit.architectures.tensor_names import PROJECTION
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.checkpoint.own_record import write_record
from bertkit.checkpoint.trained_task import task_json
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, read_json, write_json
from bertkit.locate import ADAPTER_CONFIG
from bertkit.model import Model

_ADAPTED = ("query", "value", "query_key_value")  # projections
_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."


class LowRankUpdate(nn.Module):
    """Low-rank update of a weight (N, D); initially 0, as B starts at 0."""

    def __init__(self, weight: Tensor, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        num_outputs, num_inputs = weight.shape
        bound = 1 / math.sqrt(num_inputs)
        a = torch.empty(rank, num_inputs).uniform_(-bound, bound, generator=generator)
        self.a = nn.Parameter(a.to(weight))  # (rank, D)
        self.b = nn.Parameter(weight.new_zeros(num_outputs, rank))  # (N, rank)
        self.rank, self.alpha = rank, alpha

    def forward(self, weight: Tensor) -> Tensor:
        """(N, D), the weight with its update."""
        return weight + (self.alpha / self.rank) * (self.b @ self.a)


def add_adapters(model: Model, rank: int, alpha: float, seed: int) -> None:
    """Freeze the encoder except its pooler, and add a trainable update to every query and value projection."""
    model.network.encoder.requires_grad_(False)
    for parameter in _beside(model).values():
        parameter.requires_grad = True
    _mark_trained(model)
    generator = torch.Generator().manual_seed(seed)
    for module in _projections(model).values():
        update = LowRankUpdate(module.weight, rank, alpha, generator)
        parametrize.register_parametrization(module, "weight", update)


def without_adapters(model: Model) -> Model:
    """A copy of a model with the updates added to its weights."""
    checkpoint = copy.copy(model.checkpoint)
    checkpoint.parts = copy.deepcopy(model.network)
    merged = Model(checkpoint)
    for name, module in _projections(merged).items():
        plain = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None, device="meta")
        plain.weight, plain.bias = nn.Parameter(module.weight.detach()), module.bias
        checkpoint.network.set_submodule(name, plain)
    return merged


def write_adapter(model: Model, folder: Path, source: str) -> None:
    """Write the updates, the head, the pooler and the layers after pooling of a model with adapters into a new folder.

    Args:
        source: name of the base model.
    """
    folder.mkdir()
    names, adapted = model.network.architecture.names, _projections(model)
    published, tensors = names.published, {}
    for name, module in adapted.items():
        update = _update_of(module)
        key = _PREFIX + published(f"{name}.weight").removesuffix(".weight")
        tensors |= {f"{key}.lora_A.weight": update.a, f"{key}.lora_B.weight": update.b}
    trained = _beside(model)
    tensors |= {_PREFIX + published(name): parameter for name, parameter in trained.items()}
    update = _update_of(next(iter(adapted.values())))
    content = {
        "peft_type": "LORA",
        "task_type": model.trained.task.peft_type,
        "base_model_name_or_path": source,
        "r": update.rank,
        "lora_alpha": update.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted({published(f"{name}.weight").split(".")[-2] for name in adapted}),
        "modules_to_save": sorted({published(name).removeprefix(names.prefix).partition(".")[0] for name in trained}),
    }
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, folder / _WEIGHTS)
    write_json(folder / ADAPTER_CONFIG, content)
    write_record(folder, {"label_names": model.trained.task.label_names, "task": task_json(model.trained)})


def read_adapter(model: Model, folder: Path) -> None:
    """Load what `write_adapter` wrote into a model with adapters.

    Raises:
        CheckpointError: files that are missing, damaged, or for another model.
    """
    config = read_adapter_config(folder)
    try:
        tensors = load_file(str(folder / _WEIGHTS))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder / _WEIGHTS} cannot be read: {error}") from None
    rank = member(config, "r", int, folder / ADAPTER_CONFIG, 0)
    published = model.network.architecture.names.published
    with torch.no_grad():
        for name, module in _projections(model).items():
            key = _PREFIX + published(f"{name}.weight").removesuffix(".weight")
            a = _taken(tensors, f"{key}.lora_A.weight", (rank, module.in_features), folder)
            b = _taken(tensors, f"{key}.lora_B.weight", (module.out_features, rank), folder)
            _update_of(module).a.copy_(a)
            _update_of(module).b.copy_(b)
        for name, parameter in _beside(model).items():
            key = _PREFIX + published(name)
            parameter.copy_(_taken(tensors, key, tuple(parameter.shape), folder))
    if tensors:
        raise CheckpointError(f"{folder / _WEIGHTS} holds {min(tensors)}, which this model lacks")


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """The settings of an adapter.

    Raises:
        CheckpointError: the folder holds none of this kind.
    """
    config: dict[str, Any] | None = read_json(folder / ADAPTER_CONFIG)
    if config is None or config.get("peft_type") != "LORA":
        raise CheckpointError(f"{folder} holds no LoRA adapter: expected {ADAPTER_CONFIG} with peft_type LORA")
    return config


def add_to_weights(model: Model) -> None:
    """Add the updates of a model with adapters to its weights; the bits are those of `without_adapters`."""
    for module in _projections(model).values():
        parametrize.remove_parametrizations(module, "weight")


def _mark_trained(model: Model) -> None:
    """Mark the weights that an adapter changes as trained."""
    names = [*(f"{name}.weight" for name in _projections(model)), *_beside(model)]
    published = model.network.architecture.names.published
    model.checkpoint.provenance |= {published(name): Provenance("trained") for name in names}


def _projections(model: Model) -> dict[str, nn.Linear]:
    return {
        f"encoder.{name}": module
        for name, module in model.network.encoder.named_modules()
        if name.rpartition(".")[2] in _ADAPTED and isinstance(module, nn.Linear)
    }


def _beside(model: Model) -> dict[str, nn.Parameter]:
    """The parameters of the head, the pooler and the layers after pooling."""
    return {
        name: parameter
        for name, parameter in model.network.named_parameters()
        if name.startswith(("heads.", "encoder.pooler.", PROJECTION))
    }


def _update_of(module: nn.Linear) -> LowRankUpdate:
    parametrizations: Any = module.parametrizations
    return parametrizations.weight[0]


def _taken(tensors: dict[str, Tensor], name: str, shape: tuple[int, ...], folder: Path) -> Tensor:
    tensor = tensors.pop(name, None)
    if tensor is None or tuple(tensor.shape) != shape:
        has = "lacks it" if tensor is None else f"has {list(tensor.shape)}"
        raise CheckpointError(f"{folder / _WEIGHTS}: expected {name} of shape {list(shape)}, it {has}")
    return tensor
