"""Tile attention with its gradient, for autograd."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import function

from bertkit.transformer.kernels.arrays import array, bias_array, bias_gradient
from bertkit.transformer.kernels.tile_attention import attend_tiles
from bertkit.transformer.kernels.tile_attention_backward import attend_tiles_backward
from bertkit.transformer.kernels.training_rows import Dropout

once_differentiable: Any = function.once_differentiable  # its annotation loses the arguments' names


class TiledAttention(torch.autograd.Function):
    """The context (T, D) of (T, 3 D), with the arguments of `attend_tiles`."""

    @staticmethod
    def forward(
        ctx: Any,
        query_key_value: Tensor,
        bias: Tensor | None,
        cu_seqlens: np.ndarray,
        num_heads: int,
        mask: Dropout | None,
        turns: tuple[np.ndarray, np.ndarray] | None,
        reach: int | None,
    ) -> Tensor:
        context = query_key_value.new_empty(len(query_key_value), query_key_value.shape[1] // 3)
        added = bias_array(bias, context.shape[1] // num_heads)
        attend_tiles(array(query_key_value), cu_seqlens, num_heads, array(context), None, mask, turns, reach, added)
        ctx.save_for_backward(query_key_value)
        ctx.arguments, ctx.head_dim = (cu_seqlens, num_heads, mask, turns, reach, added), context.shape[1] // num_heads
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (query_key_value,) = ctx.saved_tensors
        grad_together = torch.empty_like(query_key_value)
        added = ctx.arguments[-1]
        grad_bias = None if added is None else np.zeros_like(added)
        arguments = (*ctx.arguments, grad_bias)
        attend_tiles_backward(array(grad.contiguous()), array(grad_together), array(query_key_value), *arguments)
        return grad_together, bias_gradient(grad_bias, ctx.head_dim), None, None, None, None, None
