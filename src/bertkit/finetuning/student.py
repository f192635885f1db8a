"""Student models with some layers of a larger model."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from bertkit.errors import UsageError
from bertkit.model import Model


def student_of(teacher: Model, num_layers: int) -> Model:
    """A model with evenly spaced layers of a teacher, including the first and the last, and all its other weights.

    Args:
        num_layers: from 1 to one less than the teacher has.

    Raises:
        UsageError: an invalid number, or an architecture whose layers depend on their position or share weights.
    """
    config, record = teacher.config, teacher.network.architecture
    if not 1 <= num_layers < config.num_hidden_layers:
        raise UsageError(
            f"layers={num_layers}: expected 1 to {config.num_hidden_layers - 1}, fewer than the teacher has"
        )
    if record.num_stored_layers(config) != config.num_hidden_layers or record.alternates_layers:
        raise UsageError(f"{record.model_type} has layers that cannot be removed: choose one such as BERT or RoBERTa")
    checkpoint = copy.copy(teacher.checkpoint)
    network = checkpoint.parts = copy.deepcopy(teacher.network)
    layers: Sequence[nn.Module] = list(network.encoder.layers)
    network.config = network.encoder.config = replace(config, num_hidden_layers=num_layers)
    network.encoder.layers = nn.ModuleList([layers[number] for number in layers_taken(len(layers), num_layers)])
    names = {record.names.published(name) for name, _ in network.named_parameters()}
    checkpoint.provenance = {name: origin for name, origin in checkpoint.provenance.items() if name in names}
    return Model(checkpoint)


def layers_taken(num_layers: int, num_taken: int) -> list[int]:
    """Layers of a teacher that a student takes over.

    >>> layers_taken(12, 6), layers_taken(6, 1)
    ([0, 2, 4, 7, 9, 11], [5])
    """
    if num_taken == 1:
        return [num_layers - 1]
    return np.rint(np.linspace(0, num_layers - 1, num_taken)).astype(int).tolist()
