"""Activations of feed-forward networks by their config names, with and without a gate."""

from bertkit.later import F, Tensor, torch

ACTIVATIONS = {
    "gelu": lambda x: F.gelu(x),  # exact, with erf (Hendrycks & Gimpel 2016)
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "relu": lambda x: F.relu(x),
    "silu": lambda x: F.silu(x),
    "tanh": lambda x: torch.tanh(x),
}

OTHER_NAMES = {
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_python_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_accurate": "gelu_new",
    "swish": "silu",
}
"""Other names that published configs have for the same functions, and the name in ACTIVATIONS."""


def gated(x: Tensor, name: str) -> Tensor:
    """``activation(left) * right`` of the halves of each row: (T, 2 F) to (T, F)."""
    left, right = x.chunk(2, dim=-1)
    return ACTIVATIONS[name](left) * right
