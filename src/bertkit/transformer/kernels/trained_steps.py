"""The steps of a layer as functions of torch's autograd, forward and backward by compiled kernels, on the CPU.

Shape letters: T rows, D columns, V rows of a table, F half a row.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import function

from bertkit.transformer.kernels.arrays import array, norm_arrays
from bertkit.transformer.kernels.rows import activate_rows, padded
from bertkit.transformer.kernels.training_rows import (
    Dropout,
    add_then_norm_backward,
    add_then_norm_forward,
    dropout_rows,
    gate_backward,
    gelu_backward,
)
from bertkit.transformer.kernels.vector_functions import GELU

once_differentiable: Any = function.once_differentiable  # its annotation loses the arguments' names


class LookUp(torch.autograd.Function):
    """The rows of a table (V, D) at (T,) ids, (T, D); its gradient is sparse."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = weight.shape
        return F.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(ids[None], grad, ctx.shape, check_invariants=False), None


class Gelu(torch.autograd.Function):
    """GELU: (T, D) to (T, D); or with a gate ``gelu(left) * right`` of the halves of each row: (T, 2 F) to (T, F)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, is_gate: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.is_gate = is_gate
        out = x.new_empty(len(x), x.shape[1] // 2) if is_gate else torch.empty_like(x)
        activate_rows(array(x), np.intp(GELU), array(out))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        (gate_backward if ctx.is_gate else gelu_backward)(array(grad.contiguous()), array(x), array(grad_x))
        return grad_x, None


class DropoutOfRows(torch.autograd.Function):
    """Dropout: (T, D) to (T, D)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Dropout) -> Tensor:
        ctx.mask = mask
        return _dropped(x, mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _dropped(grad.contiguous(), ctx.mask), None


def _dropped(x: Tensor, mask: Dropout) -> Tensor:
    out = torch.empty_like(x)
    dropout_rows(array(x), mask, array(out))
    return out


class AddThenNorm(torch.autograd.Function):
    """``residual + dropout(x)``, which is kept for the backward pass, and its norm in a dtype: both (T, D)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        norm: nn.LayerNorm,
        mask: Dropout | None,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        summed, normed = torch.empty_like(residual), torch.empty_like(residual, dtype=dtype)
        means, factors = torch.empty(len(x)), torch.empty(len(x))
        arrays, outs = norm_arrays(norm), (array(summed), array(normed), means.numpy(), factors.numpy())
        own_bias = None if bias is None else arrays.bias
        add_then_norm_forward(array(x), array(residual), arrays, own_bias, mask, *outs, None)
        ctx.save_for_backward(summed, means, factors)
        ctx.set_materialize_grads(False)
        ctx.arrays, ctx.mask, ctx.dtypes, ctx.has_bias = arrays, mask, (x.dtype, dtype), bias is not None
        return summed, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_summed: Tensor | None, grad_normed: Tensor | None) -> tuple[Tensor | None, ...]:
        summed, means, factors = ctx.saved_tensors
        x_dtype, dtype = ctx.dtypes
        width = summed.shape[1]
        grad_normed = torch.zeros_like(summed, dtype=dtype) if grad_normed is None else grad_normed.contiguous()
        grad_x, grad_residual = torch.empty_like(summed, dtype=x_dtype), torch.empty_like(summed)
        grad_weight = padded(np.zeros(width, np.float32))
        grad_bias = np.zeros_like(grad_weight) if ctx.has_bias else None
        add_then_norm_backward(
            None if grad_summed is None else array(grad_summed.contiguous()), array(grad_normed), array(summed),
            ctx.arrays, ctx.mask, means.numpy(), factors.numpy(), array(grad_x), array(grad_residual), grad_weight,
            grad_bias,
        )  # fmt: skip
        weights = (sums if sums is None else torch.from_numpy(sums[:width]) for sums in (grad_weight, grad_bias))
        return grad_x, grad_residual, *weights, None, None, None
