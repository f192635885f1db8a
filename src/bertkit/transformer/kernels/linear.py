"""Linear layers prepared for inference: weights laid out once for the CPU's matrix code, activation and residual fused.

On AMD processors torch's own fp32 linear goes through MKL, at a third of the speed that oneDNN, which torch carries
too, reaches with the same numbers. oneDNN is asked for directly, by the operations torch's compiler uses; where a torch
build lacks them, the plain operations run.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.transformer.activations import ACTIVATIONS
from bertkit.transformer.kernels.rows import Product, Quantized, padded

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


@cache
def has_onednn(operation: str) -> bool:
    """Whether this build of torch offers one of oneDNN's operations: "mkldnn::_linear_pointwise"."""
    namespace, _, name = operation.partition("::")
    return torch.backends.mkldnn.is_available() and hasattr(getattr(torch.ops, namespace), name)


class PlainLinear:
    """``activation(x W^T + b)`` or ``x W^T + b + residual`` by torch's own operations: the reference; b may be None."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor, *, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """(M, K) to (M, N), in the dtype of the weight."""
        y = F.linear(x, self.weight, self.bias)
        y = y if activation is None else ACTIVATIONS[activation](y)
        return y if residual is None else y.add_(residual)


class OneDNNLinear:
    """The same by oneDNN over a packed weight, float32 or bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS_EXPECTED)
        self.bias = bias
        # Named to the overload: finding it takes as long as a short product.
        operations = torch.ops.mkldnn._linear_pointwise
        self._multiply, self._multiply_and_add = operations.default, operations.binary

    def __call__(self, x: Tensor, *, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """(M, K) to (M, N)."""
        if x.shape[0] == 1:  # the product of a single row is summed in another order
            twice = None if residual is None else residual.expand(2, -1).contiguous()
            return self(x.expand(2, -1).contiguous(), activation=activation, residual=twice)[:1]
        if residual is not None:
            return self._multiply_and_add(x, residual, self.weight, self.bias, "add")
        attribute, algorithm = ("none", "") if activation is None else _FUSED_ACTIVATIONS[activation]
        return self._multiply(x, self.weight, self.bias, attribute, [], algorithm)


class PlainInt8Linear:
    """``x W^T + b`` of quantized rows, by float32 operations: the reference.

    Each row of W (output channel) is rounded to 8 bits at a scale of its own. The product is left as it comes, a
    `Product`: the kernel that reads it next scales it on the way.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        scales = (weight.abs().amax(dim=1) / 127).clamp(min=1e-30)
        rounded = (weight / scales[:, None]).round().to(torch.int8)
        self.weight, self.scales = self.pack(rounded), scales
        self.weight_sums = padded((rounded.sum(dim=1) * scales).numpy())
        self.bias = padded(bias.numpy())

    def __call__(self, x: Quantized) -> Product:
        """(M, K) to (M, N)."""
        product = self.multiply(torch.from_numpy(x.values)).numpy()
        return Product(product, x.scales, x.middles, self.weight_sums, self.bias)

    def pack(self, weight: Tensor) -> Tensor:
        return weight.float()

    def multiply(self, values: Tensor) -> Tensor:
        """``(values - 128) W^T``, each column times the scale of its weights."""
        return ((values.float() - 128) @ self.weight.T) * self.scales


class OneDNNInt8Linear(PlainInt8Linear):
    """The same by oneDNN's products of 8-bit numbers."""

    def pack(self, weight: Tensor) -> Tensor:
        self.zero_points = torch.zeros(len(weight), dtype=torch.int32)
        return torch.ops.onednn.qlinear_prepack(weight, None)

    def multiply(self, values: Tensor) -> Tensor:
        return torch.ops.onednn.qlinear_pointwise.default(
            values, 1.0, 128, self.weight, self.scales, self.zero_points, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
