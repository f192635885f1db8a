"""Products of bfloat16 for processors where float32 is faster, with weights that stay bfloat16 in memory.

Generation reads all weights for each token: in bfloat16 in half the time of float32. `WidenedLinear` keeps weights in
float32, for oneDNN. Shape letters: M rows, K inputs, N outputs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertkit.later import Tensor
from bertkit.transformer.few_rows.products import Weights, multiply_few_rows
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.product_tiles import PANEL
from bertkit.transformer.kernels.shared_steps import on_shared_threads
from bertkit.transformer.kernels.vector_functions import ADD, CODES, PLAIN
from bertkit.transformer.kernels.vectors import WIDTH

_MOST_ROWS = 192
"""Rows that are multiplied at a time: each thread has their sums with a panel."""


class PanelLinear:
    """As `PlainLinear` for bfloat16: products and sums are in float32, and each row has the same bits in any number."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        num_outputs, self.width = weight.shape
        panels = array(weight).reshape(-1, PANEL, self.width).transpose(0, 2, 1)
        self.panels = np.ascontiguousarray(panels)  # (N / PANEL, K, PANEL)
        self.bias = np.zeros(num_outputs, np.float32) if bias is None else array(bias.float())
        self._weights = self.of_layers([self])

    @staticmethod
    def of_layers(linears: "Sequence[PanelLinear]") -> Weights:
        """The weights of the same product in all layers."""
        addresses = np.array([linear.panels.ctypes.data for linear in linears], np.int64)
        return Weights(
            addresses, np.empty(0, np.uint16), linears[0].width, np.stack([linear.bias for linear in linears])
        )

    @staticmethod
    def fits(weight: Tensor) -> bool:
        """Whether the (N, K) weight has whole panels and vectors."""
        return len(weight) % PANEL == 0 and weight.shape[1] % WIDTH == 0

    def __call__(self, x: Tensor, *, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """(M, K) bfloat16 to (M, N) bfloat16."""
        then = ADD if residual is not None else PLAIN if activation is None else CODES.get(activation, PLAIN)
        product = x.new_empty(len(x), len(self.bias))
        rows, out = array(x.contiguous()), array(product)
        added = rows if residual is None else array(residual.contiguous())
        for start in range(0, len(x), _MOST_ROWS):
            part = slice(start, start + _MOST_ROWS)
            multiply_shared(self._weights, rows[part], added[part], out[part], then)
        return product if activation is None or activation in CODES else apply_activation(product, activation)


def multiply_shared(weights: Any, rows: np.ndarray, added: np.ndarray, out: np.ndarray, then: int = PLAIN) -> None:
    """`multiply_few_rows` on all threads of this one."""
    on_shared_threads(multiply_few_rows, weights, np.zeros(2, np.int64), rows, np.intp(then), added, out)
