"""`few_rows` for decoders: all layers of a step of generation, with keys and values of earlier tokens.

Shape letters: M num_rows, D hidden_size, F intermediate_size, N outputs, L layers, R rows of the cache.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from bertkit.compiled import compiled
from bertkit.transformer.kernels.cached_attention import CachedAttention, append_head, attend_head
from bertkit.transformer.kernels.few_rows import ADD, PANEL, PLAIN, multiply, with_room
from bertkit.transformer.kernels.few_rows_int8 import multiply_rounded
from bertkit.transformer.kernels.layer_weights import LayerNorms, RoundedWeights, Weights
from bertkit.transformer.kernels.rows import Norm, norm_rows
from bertkit.transformer.kernels.shared_steps import claim, finish, wait
from bertkit.transformer.kernels.vectors import WIDTH

_STEPS = 8  # of a layer

COUNTERS = 2 * _STEPS
"""Counters of a layer."""


class DecoderLayers(NamedTuple):
    """The weights of all layers but those of cross-attention, and what their feed-forward networks compute."""

    query_key_value: Weights | RoundedWeights
    output: Weights | RoundedWeights
    expand: Weights | RoundedWeights
    project: Weights | RoundedWeights
    attention_norm: LayerNorms
    feed_forward_norm: LayerNorms
    is_pre_norm: bool
    activation: np.intp  # GELU to RELU


class CrossLayers(NamedTuple):
    """Cross-attention of all layers."""

    query: Weights | RoundedWeights
    output: Weights | RoundedWeights
    norm: LayerNorms


class DecoderSpace(NamedTuple):
    """Memory that the threads share, float32 or bfloat16; arrays have ROOM rows more where it says so."""

    hidden: np.ndarray  # (M, D), the input
    query_key_value: np.ndarray  # (M + ROOM, 3 D)
    cross_query: np.ndarray  # (M + ROOM, D)
    context: np.ndarray  # (M + ROOM, D) zeros
    attended: np.ndarray  # (L, M + ROOM, D)
    crossed: np.ndarray  # (L, M + ROOM, D)
    expanded: np.ndarray  # (M + ROOM, F)
    projected: np.ndarray  # (L, M + ROOM, D)
    counters: np.ndarray  # (COUNTERS * L,) int64 zeros


@compiled
def decode_few_rows(layers, cross, space, num_rows, own, sources):
    """All layers: a share of the work on this thread, the rest on other threads that call it with the same arguments.

    Args:
        cross: `CrossLayers`, or None.
        num_rows: M, a key of TILE_ROWS.
        own: `CachedAttention` of all layers, to which the keys and values of the new tokens are appended.
        sources: `CachedAttention` of all layers, or None.

    Returns:
        (M + ROOM, D) hidden states, the same on all threads.
    """
    counters, (_, width), wide = space.counters, space.hidden.shape, space.expanded.shape[1]
    hidden, normed = with_room(space.hidden), with_room(space.hidden)  # each thread has its own
    columns = np.empty(num_rows * max(width, wide) + WIDTH, np.float32)
    sums = np.empty((2, num_rows * PANEL), np.float32)
    add = np.intp(ADD)
    for layer in range(len(space.attended)):
        step, attended, projected = _STEPS * layer, space.attended[layer], space.projected[layer]
        if layers.is_pre_norm:
            _norm(hidden, layers.attention_norm, layer, num_rows, normed)
        _multiply(
            layers.query_key_value, layer, counters, step, normed if layers.is_pre_norm else hidden, num_rows,
            np.intp(PLAIN), hidden, space.query_key_value, columns, sums,
        )  # fmt: skip
        _attend(counters, step + 1, space.query_key_value, own, layer, True, space.context)
        _multiply(
            layers.output, layer, counters, step + 2, space.context, num_rows, add, hidden, attended, columns, sums
        )
        if layers.is_pre_norm:
            hidden = attended
            _norm(hidden, layers.feed_forward_norm, layer, num_rows, normed)
        else:
            _norm(attended, layers.attention_norm, layer, num_rows, normed)
            if cross is not None:
                crossed = space.crossed[layer]
                _multiply(
                    cross.query, layer, counters, step + 3, normed, num_rows, np.intp(PLAIN), normed,
                    space.cross_query, columns, sums,
                )  # fmt: skip
                _attend(counters, step + 4, space.cross_query, sources, layer, False, space.context)
                _multiply(
                    cross.output, layer, counters, step + 5, space.context, num_rows, add, normed, crossed, columns,
                    sums,
                )  # fmt: skip
                _norm(crossed, cross.norm, layer, num_rows, normed)
        _multiply(
            layers.expand, layer, counters, step + 6, normed, num_rows, layers.activation, normed, space.expanded,
            columns, sums,
        )  # fmt: skip
        _multiply(
            layers.project, layer, counters, step + 7, space.expanded, num_rows, add,
            hidden if layers.is_pre_norm else normed, projected, columns, sums,
        )  # fmt: skip
        if layers.is_pre_norm:
            hidden = projected
        else:
            _norm(projected, layers.feed_forward_norm, layer, num_rows, hidden)
    return hidden


@compiled
def multiply_few_rows(weights, counters, x, num_rows, then, residual, out):
    """One product: a share of the work on this thread, the rest on other threads that call it with the same arguments.

    Args:
        weights: `Weights` or `RoundedWeights` of one layer.
        counters: (2,) int64 zeros.
        x: (M + ROOM, K).
        num_rows, then, residual: as of `multiply`.
        out: (M + ROOM, N), also returned.
    """
    columns = np.empty(num_rows * x.shape[1] + WIDTH, np.float32)
    sums = np.empty((2, num_rows * PANEL), np.float32)
    _multiply(weights, 0, counters, 0, x, num_rows, then, residual, out, columns, sums)
    return out


@compiled
def _norm(rows, norms, layer, num_rows, out):
    norm = Norm(norms.weights[layer, 0], norms.weights[layer, 1], norms.eps)
    norm_rows(rows[:num_rows], None, norm, out[:num_rows], None)


@compiled
def _attend(counters, step, rows, attention, layer, appends, context):
    """One step: attention of each row and head, after appending the keys and values of its new tokens if wanted."""
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


def _multiply(
    weights: Any, layer: Any, counters: Any, step: Any, x: Any, num_rows: Any, then: Any, residual: Any, out: Any,
    columns: Any, sums: Any,
) -> None:  # fmt: skip
    """One step: `multiply`, or `multiply_rounded` (compiled only)."""
    raise NotImplementedError


@overload(_multiply)
def _implement_multiply(weights, layer, counters, step, x, num_rows, then, residual, out, columns, sums):
    if weights.instance_class is RoundedWeights:
        return _multiply_rounded
    return _multiply_floats


def _multiply_floats(weights, layer, counters, step, x, num_rows, then, residual, out, columns, sums):
    multiply(
        counters, step, x, num_rows, weights.addresses[layer], weights.packed, weights.block, weights.bias[layer], then,
        residual, out, columns, sums,
    )  # fmt: skip


def _multiply_rounded(weights, layer, counters, step, x, num_rows, then, residual, out, columns, sums):
    multiply_rounded(
        counters, step, x, num_rows, weights.addresses[layer], weights.vectors[layer], then, residual, out, columns
    )
