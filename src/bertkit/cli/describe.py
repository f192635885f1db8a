"""bertkit describe"""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertkit.checkpoint.weights import BYTES, stored_tensors
from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import emit
from bertkit.errors import UsageError
from bertkit.files.json_files import read_json
from bertkit.locate import locate, transformer_folder


def command(
    *,
    model: str | None = None,
    size: str | None = None,
    architecture: str | None = None,
    heads: list[str] | None = None,
) -> None:
    """Show a model's config, and the name, dtype and shape of every tensor in its files.

    Parameters
    ----------
    model
        A model folder, a hub name, or the import name of an installed model package; by default all-MiniLM-L6-v2.
    size
        Describe a named size instead, without weights: tiny, mini, small, medium, base, large.
    architecture
        With --size: a model_type, such as modernbert; by default bert.
    heads
        With --size: heads of the model, such as sequence_classification; may be repeated.
    """
    if size is None:
        if heads or architecture is not None:
            raise UsageError("--heads and --architecture require --size; the architecture of a saved model is fixed")
        summary, parameters = _stored(locate(model or EMBEDDING_MODEL))
    elif model is not None:
        raise UsageError("--size describes a model without weights and cannot be used with --model")
    else:
        summary, parameters = _of_size(size, architecture or "bert", heads or ())
    summary |= {
        "num_tensors": len(parameters),
        "num_parameters": sum(row["num_parameters"] for row in parameters if "F" in row["dtype"]),  # not position ids
        "mib": round(sum(row["num_parameters"] * BYTES[row["dtype"]] for row in parameters) / 2**20, 1),
    }
    if sys.stdout.isatty():
        for key, value in summary.items():
            print(f"{key:30} {', '.join(map(str, value)) if isinstance(value, list) else value}")
        print()
        emit(parameters)
    else:
        emit([{**summary, "parameters": parameters}])


def _stored(directory: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Values of config.json, and the tensors by the headers of the weights' files: no weight is read."""
    folder = transformer_folder(directory)
    tensors = stored_tensors(folder).values()
    parameters = [_row(tensor.name, tensor.dtype, tensor.shape) for tensor in tensors]
    return read_json(folder / "config.json") or {}, parameters


def _of_size(size: str, model_type: str, heads: Sequence[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    import torch

    from bertkit.architectures import ARCHITECTURES, Network

    if model_type not in ARCHITECTURES:
        raise UsageError(f"--architecture {model_type}: expected one of {', '.join(ARCHITECTURES)}")
    with torch.device("meta"):
        network = Network(ARCHITECTURES[model_type].config.of_size(size), heads)
    parameters = [_row(name, "F32", tuple(parameter.shape)) for name, parameter in network.published_parameters()]
    return {"model_type": model_type, "heads": list(network.heads), **asdict(network.config)}, parameters


def _row(name: str, dtype: str, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape), "num_parameters": math.prod(shape)}
