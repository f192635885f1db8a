"""`few_rows` for encoders with rotary positions and gated feed-forward networks.

With post-norm (Nomic BERT, GTE) a layer is ``x = norm(x + attention(x)); x = norm(x + feed_forward(x))``. With pre-norm
(ModernBERT) the sums are kept beside their norms, in float32, and each norm is that of the next step. Shape letters:
M num_rows, D hidden_size, F intermediate_size, K head_dim, L layers, A kinds of angles.
"""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import compiled
from bertkit.transformer.kernels.few_rows import ADD, PANEL, PLAIN, multiply, with_room
from bertkit.transformer.kernels.few_rows_int8 import multiply_int8, product_of, rows_of
from bertkit.transformer.kernels.layer_weights import LayerNorms, RoundedWeights, Weights
from bertkit.transformer.kernels.modern_rows import (
    add_then_norm_forward,
    gate_forward,
    gate_rows,
    silu_gate_forward,
)
from bertkit.transformer.kernels.pair_attention import attend
from bertkit.transformer.kernels.rows import Norm, Quantized, norm_rows
from bertkit.transformer.kernels.shared_steps import claim, finish, wait
from bertkit.transformer.kernels.vectors import WIDTH
from bertkit.transformer.window import Window

_STEPS = 6  # of a layer

COUNTERS = 2 * _STEPS
"""Counters of a layer."""


class GatedLayers(NamedTuple):
    """All layers."""

    query_key_value: Weights | RoundedWeights
    output: Weights | RoundedWeights
    expand: Weights | RoundedWeights  # 2 F outputs, the gate first
    project: Weights | RoundedWeights
    attention_norm: LayerNorms  # after adding the output of attention
    feed_forward_norm: LayerNorms  # after adding that of the feed-forward network
    is_pre_norm: bool
    is_silu: bool  # the activation of the gate: SiLU or GELU
    windows: np.ndarray  # (L, 2) int64, numbers of tokens that a token attends to before and after it
    angles: np.ndarray  # (L,) int64, which of the A kinds


class GatedSpace(NamedTuple):
    """Memory that the threads share, float32 or bfloat16; arrays have ROOM rows more where it says so."""

    hidden: np.ndarray  # (M, D) float32, the sums before the first layer; read with pre-norm only
    normed: np.ndarray  # (M, D), the input
    query_key_value: np.ndarray  # (M + ROOM, 3 D)
    context: np.ndarray  # (M + ROOM, D) zeros
    attended: np.ndarray  # (L, M + ROOM, D)
    expanded: np.ndarray  # (M + ROOM, 2 F)
    gated: np.ndarray  # (M + ROOM, F)
    projected: np.ndarray  # (L, M + ROOM, D)
    counters: np.ndarray  # (COUNTERS * L,) int64 zeros


@compiled
def encode_gated_rows(layers, space, num_rows, num_heads, cu_seqlens, cosines, sines):
    """All layers: a share of the work on this thread, the rest on other threads that call it with the same arguments.

    Args:
        num_rows: M, a key of TILE_ROWS.
        cosines, sines: (A, M, K / 2) float32.

    Returns:
        (M + ROOM, D) hidden states, after the last norm, the same on all threads.
    """
    counters, (_, width) = space.counters, space.normed.shape
    hidden, normed = space.hidden.copy(), with_room(space.normed)  # each thread has its own
    columns = np.zeros(num_rows * max(width, space.gated.shape[1]) + WIDTH, np.float32)
    sums = np.zeros((2, num_rows * PANEL), np.float32)
    plain, then = np.intp(PLAIN), np.intp(PLAIN if layers.is_pre_norm else ADD)
    for layer in range(len(layers.angles)):
        step, attended, projected = _STEPS * layer, space.attended[layer], space.projected[layer]
        _multiply(
            layers.query_key_value, layer, counters, step, normed, num_rows, plain, normed, space.query_key_value,
            columns, sums,
        )  # fmt: skip
        if claim(counters, step + 1) == 0:
            angles, window = _positions(layers, layer, cosines, sines)
            attend(space.query_key_value, cu_seqlens, num_heads, space.context, None, angles, window, None)
            finish(counters, step + 1)
        wait(counters, step + 1, 1)
        _multiply(
            layers.output, layer, counters, step + 2, space.context, num_rows, then, normed, attended, columns, sums
        )
        _add_and_norm(layers.attention_norm, layer, layers.is_pre_norm, attended[:num_rows], hidden, normed[:num_rows])
        _multiply(
            layers.expand, layer, counters, step + 3, normed, num_rows, plain, normed, space.expanded, columns, sums
        )
        row = claim(counters, step + 4)
        while row < num_rows:
            expanded, gated = space.expanded[row : row + 1], space.gated[row : row + 1]
            if layers.is_silu:
                silu_gate_forward(expanded, gated)
            else:
                gate_forward(expanded, gated)
            finish(counters, step + 4)
            row = claim(counters, step + 4)
        wait(counters, step + 4, num_rows)
        _multiply(
            layers.project, layer, counters, step + 5, space.gated, num_rows, then, normed, projected, columns, sums
        )
        norms = layers.feed_forward_norm
        _add_and_norm(norms, layer, layers.is_pre_norm, projected[:num_rows], hidden, normed[:num_rows])
    return normed


