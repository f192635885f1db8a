"""Attention in the layers of a few rows: within sequences, or with a cache of keys and values.

Shape letters: M rows, D hidden_size, H num_heads, K head_dim, L layers, A kinds of angles.
"""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import overload
from bertkit.transformer.few_rows.products import RoundedWeights
from bertkit.transformer.kernels.cached_attention import CachedAttention, append_head, attend_head
from bertkit.transformer.kernels.shared_steps import claim, finish, wait
from bertkit.transformer.kernels.tile_attention import attend_either, attend_rounded
from bertkit.transformer.window import Window

_HEADS = 3
"""Heads that a thread computes at a time."""


class SequenceAttention(NamedTuple):
    """Attention within the sequences of a packed row."""

    cu_seqlens: np.ndarray  # (B + 1,) int32
    num_heads: int
    bias: np.ndarray | None  # as in `attend_tiles`


class RotaryAttention(NamedTuple):
    """The same with rotated queries and keys, and a window."""

    cu_seqlens: np.ndarray
    num_heads: int
    cosines: np.ndarray  # (A, M, K / 2) float32
    sines: np.ndarray  # (A, M, K / 2) float32
    kinds: np.ndarray  # (L,) int64, which of the A kinds
    windows: np.ndarray  # (L, 2) int64, numbers of tokens that a token attends to before and after it


def attend_few_rows(weights, counters, step, rows, attention, layer, appends, context):
    """One step: attention of the rows of a product.

    Args:
        weights: those of the product.
        attention: `SequenceAttention`, `RotaryAttention`, or `CachedAttention` of all layers.
        appends: the keys and values of new tokens are first appended to the cache.
        context: (M, D).
    """
    raise NotImplementedError


@overload(attend_few_rows)
def _choose(weights, counters, step, rows, attention, layer, appends, context):
    if attention.instance_class is CachedAttention:
        return _attend_cached
    attend_sequences = attend_rounded if weights.instance_class is RoundedWeights else attend_either

    def attend_shared(weights, counters, step, rows, attention, layer, appends, context):
        rotary, window, bias = _positions(attention, layer)
        cu_seqlens, num_heads = attention.cu_seqlens, attention.num_heads
        num_units = (num_heads + _HEADS - 1) // _HEADS
        unit = claim(counters, step)
        while unit < num_units:
            heads = unit * _HEADS, min(unit * _HEADS + _HEADS, num_heads)
            attend_sequences(rows, cu_seqlens, num_heads, context, None, rotary, window, bias, heads)
            finish(counters, step)
            unit = claim(counters, step)
        wait(counters, step, num_units)

    return attend_shared


def _positions(attention, layer):
    """Angles, Window and bias of a layer."""
    raise NotImplementedError


@overload(_positions)
def _choose_positions(attention, layer):
    if attention.instance_class is SequenceAttention:
        return lambda attention, layer: (None, None, attention.bias)
    return _rotary_positions


def _rotary_positions(attention, layer):
    kind, window = attention.kinds[layer], attention.windows[layer]
    return (attention.cosines[kind], attention.sines[kind]), Window(window[0], window[1]), None


def _attend_cached(weights, counters, step, rows, attention, layer, appends, context):
    keys, values = attention.keys[layer], attention.values[layer]
    cu_new, lengths = attention.cu_new, attention.lengths
    of_layer = CachedAttention(cu_new, lengths, attention.cache_rows, attention.is_causal, keys, values)
    num_heads = keys.shape[1]
    num_units = len(lengths) * num_heads
    unit = claim(counters, step)
    while unit < num_units:
        row, head = unit // num_heads, unit % num_heads
        if appends:
            append_head(rows, context.shape[1], row, head, cu_new, lengths, keys, values)
        attend_head(rows, row, head, of_layer, context)
        finish(counters, step)
        unit = claim(counters, step)
    wait(counters, step, num_units)
