"""The steps of a layer in training: forward and backward with fast products and compiled kernels, on the CPU.

Inside ``with training_kernels(...)`` the functions of this file use these kernels; outside, or for unsupported cases,
torch's own operations, the reference. Each call uses one thread; give each core a separate batch.

In bfloat16 the products and what they write are bfloat16; weights, residual stream, sums and gradients of weights are
float32. Shape letters: T rows, D columns, N outputs.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import function
from torch.utils.checkpoint import checkpoint

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.transformer.activations import ACTIVATIONS, gated
from bertkit.transformer.kernels import device_steps
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import array, norm_arrays, turns_and_reach
from bertkit.transformer.kernels.attention import packed_cross_attention, recorded_attention, written_out_attention
from bertkit.transformer.kernels.device_attention import batch_attention
from bertkit.transformer.kernels.inference import invariant_linear, is_inference
from bertkit.transformer.kernels.modern_rows import (
    add_then_norm_backward,
    add_then_norm_forward,
    gate_backward,
    gate_forward,
)
from bertkit.transformer.kernels.row_invariance import training_row_count
from bertkit.transformer.kernels.rows import padded
from bertkit.transformer.kernels.tiled_attention import TiledAttention, TiledCrossAttention
from bertkit.transformer.kernels.trained_linear import TrainedLinear
from bertkit.transformer.kernels.training_rows import (
    Dropout,
    add_norm_backward,
    add_norm_forward,
    dropout_rows,
    gelu_backward,
    gelu_forward,
)
from bertkit.transformer.recorder import LayerRecord
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.rotary import Rotary
from bertkit.transformer.window import Window

once_differentiable: Any = function.once_differentiable  # its annotation loses the arguments' names


@dataclass
class _Active:
    dtype: torch.dtype  # of the products
    seed: int
    num_masks: int = 0  # dropout masks drawn so far

    def dropout(self, probability: float) -> Dropout:
        """The next mask, by seed and number of previous masks."""
        self.num_masks += 1
        key = np.random.SeedSequence((self.seed, self.num_masks)).generate_state(1)[0]
        return Dropout.of(probability, int(key))


_this_thread = threading.local()


@contextmanager
def training_kernels(dtype: torch.dtype, seed: int) -> Iterator[None]:
    """Use the fast training kernels in this block and thread, with products in float32 or bfloat16.

    Args:
        seed: of all dropout masks drawn in the block.
    """
    with _use(_Active(dtype, seed)):
        yield


@contextmanager
def _use(active: _Active) -> Iterator[None]:
    before = _active()
    _this_thread.active = active
    try:
        yield
    finally:
        _this_thread.active = before


def _active() -> _Active | None:
    return getattr(_this_thread, "active", None)


def in_training_row_counts(batch: Batch) -> Batch:
    """A batch, inside `training_kernels` padded to a row count of products, so that these need no padding."""
    return batch if _active() is None else batch.filled(training_row_count(len(batch.input_ids)))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x W^T + b``, or without b: (T, D) to (T, N)."""
    active = _active()
    if active is not None:
        return TrainedLinear.apply(x, weight, bias, active.dtype)
    if is_inference() and x.device.type == "cpu":
        return invariant_linear(x, weight, bias)
    return F.linear(x, weight, bias)


def apply_linear(x: Tensor, *layers: nn.Linear) -> Tensor:
    """Concatenated outputs of linear layers for the same input: (T, D) to (T, N).

    On the CPU without the kernels every module is called, so that PyTorch's forward hooks on it run; otherwise the
    products are computed as one.
    """
    if _active() is None and not is_inference() and (x.device.type == "cpu" or len(layers) == 1):
        return layers[0](x) if len(layers) == 1 else torch.cat([layer(x) for layer in layers], dim=-1)
    return linear(x, *joined(layers))


def joined(layers: Sequence[nn.Linear]) -> tuple[Tensor, Any]:
    """Weight (N, D) and bias, (N,) or None, of linear layers as one product."""
    if len(layers) == 1:
        return layers[0].weight, layers[0].bias
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return torch.cat([layer.weight for layer in layers]), bias


def project(x: Tensor, layer: nn.Linear) -> Tensor:
    """``layer(x)``, the last step of a head, in float32 also in training: (T, D) to (T, N)."""
    if is_inference() and x.device.type == "cpu":
        return invariant_linear(x, layer.weight, layer.bias)
    return layer(x)


def look_up(table: nn.Embedding, ids: Tensor) -> Tensor:
    """The rows of a table: (T,) to (T, D). Its gradient is sparse: most tokens of a vocabulary are not in a batch."""
    return table(ids) if _active() is None else _LookUp.apply(table.weight, ids)


def activate(x: Tensor, name: str) -> Tensor:
    """An activation, by its name in ACTIVATIONS."""
    if _active() is None:
        return apply_activation(x, name) if is_inference() else device_steps.activate(x, name)
    return _Gelu.apply(x) if name == "gelu" else ACTIVATIONS[name](x)


def gate(x: Tensor, name: str) -> Tensor:
    """``activation(left) * right`` of the halves of each row: (T, 2 F) to (T, F)."""
    return gated(x, name) if _active() is None or name != "gelu" else _Gate.apply(x)


