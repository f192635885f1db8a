"""Linear layers prepared for inference: weights laid out once for the CPU's matrix code, activation and residual fused.

On AMD processors torch's own fp32 linear goes through MKL, at a third of the speed that oneDNN, which torch carries
too, reaches with the same numbers. oneDNN is asked for directly, by the operations torch's compiler uses; where a torch
build lacks them, the plain operations run.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.transformer.activations import ACTIVATIONS

_ROWS_EXPECTED = 1_024
"""A hint for the packed layout; any number of rows works."""

_FUSED_ACTIVATIONS = {  # published name -> oneDNN's attribute and algorithm
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
    "swish": ("swish", ""),
    "tanh": ("tanh", ""),
}


class PlainLinear:
    """``activation(x W^T + b)`` or ``x W^T + b + residual`` by torch's own operations: the reference."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor, *, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """(M, K) to (M, N)."""
        y = F.linear(x, self.weight, self.bias)
        y = y if activation is None else ACTIVATIONS[activation](y)
        return y if residual is None else y.add_(residual)


class OneDNNLinear:
    """The same by oneDNN over a packed weight."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS_EXPECTED)
        self.bias = bias

    def __call__(self, x: Tensor, *, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """(M, K) to (M, N)."""
        if len(x) == 1:  # the product of a single row is summed in another order
            twice = None if residual is None else residual.expand(2, -1).contiguous()
            return self(x.expand(2, -1).contiguous(), activation=activation, residual=twice)[:1]
        if residual is not None:
            return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")
        attribute, algorithm = ("none", "") if activation is None else _FUSED_ACTIVATIONS[activation]
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, attribute, [], algorithm)


def linear_for(dtype: torch.dtype, device: torch.device) -> type[OneDNNLinear] | type[PlainLinear]:
    """The fastest linear layer for a dtype on a device."""
    has_operations = hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.backends.mkldnn.is_available()
    if device.type == "cpu" and dtype == torch.float32 and has_operations:
        return OneDNNLinear
    return PlainLinear