@compiled
def encode_gated_rows_int8(layers, space, num_rows, num_heads, cu_seqlens, cosines, sines):
    """The same in 8 bits.

    Args:
        space: Int8Space, in which ``expanded`` has 2 F columns, and ``hidden`` are the sums with pre-norm.

    Returns:
        (M, D) float32.
    """
    counters, (_, width) = space.counters, space.hidden.shape
    hidden, normed, given = space.hidden.copy(), space.hidden.copy(), space.quantized  # each thread has its own
    normed_bytes = Quantized(with_room(given.values), given.scales.copy(), given.middles.copy())
    columns = np.zeros(num_rows * max(width, space.expanded_values.shape[1]) // 4 + WIDTH, np.float32)
    for layer in range(len(layers.angles)):
        step, weights = _STEPS * layer, layers.query_key_value
        _multiply_int8(weights, layer, counters, step, normed_bytes, num_rows, space.query_key_value, columns)
        context = Quantized(space.context_values, space.context_scales[layer], space.context_middles[layer])
        if claim(counters, step + 1) == 0:
            angles, window = _positions(layers, layer, cosines, sines)
            product = product_of(space.query_key_value, normed_bytes, weights.vectors[layer])
            attend(product, cu_seqlens, num_heads, space.context, context, angles, window, None)
            finish(counters, step + 1)
        wait(counters, step + 1, 1)
        weights, norms = layers.output, layers.attention_norm
        _multiply_int8(weights, layer, counters, step + 2, context, num_rows, space.attended[layer], columns)
        product = product_of(space.attended[layer], context, weights.vectors[layer])
        _add_and_norm_int8(norms, layer, layers.is_pre_norm, product, hidden, normed, normed_bytes)
        weights = layers.expand
        _multiply_int8(weights, layer, counters, step + 3, normed_bytes, num_rows, space.expanded, columns)
        gated = Quantized(space.expanded_values, space.expanded_scales[layer], space.expanded_middles[layer])
        row = claim(counters, step + 4)
        while row < num_rows:
            values = space.expanded[row : row + 1]
            product = product_of(values, rows_of(normed_bytes, row), weights.vectors[layer])
            gate_rows(product, layers.is_silu, rows_of(gated, row))
            finish(counters, step + 4)
            row = claim(counters, step + 4)
        wait(counters, step + 4, num_rows)
        weights, norms = layers.project, layers.feed_forward_norm
        _multiply_int8(weights, layer, counters, step + 5, gated, num_rows, space.projected[layer], columns)
        product = product_of(space.projected[layer], gated, weights.vectors[layer])
        _add_and_norm_int8(norms, layer, layers.is_pre_norm, product, hidden, normed, normed_bytes)
    return normed


@compiled
def _positions(layers, layer, cosines, sines):
    """The angles and the Window of a layer."""
    kind, window = layers.angles[layer], layers.windows[layer]
    return (cosines[kind], sines[kind]), Window(window[0], window[1])


@compiled
def _norm_of(norms, layer):
    return Norm(norms.weights[layer, 0], norms.weights[layer, 1], norms.eps)


@compiled
def _add_and_norm(norms, layer, is_pre_norm, rows, hidden, normed):
    """``normed = norm(rows)``; with pre-norm ``hidden += rows; normed = norm(hidden)``."""
    norm = _norm_of(norms, layer)
    if is_pre_norm:
        means, factors = np.empty(len(rows), np.float32), np.empty(len(rows), np.float32)
        add_then_norm_forward(rows, hidden, norm, None, hidden, normed, means, factors, None)
    else:
        norm_rows(rows, None, norm, normed, None)


@compiled
def _add_and_norm_int8(norms, layer, is_pre_norm, product, hidden, normed, normed_bytes):
    """``hidden += product; normed = norm(hidden)``; with post-norm ``hidden`` is then ``normed``."""
    norm = _norm_of(norms, layer)
    if is_pre_norm:
        means, factors = np.empty(len(hidden), np.float32), np.empty(len(hidden), np.float32)
        add_then_norm_forward(product, hidden, norm, None, hidden, normed, means, factors, normed_bytes)
    else:
        norm_rows(product, hidden, norm, normed, normed_bytes)
        hidden[:] = normed


@compiled
def _multiply(weights, layer, counters, step, x, num_rows, then, residual, out, columns, sums):
    multiply(
        counters, step, x, num_rows, weights.addresses[layer], weights.packed, weights.block, weights.bias[layer], then,
        residual, out, columns, sums,
    )  # fmt: skip


@compiled
def _multiply_int8(weights, layer, counters, step, quantized, num_rows, out, columns):
    vectors = weights.vectors[layer]
    multiply_int8(counters, step, quantized.values, num_rows, weights.addresses[layer], vectors, out, columns)
