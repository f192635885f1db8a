"""Initial values of network parameters."""

from __future__ import annotations

import math

from bertkit.architectures.registry import architecture_of
from bertkit.errors import checked_count
from bertkit.later import nn, torch
from bertkit.transformer import EncoderConfig


def initialize(module: nn.Module, config: EncoderConfig, seed: int) -> None:
    """Initialize the parameters of a network or of one of its modules, reproducibly from ``seed``.

    Weights of linear layers and embeddings come from a normal distribution with standard deviation
    ``initializer_range``, drawn again beyond two of them (google-research/bert ``modeling.py``,
    ``create_initializer``), or beyond the cutoff of the architecture. ModernBERT divides the standard deviation of
    layers that write to the residual stream, and of the dense layer of a head, by the root of twice the number of
    layers (Warner et al. 2024, section 2.2; transformers' ``ModernBertPreTrainedModel._init_weights``). Biases are 0,
    layer normalization starts as the identity.

    The standard deviation of a classifier is the inverse root of its width, as in ModernBERT, for every architecture:
    with BERT's 0.02 the logits are close to each other, and a short run does not learn rare labels
    (docs/guides/finetuning.md).
    """
    generator = torch.Generator().manual_seed(checked_count("seed", seed, 0))
    cutoff = architecture_of(config).initial_cutoff(config)
    for name, part in module.named_modules():
        weight = getattr(part, "weight", None)
        if isinstance(part, nn.LayerNorm | nn.RMSNorm):
            nn.init.ones_(part.weight)
        elif isinstance(weight, nn.Parameter):
            std = _standard_deviation(name.rpartition(".")[2], config)
            nn.init.trunc_normal_(weight, std=std, a=-cutoff * std, b=cutoff * std, generator=generator)
    for name, parameter in module.named_parameters():
        if name.rpartition(".")[2] == "bias":
            nn.init.zeros_(parameter)


def _standard_deviation(layer: str, config: EncoderConfig) -> float:
    """Initial standard deviation of the weights of the layer with this name."""
    if layer == "classifier":
        return config.hidden_size**-0.5
    if layer in architecture_of(config).scaled_layers:
        return config.initializer_range / math.sqrt(2 * config.num_hidden_layers)
    return config.initializer_range
