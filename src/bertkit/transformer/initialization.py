"""Initial values of all parameters."""

import math

import torch
from torch import nn

from bertkit.transformer.config import BertConfig
from bertkit.transformer.modernbert.config import ModernBertConfig


@torch.no_grad()
def initialize(module: nn.Module, config: BertConfig | ModernBertConfig, seed: int) -> None:
    """Fill the parameters of a network, or of a part of it, as its kind was initialized, reproducibly from ``seed``.

    Weights of linear layers and embeddings come from a normal distribution of standard deviation
    ``initializer_range``, redrawn beyond two of them (google-research/bert ``modeling.py``, ``create_initializer``),
    in the modern encoder beyond ``initializer_cutoff_factor`` of them; there what writes to the residual stream, and
    the dense layer of a head, has them divided by the root of twice the number of layers (Warner et al. 2024, section
    2.2; transformers' ``ModernBertPreTrainedModel._init_weights``). Biases are 0, layer normalization starts as the
    identity.

    A classifier's standard deviation is the inverse root of its width, as ModernBERT has it, in both encoders: where
    BERT's 0.02 leaves the logits close to each other, a short run does not learn rare labels (docs/finetuning.md).
    """
    generator = torch.Generator().manual_seed(seed)
    cutoff = config.initializer_cutoff_factor if isinstance(config, ModernBertConfig) else 2.0
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            std = _standard_deviation(name.rpartition(".")[2], config)
            nn.init.trunc_normal_(part.weight, std=std, a=-cutoff * std, b=cutoff * std, generator=generator)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
    for name, parameter in module.named_parameters():
        if name.rpartition(".")[2] == "bias":
            nn.init.zeros_(parameter)


def _standard_deviation(name: str, config: BertConfig | ModernBertConfig) -> float:
    """Of the weights of a part with this name."""
    if name == "classifier":
        return config.hidden_size**-0.5
    if isinstance(config, ModernBertConfig) and name in ("output", "project", "dense"):
        return config.initializer_range / math.sqrt(2 * config.num_hidden_layers)
    return config.initializer_range
