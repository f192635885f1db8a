"""All layers of a few rows, compiled as one function: one short text at a time, or a step of generation.

No Python runs between the steps of a layer, which threads share (`shared_steps`). One code serves every family and
precision: numba compiles it for the types of the weights and of attention. Arrays of bfloat16 are uint16. Shape
letters: M rows, D hidden_size, F intermediate_size, L layers.
"""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import compiled, overload, part
from bertkit.transformer.few_rows.attention import attend_few_rows
from bertkit.transformer.few_rows.products import RoundedWeights, Weights, multiply, sums_of
from bertkit.transformer.kernels.rows import Norm, activate_rows, norm_rows
from bertkit.transformer.kernels.shared_steps import claim, finish, wait
from bertkit.transformer.kernels.training_rows import add_then_norm_forward
from bertkit.transformer.kernels.vector_functions import PLAIN

_STEPS = 9  # of a layer

COUNTERS = 2 * _STEPS
"""Counters of a layer."""


class LayerNorms(NamedTuple):
    """A layer normalization in all layers."""

    weights: np.ndarray  # (L, D) float32
    biases: np.ndarray | None  # (L, D) float32
    eps: np.float32


class Layers(NamedTuple):
    """All layers but for their cross-attention.

    With post-norm ``x = norm(x + attention(x)); x = norm(x + feed_forward(x))``. With pre-norm the sums are kept beside
    their norms, which the products read, and each norm is that of the next step.
    """

    query_key_value: Weights | RoundedWeights
    output: Weights | RoundedWeights
    expand: Weights | RoundedWeights  # F outputs; or 2 F with a gate, which comes first
    project: Weights | RoundedWeights
    attention_norm: LayerNorms  # after adding the output of attention
    feed_forward_norm: LayerNorms  # after adding that of the feed-forward network
    is_pre_norm: bool
    activation: np.intp  # GELU to RELU


class CrossLayers(NamedTuple):
    """Cross-attention of all layers, after which the feed-forward network follows."""

    query: Weights | RoundedWeights
    output: Weights | RoundedWeights
    norm: LayerNorms


class Workspace(NamedTuple):
    """Memory that the threads share: in the dtype of products, but for the sums of pre-norm, which may be float32."""

    sums: np.ndarray  # (M, D), the input
    normed: np.ndarray  # (M, D), the input as the first product reads it; with post-norm the same
    query_key_value: np.ndarray  # (M, 3 D)
    cross_query: np.ndarray  # (M, D)
    context: np.ndarray  # (M, D) zeros
    attended: np.ndarray  # (L, M, D) in the dtype of the sums
    crossed: np.ndarray  # (L, M, D) in the dtype of the sums
    expanded: np.ndarray  # (M, F or 2 F)
    projected: np.ndarray  # (L, M, D) in the dtype of the sums
    counters: np.ndarray  # (COUNTERS * L,) int64 zeros


@compiled
def encode_few_rows(layers, cross, space, add, attention, sources, gated):
    """All layers: a share of the work on this thread, the rest on other threads that call it with the same arguments.

    Args:
        cross: `CrossLayers`, or None.
        space: `Workspace`.
        add: ADD, or ADD_ROUNDED for sums in another dtype than that of products.
        attention: as in `attend_few_rows`.
        sources: `CachedAttention` of all layers, or None.
        gated: (M, F), memory like that of the workspace; None without gates.

    Returns:
        (M, D) sums and norms of the last layer, the same on all threads.
    """
    counters, expanded = space.counters, space.expanded
    sums, normed = space.sums, space.normed.copy()  # each thread has its own norms
    scratch, plain, is_pre_norm = sums_of(len(sums)), np.intp(PLAIN), layers.is_pre_norm
    for layer in range(len(space.attended)):
        step, attended, projected = _STEPS * layer, space.attended[layer], space.projected[layer]
        weights, rows = layers.query_key_value, space.query_key_value
        multiply(weights, layer, counters, step, normed, plain, sums, rows, scratch)
        attend_few_rows(weights, counters, step + 1, rows, attention, layer, True, space.context)
        multiply(layers.output, layer, counters, step + 2, space.context, add, sums, attended, scratch)
        _norm(attended, layers.attention_norm, layers.attention_norm.biases, layer, normed)
        sums = _sums_of(attended, normed, is_pre_norm)
        if cross is not None:
            rows, crossed = space.cross_query, space.crossed[layer]
            multiply(cross.query, layer, counters, step + 3, normed, plain, sums, rows, scratch)
            attend_few_rows(cross.query, counters, step + 4, rows, sources, layer, False, space.context)
            multiply(cross.output, layer, counters, step + 5, space.context, add, sums, crossed, scratch)
            _norm(crossed, cross.norm, cross.norm.biases, layer, normed)
            sums = _sums_of(crossed, normed, is_pre_norm)
        then, activated_rows = layers.activation if gated is None else plain, expanded
        multiply(layers.expand, layer, counters, step + 6, normed, then, sums, expanded, scratch)
        if gated is not None:
            _gate(expanded, layers.activation, counters, step + 7, gated)
            activated_rows = gated
        multiply(layers.project, layer, counters, step + 8, activated_rows, add, sums, projected, scratch)
        _norm(projected, layers.feed_forward_norm, layers.feed_forward_norm.biases, layer, normed)
        sums = _sums_of(projected, normed, is_pre_norm)
    return sums, normed


@part
def _norm(rows, norms, biases, layer, out):
    """``out = norm(rows)``."""
    if biases is None:
        norm, unread = Norm(norms.weights[layer], norms.weights[layer], norms.eps), np.empty(len(rows), np.float32)
        add_then_norm_forward(rows, None, norm, None, None, None, out, unread, unread, None)
    else:
        norm_rows(rows, None, Norm(norms.weights[layer], biases[layer], norms.eps), out, None)


def _sums_of(summed, normed, is_pre_norm):
    """What the next product is added to."""
    raise NotImplementedError


@overload(_sums_of)
def _choose_sums(summed, normed, is_pre_norm):
    if summed == normed:  # types
        return lambda summed, normed, is_pre_norm: summed if is_pre_norm else normed
    return lambda summed, normed, is_pre_norm: summed


@part
def _gate(expanded, activation, counters, step, gated):
    """One step: ``gated = activation(left) * right`` of the halves of rows."""
    row, num_rows = claim(counters, step), len(gated)
    while row < num_rows:
        activate_rows(expanded[row : row + 1], activation, gated[row : row + 1])
        finish(counters, step)
        row = claim(counters, step)
    wait(counters, step, num_rows)