def dropout(x: Tensor, module: nn.Dropout) -> Tensor:
    """Dropout, if the module is in training mode, and not in inference."""
    active = _active()
    if active is None:
        return x if is_inference() else device_steps.apply_dropout(x, module)
    if not module.training or not module.p:
        return x
    return _Dropout.apply(x, active.dropout(module.p))


def add_norm(x: Tensor, residual: Tensor, norm: nn.LayerNorm, module: nn.Dropout) -> Tensor:
    """``norm(dropout(x) + residual)``; without the kernels in the dtype of ``x``, which under autocast is that of the
    products, so that a GPU reads and writes half as much memory."""
    active = _active()
    if active is None:
        return norm(dropout(x, module) + residual).to(x.dtype)
    mask = active.dropout(module.p if module.training else 0.0)
    return _AddNorm.apply(x, residual, norm.weight, norm.bias, norm, mask)


def add_then_norm(
    x: Tensor, residual: Tensor, norm: nn.LayerNorm, module: nn.Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """``residual + dropout(x)``, and the same after a norm without bias, in the dtype of the products."""
    active = _active()
    if active is None:
        summed = residual + (x if module is None else dropout(x, module))
        return summed, norm(summed)
    mask = active.dropout(module.p) if module is not None and module.training and module.p else None
    return _AddThenNorm.apply(x, residual, norm.weight, norm, mask, active.dtype)


def self_attention(
    query_key_value: Tensor,
    batch: Batch,
    num_heads: int,
    dropout_prob: float,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | PositionRows | None = None,
    record: LayerRecord | None = None,
) -> Tensor:
    """(T, 3 D) queries, keys and values of all heads, per token, to the context (T, D).

    Args:
        rotary, window, bias: as for `batch_attention`.
        record: receives scores and probabilities, which are then computed in elementary operations.
    """
    dropout_prob = 0.0 if is_inference() else dropout_prob
    arguments = (num_heads, dropout_prob, rotary, window, bias)
    if record is not None:
        return recorded_attention(record, query_key_value, batch.seqlens, *arguments)
    active = _active()
    if active is None:
        return batch_attention(query_key_value, batch, *arguments)
    mask = active.dropout(dropout_prob) if dropout_prob else None
    if isinstance(bias, PositionRows):
        drop = partial(_drop_probs, active, dropout_prob)
        num_tokens = sum(batch.seqlens)
        context = written_out_attention(None, query_key_value[:num_tokens], batch.seqlens, num_heads, drop, bias=bias)
        return F.pad(context, (0, 0, 0, len(query_key_value) - num_tokens))
    turns = turns_and_reach(rotary, window, batch.max_seqlen)
    return TiledAttention.apply(query_key_value, bias, batch.cu_seqlens.numpy(), num_heads, mask, *turns)


def cross_attention(
    query: Tensor,
    key_value: Tensor,
    seqlens: Sequence[int],
    key_seqlens: Sequence[int],
    num_heads: int,
    dropout_prob: float,
) -> Tensor:
    """The context (T, D) of queries (T, D) and of the keys and values (S, 2 D) of another packed row."""
    dropout_prob = 0.0 if is_inference() else dropout_prob
    active = _active()
    if active is None:
        return packed_cross_attention(query, key_value, seqlens, key_seqlens, num_heads, dropout_prob)
    mask = active.dropout(dropout_prob) if dropout_prob else None
    lengths = (np.cumsum([0, *each], dtype=np.int32) for each in (seqlens, key_seqlens))
    return TiledCrossAttention.apply(query, key_value, *lengths, num_heads, mask)


def _drop_probs(active: _Active, dropout_prob: float, probs: Tensor) -> Tensor:
    """Dropout of (H, L, L) probabilities."""
    if not dropout_prob:
        return probs
    return _Dropout.apply(probs.flatten(0, 1), active.dropout(dropout_prob)).view_as(probs)


def recomputed(layer: nn.Module, hidden_states: Tensor, *others: Any) -> Any:
    """``layer(hidden_states, *others)`` that keeps only its input: the backward pass recomputes the layer,
    with the same dropout (Chen et al. 2016, "Training deep nets with sublinear memory cost").

    Raises:
        UsageError: on MPS, whose random numbers torch does not restore: dropout would differ.
    """
    if hidden_states.device.type == "mps":
        raise UsageError(
            "gradient checkpointing on MPS: torch would recompute layers with other dropout than before; train with "
            "smaller parts (tokens_per_part) instead"
        )
    active = _active()
    num_masks = 0 if active is None else active.num_masks

    def run(hidden_states: Tensor) -> Any:
        if active is None:
            return layer(hidden_states, *others)
        num_before, active.num_masks = active.num_masks, num_masks
        with _use(active):  # the backward pass may run after the block of `training_kernels`, and in another thread
            result = layer(hidden_states, *others)
        active.num_masks = max(num_before, active.num_masks)
        return result

    return checkpoint(run, hidden_states, use_reentrant=False)


class _LookUp(torch.autograd.Function):
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


class _Gate(torch.autograd.Function):
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


class _AddThenNorm(torch.autograd.Function):
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
