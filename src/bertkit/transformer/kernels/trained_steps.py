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
from bertkit.transformer.kernels.modern_rows import (
    add_then_norm_backward,
    add_then_norm_forward,
    gate_backward,
    gate_forward,
)
from bertkit.transformer.kernels.rows import padded
from bertkit.transformer.kernels.training_rows import (
    Dropout,
    add_norm_backward,
    add_norm_forward,
    dropout_rows,
    gelu_backward,
    gelu_forward,
)

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
    """GELU: (T, D) to (T, D)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        gelu_forward(array(x), array(out))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        gelu_backward(array(grad.contiguous()), array(x), array(grad_x))
        return grad_x


class Gate(torch.autograd.Function):
    """``gelu(left) * right`` of the halves of each row: (T, 2 F) to (T, F)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        out = x.new_empty(len(x), x.shape[1] // 2)
        gate_forward(array(x), array(out))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        gate_backward(array(grad.contiguous()), array(x), array(grad_x))
        return grad_x


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


class AddNorm(torch.autograd.Function):
    """``norm(dropout(x) + residual)``: (T, D)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, norm: nn.LayerNorm, mask: Dropout
    ) -> Tensor:
        out, means, factors = torch.empty_like(residual), torch.empty(len(x)), torch.empty(len(x))
        arrays = norm_arrays(norm)
        add_norm_forward(array(x), array(residual), arrays, mask, array(out), means.numpy(), factors.numpy())
        ctx.save_for_backward(x, residual, means, factors)
        ctx.arrays, ctx.mask = arrays, mask
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, residual, means, factors = ctx.saved_tensors
        width = x.shape[1]
        grad_x, grad_residual = torch.empty_like(x), torch.empty_like(residual)
        grad_weight, grad_bias = padded(np.zeros(width, np.float32)), padded(np.zeros(width, np.float32))
        add_norm_backward(
            array(grad.contiguous()), array(x), array(residual), ctx.arrays, ctx.mask, means.numpy(), factors.numpy(),
            array(grad_x), array(grad_residual), grad_weight, grad_bias,
        )  # fmt: skip
        grad_weights = (torch.from_numpy(sums[:width]) for sums in (grad_weight, grad_bias))
        return grad_x, grad_residual, *grad_weights, None, None


class AddThenNorm(torch.autograd.Function):
    """``residual + dropout(x)`` and its norm, both (T, D); the norm in the dtype of the products."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        norm: nn.LayerNorm,
        mask: Dropout | None,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        summed, normed = torch.empty_like(residual), torch.empty_like(residual, dtype=dtype)
        means, factors = torch.empty(len(x)), torch.empty(len(x))
        arrays, outs = norm_arrays(norm), (array(summed), array(normed), means.numpy(), factors.numpy())
        add_then_norm_forward(array(x), array(residual), arrays, mask, *outs, None)
        ctx.save_for_backward(summed, means, factors)
        ctx.arrays, ctx.mask, ctx.x_dtype = arrays, mask, x.dtype
        return summed, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_summed: Tensor, grad_normed: Tensor) -> tuple[Tensor | None, ...]:
        summed, means, factors = ctx.saved_tensors
        width = summed.shape[1]
        grad_x, grad_residual = torch.empty_like(summed, dtype=ctx.x_dtype), torch.empty_like(summed)
        grad_weight = padded(np.zeros(width, np.float32))
        add_then_norm_backward(
            array(grad_summed.contiguous()), array(grad_normed.contiguous()), array(summed), ctx.arrays, ctx.mask,
            means.numpy(), factors.numpy(), array(grad_x), array(grad_residual), grad_weight,
        )  # fmt: skip
        return grad_x, grad_residual, torch.from_numpy(grad_weight[:width]), None, None, None
