"""bertkit describe"""

import sys
from dataclasses import asdict
from typing import Any

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import emit
from bertkit.errors import UsageError

_MIB = 2**20


def command(
    *,
    model: str | None = None,
    size: str | None = None,
    architecture: str | None = None,
    heads: list[str] | None = None,
) -> None:
    """Show a model's architecture and every parameter's name and shape.

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
    import torch

    from bertkit.architectures import ARCHITECTURES, Network
    from bertkit.model import load

    if size is None:
        if heads or architecture is not None:
            raise UsageError("--heads and --architecture require --size; the architecture of a saved model is fixed")
        network = load(model or EMBEDDING_MODEL, device="cpu").network
    elif model is not None:
        raise UsageError("--size describes a model without weights and cannot be used with --model")
    elif (architecture := architecture or "bert") not in ARCHITECTURES:
        raise UsageError(f"--architecture {architecture}: expected one of {', '.join(ARCHITECTURES)}")
    else:
        with torch.device("meta"):
            network = Network(ARCHITECTURES[architecture].config.of_size(size), heads or ())
    names = network.architecture.names
    prefix = "" if network.heads else names.prefix
    parameters = [
        {
            "name": names.published(name).removeprefix(prefix),
            "shape": list(parameter.shape),
            "num_parameters": parameter.numel(),
        }
        for name, parameter in network.named_parameters()
    ]
    num_parameters = sum(row["num_parameters"] for row in parameters)
    summary: dict[str, Any] = {
        "model_type": network.architecture.model_type,
        "heads": list(network.heads),
        **asdict(network.config),
        "num_tensors": len(parameters),
        "num_parameters": num_parameters,
        "mib": round(num_parameters * 4 / _MIB, 1),  # as float32
    }
    if sys.stdout.isatty():
        for key, value in summary.items():
            print(f"{key:30} {', '.join(value) if isinstance(value, list) else value}")
        print()
        emit(parameters)
    else:
        emit([{**summary, "parameters": parameters}])
