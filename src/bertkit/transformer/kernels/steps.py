"""The steps of a layer, with the kernels that the calling thread uses.

Inside ``with training_kernels(...)`` these are compiled kernels and fast products on the CPU, forward and backward;
inside ``with inference_kernels()`` row-invariant ones; outside, or for unsupported cases, torch's own operations, the
reference. Each call uses one thread; give each core a separate batch.

In bfloat16 the products and what they write are bfloat16; weights, residual stream, sums and gradients of weights are
float32. Shape letters: T rows, D columns, N outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.later import F, Tensor, later_module, nn, torch
from bertkit.transformer.activations import ACTIVATIONS, gated
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import rotary_and_window
from bertkit.transformer.kernels.attention import (
    packed_cross_attention,
    packed_self_attention,
    recorded_attention,
)
from bertkit.transformer.kernels.inference import invariant_linear, invariant_norm, is_for_arrays, is_inference
from bertkit.transformer.kernels.row_invariance import training_row_count
from bertkit.transformer.kernels.training_rows import Dropout
from bertkit.transformer.recorder import LayerRecord
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.rotary import Rotary
from bertkit.transformer.window import Window

with_torch = later_module("bertkit.transformer.kernels.with_torch")


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
        return with_torch.trained_steps.TrainedLinear.apply(x, weight, bias, active.dtype)
    if is_inference():
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
    join: Any = np.concatenate if isinstance(layers[0].weight, np.ndarray) else torch.cat
    bias = None if layers[0].bias is None else join([layer.bias for layer in layers])
    return join([layer.weight for layer in layers]), bias


def project(x: Tensor, layer: nn.Linear) -> Tensor:
    """``layer(x)``, the last step of a head, in float32 also in training: (T, D) to (T, N)."""
    if is_inference():
        return invariant_linear(x, layer.weight, layer.bias)
    return layer(x)


def normalize(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """A normalization in a head: (N, D) to the same."""
    return invariant_norm(x, norm) if isinstance(x, np.ndarray) or is_for_arrays(x) else norm(x)


def like(x: Tensor, given: Tensor) -> Tensor:
    """``x`` in the dtype of another tensor; arrays have it."""
    return x if isinstance(x, np.ndarray) else x.to(given.dtype)


def look_up(table: nn.Embedding, ids: Tensor) -> Tensor:
    """The rows of a table: (T,) to (T, D). Its gradient is sparse: most tokens of a vocabulary are not in a batch."""
    if isinstance(ids, np.ndarray):
        return table.weight[ids]
    return table(ids) if _active() is None else F.embedding(ids, table.weight, sparse=True)


def activate(x: Tensor, name: str) -> Tensor:
    """An activation, by its name in ACTIVATIONS."""
    if _active() is None:
        return apply_activation(x, name) if is_inference() else with_torch.device_steps.activate(x, name)
    return with_torch.trained_steps.Gelu.apply(x, False) if name == "gelu" else ACTIVATIONS[name](x)


def gate(x: Tensor, name: str) -> Tensor:
    """``activation(left) * right`` of the halves of each row: (T, 2 F) to (T, F)."""
    return gated(x, name) if _active() is None or name != "gelu" else with_torch.trained_steps.Gelu.apply(x, True)


def dropout(x: Tensor, module: nn.Dropout) -> Tensor:
    """Dropout, if the module is in training mode, and not in inference."""
    active = _active()
    if active is None:
        return x if is_inference() else with_torch.device_steps.apply_dropout(x, module)
    if not module.training or not module.p:
        return x
    return with_torch.trained_steps.DropoutOfRows.apply(x, active.dropout(module.p))


def add_norm(x: Tensor, residual: Tensor, norm: nn.LayerNorm | nn.RMSNorm, module: nn.Dropout) -> Tensor:
    """``norm(dropout(x) + residual)``; without the kernels in the dtype of ``x``, which under autocast is that of the
    products, so that a GPU reads and writes half as much memory."""
    active = _active()
    if active is None or isinstance(norm, nn.RMSNorm):
        return norm(dropout(x, module) + residual).to(x.dtype)
    mask = active.dropout(module.p if module.training else 0.0)
    return with_torch.trained_steps.AddThenNorm.apply(x, residual, norm.weight, norm.bias, norm, mask, residual.dtype)[
        1
    ]


def add_then_norm(
    x: Tensor, residual: Tensor, norm: nn.LayerNorm | nn.RMSNorm, module: nn.Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """``residual + dropout(x)``, and the same after a norm, with the kernels in the dtype of the products: they have
    layer normalization without bias."""
    active = _active()
    if active is None or isinstance(norm, nn.RMSNorm) or norm.bias is not None:
        summed = residual + (x if module is None else dropout(x, module))
        return summed, norm(summed)
    mask = active.dropout(module.p) if module is not None and module.training and module.p else None
    return with_torch.trained_steps.AddThenNorm.apply(x, residual, norm.weight, None, norm, mask, active.dtype)


def self_attention(
    query_key_value: Tensor,
    batch: Batch,
    num_heads: int,
    dropout_prob: float,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | PositionRows | None = None,
    attended: Tensor | None = None,
    record: LayerRecord | None = None,
) -> Tensor:
    """(T, 3 D) queries, keys and values of all heads, per token, to the context (T, D).

    Args:
        rotary, window, bias: as for `batch_attention`.
        attended: (T,) bool, True for the tokens that are attended to; None: all. Not with a record.
        record: receives scores and probabilities, which are then computed in elementary operations.

    Raises:
        UsageError: ``attended`` with a record.
    """
    dropout_prob = 0.0 if is_inference() else dropout_prob
    arguments = (num_heads, dropout_prob, rotary, window, bias)
    if attended is not None:
        if record is not None:
            raise UsageError(
                "attended with a recorder: attention is recorded only of whole sequences, so leave one out"
            )
        return packed_self_attention(query_key_value, batch.seqlens, *arguments, attended)
    if record is not None:
        return recorded_attention(record, query_key_value, batch.seqlens, *arguments)
    active = _active()
    if active is None:
        return with_torch.device_attention.batch_attention(query_key_value, batch, *arguments)
    mask = active.dropout(dropout_prob) if dropout_prob else None
    if isinstance(bias, PositionRows):
        num_tokens, drop = sum(batch.seqlens), partial(_drop_probs, active)
        context = recorded_attention(None, query_key_value[:num_tokens], batch.seqlens, *arguments, drop)
        return F.pad(context, (0, 0, 0, len(query_key_value) - num_tokens))
    turns, cu_seqlens = rotary_and_window(rotary, window, batch.max_seqlen), batch.cu_seqlens.numpy()
    return with_torch.trained_steps.TiledAttention.apply(
        query_key_value, None, bias, cu_seqlens, cu_seqlens, num_heads, mask, *turns
    )


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
    return with_torch.trained_steps.TiledAttention.apply(query, key_value, None, *lengths, num_heads, mask)


def _drop_probs(active: _Active, probs: Tensor, dropout_prob: float) -> Tensor:
    """Dropout of (H, L, L) probabilities."""
    if not dropout_prob:
        return probs
    rows, drop = probs.flatten(0, 1), with_torch.trained_steps.DropoutOfRows.apply
    return drop(rows, active.dropout(dropout_prob)).view_as(probs)


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

    return torch.utils.checkpoint.checkpoint(run, hidden_states, use_reentrant=False)
