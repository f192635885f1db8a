"""Weights that several served models have in common, such as those of adapters to one base model, once in memory."""

from collections.abc import Sequence
from typing import Any

import torch

from bertkit.model.model import Model
from bertkit.transformer.cuda_graphs import GraphedEncoder
from bertkit.transformer.prepared.encoder import PreparedTransformer


def share_equal_weights(models: Sequence[Model]) -> None:
    """Let models of one shape and precision use the same memory for equal weights, also as kernels read them.

    Vectors and logits keep their bits. The models are for inference only: training one would change the others.
    """
    trunks: list[Model] = []  # each shares nothing with those before it
    for model in models:
        alike = [trunk for trunk in trunks if _are_alike(model, trunk)]
        if not any(_share(model, trunk) for trunk in alike):
            trunks.append(model)


def _are_alike(model: Model, other: Model) -> bool:
    return (model.config, model.precision, model.device) == (other.config, other.precision, other.device)


def _share(model: Model, trunk: Model) -> bool:
    """Whether a model has weights of the trunk, whose memory it uses then."""
    is_shared, parameters = False, dict(trunk.network.named_parameters())
    for name, parameter in model.network.named_parameters():
        other = parameters.get(name)
        if other is not None and torch.equal(parameter, other):
            parameter.data, is_shared = other.data, True
    if is_shared:
        _prepared(model).share(_prepared(trunk))
    return is_shared


def _prepared(model: Model) -> PreparedTransformer:
    encoder: Any = model._runner.encoder
    return encoder.prepared if isinstance(encoder, GraphedEncoder) else encoder
