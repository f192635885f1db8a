"""Every initial value, in one place."""

import torch
from torch import nn


@torch.no_grad()
def initialize(module: nn.Module, initializer_range: float, seed: int) -> None:
    """Fill a module's parameters as BERT was initialised, reproducibly from ``seed``.

    Weights of linear layers and embeddings come from a normal distribution of standard deviation
    ``initializer_range``, redrawn beyond two of them; biases are 0, layer normalization starts as the identity
    (google-research/bert ``modeling.py``, ``create_initializer``).
    """
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            bound = 2 * initializer_range
            nn.init.trunc_normal_(part.weight, std=initializer_range, a=-bound, b=bound, generator=generator)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
    for name, parameter in module.named_parameters():
        if name.rpartition(".")[2] == "bias":
            nn.init.zeros_(parameter)
