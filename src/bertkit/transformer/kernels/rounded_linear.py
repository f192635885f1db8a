"""8-bit products with float32 on both sides, for models whose other steps are in float32.

Shape letters: M rows, K and N their widths.
"""

import numpy as np

from bertkit.later import Tensor, torch
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.dispatch import linear_for
from bertkit.transformer.kernels.rows import empty_quantized, quantize_rows, read_rows


class RoundedLinear:
    """As `PlainLinear`, with weights and rows rounded to 8 bits. A row is bit-identical regardless of the others."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.linear = linear_for("int8").linear(weight, bias)

    def __call__(self, x: Tensor, *, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """(M, K) float32 to (M, N) float32."""
        rows = empty_quantized(*x.shape)
        quantize_rows(x.contiguous().numpy(), 0, len(x), rows)
        product = self.linear(rows)
        y = np.empty(product.values.shape, np.float32)
        read_rows(product, y)
        result = torch.from_numpy(y)
        result = result if activation is None else apply_activation(result, activation, in_place=True)
        return result if residual is None else result.add_(residual)
