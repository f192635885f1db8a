"""The steps of a layer as functions of torch's autograd, forward and backward by compiled kernels and
oneDNN's products, on the CPU.

Shape letters: T rows, D columns, N outputs, F half a row, S rows that are attended to.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import function

from bertkit.transformer.kernels.arrays import array, bias_array, bias_gradient, norm_arrays
from bertkit.transformer.kernels.linear import multiply_unpacked
from bertkit.transformer.kernels.row_invariance import filled_rows, training_row_count
from bertkit.transformer.kernels.rows import activate_rows, padded
from bertkit.transformer.kernels.tile_attention import attend_tiles
from bertkit.transformer.kernels.tile_attention_backward import attend_tiles_backward
from bertkit.transformer.kernels.training_rows import (
    Dropout,
    add_rows,
    add_then_norm_backward,
    add_then_norm_forward,
    dropout_rows,
    gate_backward,
    gelu_backward,
)
from bertkit.transformer.kernels.vector_functions import GELU
from bertkit.transformer.window import Window

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


class TiledAttention(torch.autograd.Function):
    """The context (T, D) of (T, 3 D) queries, keys and values; or of queries (T, D) and the keys and values (S, 2 D) of
    another packed row. Zeros after the last sequence.

    Arguments as of `attend_tiles`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key_value: Tensor | None,
        bias: Tensor | None,
        cu_seqlens: np.ndarray,
        cu_keys: np.ndarray,
        num_heads: int,
        mask: Dropout | None,
        turns: tuple[np.ndarray, np.ndarray] | None = None,
        window: Window | None = None,
    ) -> Tensor:
        width = query.shape[1] // 3 if key_value is None else query.shape[1]
        context, rows = query.new_empty(len(query), width), query if key_value is None else key_value
        context[cu_seqlens[-1] :] = 0
        lengths = cu_seqlens, cu_keys, num_heads, width if key_value is None else 0
        added = mask, turns, window, bias_array(bias, width // num_heads)
        attend_tiles(array(query), array(rows), *lengths, array(context), None, *added)
        ctx.save_for_backward(query, key_value)
        ctx.lengths, ctx.added, ctx.head_dim = lengths, added, width // num_heads
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key_value = ctx.saved_tensors
        rows, bias = query if key_value is None else key_value, ctx.added[-1]
        grad_query, grad_bias = torch.empty_like(query), None if bias is None else np.zeros_like(bias)
        grad_query[ctx.lengths[0][-1] :] = 0
        grad_rows = grad_query if key_value is None else torch.empty_like(key_value)
        tensors, others = (grad.contiguous(), grad_query, grad_rows, query, rows), (*ctx.lengths, *ctx.added, grad_bias)
        attend_tiles_backward(*map(array, tensors), *others)
        grad_key_value = None if key_value is None else grad_rows
        return grad_query, grad_key_value, bias_gradient(grad_bias, ctx.head_dim), None, None, None, None, None, None
