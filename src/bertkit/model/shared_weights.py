"""Weights that several served models have in common, such as those of adapters to one base model, once in memory."""

from collections.abc import Sequence
from typing import Any

from bertkit.model.model import Model
from bertkit.transformer.kernels.arrays import are_equal
from bertkit.transformer.modules import ArrayModule, assign
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
    first, second = ((each.config, each.precision, each.weights_device) for each in (model, other))
    return first == second


def _share(model: Model, trunk: Model) -> bool:
    """Whether a model has weights of the trunk, whose memory it uses then."""
    networks = [each.inference_network for each in (model, trunk)]
    if len({isinstance(network, ArrayModule) for network in networks}) > 1:
        networks = [each.network for each in (model, trunk)]
    network, parameters = networks[0], dict(networks[1].named_parameters())
    is_shared = False
    for name, parameter in network.named_parameters():
        other = parameters.get(name)
        if other is None or not are_equal(parameter, other):
            continue
        is_shared = True
        if isinstance(network, ArrayModule):
            assign(network, {name: other})  # pyrefly: ignore
        else:
            parameter.data = other.data
    if is_shared:
        _prepared(model).share(_prepared(trunk))
    return is_shared


def _prepared(model: Model) -> PreparedTransformer:
    encoder: Any = model._runner.encoder
    return getattr(encoder, "prepared", encoder)  # that of a `GraphedEncoder`
