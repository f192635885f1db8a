"""8-bit products with float32 on both sides, for models whose other steps are in float32.

Shape letters: M rows, K and N their widths.
"""

import numpy as np

from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import Rows, array, as_given
from bertkit.transformer.kernels.dispatch import linear_for
from bertkit.transformer.kernels.rows import empty_quantized, quantize_rows, read_rows


class RoundedLinear:
    """As `PlainLinear`, with weights and rows rounded to 8 bits. A row is bit-identical regardless of the others."""

    def __init__(self, weight: Rows, bias: Rows | None) -> None:
        self.linear = linear_for("int8").linear(weight, bias)

    def __call__(self, x: Rows, *, activation: str | None = None, residual: Rows | None = None) -> Rows:
        """(M, K) float32 to (M, N) float32."""
        rows = empty_quantized(*x.shape)
        quantize_rows(np.ascontiguousarray(array(x)), 0, len(x), rows)
        product = self.linear(rows)
        y = np.empty(product.values.shape, np.float32)
        read_rows(product, y)
        y = y if activation is None else apply_activation(y, activation, in_place=True)
        return as_given(y if residual is None else np.add(y, array(residual), out=y), x)
