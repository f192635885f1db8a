"""Autograd functions of tile attention: self-attention and cross-attention."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import function

from bertkit.transformer.kernels.arrays import array, bias_array, bias_gradient
from bertkit.transformer.kernels.tile_attention import attend_tiles, attend_two_rows
from bertkit.transformer.kernels.tile_attention_backward import attend_tiles_backward, attend_two_rows_backward
from bertkit.transformer.kernels.training_rows import Dropout
from bertkit.transformer.window import Window

once_differentiable: Any = function.once_differentiable  # its annotation loses the arguments' names


class TiledAttention(torch.autograd.Function):
    """The context (T, D) of (T, 3 D), with the arguments of `attend_tiles`; zeros after the last sequence."""

    @staticmethod
    def forward(
        ctx: Any,
        query_key_value: Tensor,
        bias: Tensor | None,
        cu_seqlens: np.ndarray,
        num_heads: int,
        mask: Dropout | None,
        turns: tuple[np.ndarray, np.ndarray] | None,
        window: Window | None,
    ) -> Tensor:
        context = query_key_value.new_empty(len(query_key_value), query_key_value.shape[1] // 3)
        context[cu_seqlens[-1] :] = 0
        added = bias_array(bias, context.shape[1] // num_heads)
        attend_tiles(array(query_key_value), cu_seqlens, num_heads, array(context), None, mask, turns, window, added)
        ctx.save_for_backward(query_key_value)
        ctx.arguments, ctx.head_dim = (cu_seqlens, num_heads, mask, turns, window, added), context.shape[1] // num_heads
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (query_key_value,) = ctx.saved_tensors
        grad_together = torch.empty_like(query_key_value)
        grad_together[ctx.arguments[0][-1] :] = 0
        added = ctx.arguments[-1]
        grad_bias = None if added is None else np.zeros_like(added)
        arguments = (*ctx.arguments, grad_bias)
        attend_tiles_backward(array(grad.contiguous()), array(grad_together), array(query_key_value), *arguments)
        return grad_together, bias_gradient(grad_bias, ctx.head_dim), None, None, None, None, None


class TiledCrossAttention(torch.autograd.Function):
    """The context (T, D) of queries (T, D) and of keys and values (S, 2 D), with arguments of `attend_two_rows`."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key_value: Tensor,
        cu_seqlens: np.ndarray,
        cu_keys: np.ndarray,
        num_heads: int,
        mask: Dropout | None,
    ) -> Tensor:
        context = torch.empty_like(query)
        arguments = (cu_seqlens, cu_keys, num_heads, 0)
        attend_two_rows(array(query), array(key_value), *arguments, array(context), None, mask, None, None, None)
        ctx.save_for_backward(query, key_value)
        ctx.arguments, ctx.mask = arguments, mask
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key_value = ctx.saved_tensors
        grad_query, grad_key_value = torch.empty_like(query), torch.empty_like(key_value)
        cu_seqlens, cu_keys, num_heads, key_column = ctx.arguments
        attend_two_rows_backward(
            array(grad.contiguous()), array(grad_query), array(grad_key_value), array(query), array(key_value),
            cu_seqlens, cu_keys, num_heads, key_column, ctx.mask, None, None, None, None,
        )  # fmt: skip
        return grad_query, grad_key_value, None, None, None, None
