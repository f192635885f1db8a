"""Autograd function of linear layers in training, with oneDNN's products.

Shape letters: T rows, D columns, N outputs.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import function

from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.linear import multiply_unpacked
from bertkit.transformer.kernels.row_invariance import filled_rows, training_row_count
from bertkit.transformer.kernels.rows import padded
from bertkit.transformer.kernels.training_rows import add_rows

once_differentiable: Any = function.once_differentiable  # its annotation loses the arguments' names


class TrainedLinear(torch.autograd.Function):
    """Products with rows of zeros up to one of few row counts: oneDNN keeps some MB for every number of rows, and
    batches of mixed lengths nearly always have another one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        x_cast, weight_cast = filled_rows(x.to(dtype), training_row_count(len(x))), weight.to(dtype)
        ctx.save_for_backward(x_cast, weight_cast)
        ctx.x_dtype = x.dtype
        return multiply_unpacked(x_cast, weight_cast, None if bias is None else bias.to(dtype))[: len(x)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        num_rows, grad = len(grad), filled_rows(grad.to(x.dtype).contiguous(), len(x))
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = multiply_unpacked(grad, weight.T)[:num_rows].to(ctx.x_dtype)
        grad_weight = multiply_unpacked(grad.T, x.T).float() if ctx.needs_input_grad[1] else None
        grad_bias = None
        if ctx.needs_input_grad[2]:
            sums = padded(np.zeros(grad.shape[1], np.float32))
            add_rows(array(grad), sums)
            grad_bias = torch.from_numpy(sums[: grad.shape[1]])
        return grad_x, grad_weight, grad_bias, None
