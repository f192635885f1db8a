"""The steps of a layer in training: forward and backward by fast products and compiled kernels, on the CPU.

Inside ``with training_kernels(...)`` the functions of this file take these paths, and outside, or for what they do not
cover, torch's own operations: the reference. One thread computes; give each core a batch of its own.

In bfloat16 the products and what they write are bfloat16; weights, residual stream, sums and gradients of weights are
float32. Shape letters: T rows, D columns, N outputs.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import function
from torch.utils.checkpoint import checkpoint

from bertkit.transformer.activations import ACTIVATIONS
from bertkit.transformer.kernels.arrays import array, norm_arrays
from bertkit.transformer.kernels.attention import packed_attention
from bertkit.transformer.kernels.linear import OneDNNLinear, has_onednn
from bertkit.transformer.kernels.rows import padded
from bertkit.transformer.kernels.tile_attention import attend_tiles
from bertkit.transformer.kernels.tile_attention_backward import attend_tiles_backward
from bertkit.transformer.kernels.training_rows import (
    Dropout,
    add_norm_backward,
    add_norm_forward,
    add_rows,
    dropout_rows,
    gelu_backward,
    gelu_forward,
)

once_differentiable: Any = function.once_differentiable  # its annotation loses the arguments' names


@dataclass
class _Active:
    dtype: torch.dtype  # of the products
    seed: int
    num_masks: int = 0  # dropout masks drawn so far

    def dropout(self, probability: float) -> Dropout:
        """The next mask: of (seed, how many came before)."""
        self.num_masks += 1
        key = np.random.SeedSequence((self.seed, self.num_masks)).generate_state(1)[0]
        return Dropout.of(probability, int(key))


_this_thread = threading.local()


@contextmanager
def training_kernels(dtype: torch.dtype, seed: int) -> Iterator[None]:
    """Train by the fast kernels in this block and thread, with products in float32 or bfloat16.

    Args:
        seed: of all dropout masks drawn in the block.
    """
    before = _active()
    _this_thread.active = _Active(dtype, seed)
    try:
        yield
    finally:
        _this_thread.active = before


def _active() -> _Active | None:
    return getattr(_this_thread, "active", None)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``x W^T + b``: (T, D) to (T, N)."""
    active = _active()
    return F.linear(x, weight, bias) if active is None else _Linear.apply(x, weight, bias, active.dtype)


def activate(x: Tensor, name: str) -> Tensor:
    """An activation, by its name in ACTIVATIONS."""
    return ACTIVATIONS[name](x) if _active() is None or name != "gelu" else _Gelu.apply(x)


def dropout(x: Tensor, module: nn.Dropout) -> Tensor:
    """Dropout, where the module is in training."""
    active = _active()
    if active is None or not module.training or not module.p:
        return module(x)
    return _Dropout.apply(x, active.dropout(module.p))


def add_norm(x: Tensor, residual: Tensor, norm: nn.LayerNorm, module: nn.Dropout) -> Tensor:
    """``norm(dropout(x) + residual)``."""
    active = _active()
    if active is None:
        return norm(module(x) + residual)
    mask = active.dropout(module.p if module.training else 0.0)
    return _AddNorm.apply(x, residual, norm.weight, norm.bias, norm, mask)


def self_attention(query_key_value: Tensor, seqlens: Sequence[int], num_heads: int, dropout_prob: float) -> Tensor:
    """(T, 3 D), of each token the queries of all heads, the keys and the values, to the context (T, D)."""
    active = _active()
    if active is None:
        query, key, value = query_key_value.unflatten(-1, (3, num_heads, -1)).unbind(1)  # (T, H, K) each
        return packed_attention(query, key, value, seqlens, dropout_prob).flatten(-2)
    mask = active.dropout(dropout_prob) if dropout_prob else None
    return _Attention.apply(query_key_value, np.cumsum([0, *seqlens], dtype=np.int32), num_heads, mask)


def recomputed(layer: nn.Module, hidden_states: Tensor, *others: Any) -> Any:
    """``layer(hidden_states, *others)`` that keeps nothing but its input: the backward pass computes the layer again,
    with the same dropout (Chen et al. 2016, "Training deep nets with sublinear memory cost")."""
    active = _active()
    num_masks = 0 if active is None else active.num_masks

    def run(hidden_states: Tensor) -> Any:
        if active is None:
            return layer(hidden_states, *others)
        before, active.num_masks = active.num_masks, num_masks
        result = layer(hidden_states, *others)
        active.num_masks = max(before, active.num_masks)
        return result

    return checkpoint(run, hidden_states, use_reentrant=False)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
        x_cast, weight_cast = x.to(dtype), weight.to(dtype)
        ctx.save_for_backward(x_cast, weight_cast)
        ctx.x_dtype = x.dtype
        return _product(x_cast, weight_cast, bias.to(dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.to(x.dtype).contiguous()
        grad_x = _product(grad, weight.T).to(ctx.x_dtype) if ctx.needs_input_grad[0] else None
        grad_weight = _product(grad.T, x.T).float() if ctx.needs_input_grad[1] else None
        sums = padded(np.zeros(grad.shape[1], np.float32))
        add_rows(array(grad), sums)
        return grad_x, grad_weight, torch.from_numpy(sums[: grad.shape[1]]), None


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """``a b^T + bias``, float32 by oneDNN: torch's own product of float32 takes twice as long on AMD."""
    if a.dtype == torch.float32 and has_onednn("mkldnn::_linear_pointwise"):
        return OneDNNLinear(b, bias)(a.contiguous())
    return F.linear(a, b, bias)


class _Gelu(torch.autograd.Function):
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


class _Dropout(torch.autograd.Function):
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


class _AddNorm(torch.autograd.Function):
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


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query_key_value: Tensor, cu_seqlens: np.ndarray, num_heads: int, mask: Dropout | None
    ) -> Tensor:
        context = query_key_value.new_empty(len(query_key_value), query_key_value.shape[1] // 3)
        attend_tiles(array(query_key_value), cu_seqlens, num_heads, array(context), None, mask)
        ctx.save_for_backward(query_key_value)
        ctx.cu_seqlens, ctx.num_heads, ctx.mask = cu_seqlens, num_heads, mask
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (query_key_value,) = ctx.saved_tensors
        grad_together = torch.empty_like(query_key_value)
        attend_tiles_backward(
            array(query_key_value),
            ctx.cu_seqlens,
            ctx.num_heads,
            ctx.mask,
            array(grad.contiguous()),
            array(grad_together),
        )
        return grad_together, None, None, None
