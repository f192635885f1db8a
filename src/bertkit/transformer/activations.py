"""The activation inside the feed-forward network, by its name in a published config."""

from functools import partial

import torch
import torch.nn.functional as F

ACTIVATIONS = {
    "gelu": F.gelu,  # exact, with erf (Hendrycks & Gimpel 2016)
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": torch.tanh,
}
