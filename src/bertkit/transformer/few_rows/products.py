"""Products of a few rows in float32, bfloat16 or 8 bits, compiled.

The product of a few rows takes as long as reading the weights. Here weights are prefetched, and threads share a
product without Python between them (`shared_steps`). The weights are those of larger batches, packed by
`panel_product` or, where panels have 64 outputs, by oneDNN: (N / PANEL, K, PANEL) float32, (N / PANEL, K / 2, PANEL, 2)
bfloat16, which without instructions for pairs are (N / PANEL, K, PANEL) and widened, or (N / PANEL, K / 4, PANEL, 4)
int8. Terms are added in the order of those, which gives their bits: products of ``block`` inputs are added up from 0 in
float32, then the sums of the blocks in turn, then bias and residual.

Sums of 8-bit products are integers, so that no order of terms matters; but from 2^24 on, it matters whether the part of
the zero point is subtracted before a sum becomes float32, as oneDNN does, or after it, as oneDNN does with AMX.

Arrays of bfloat16 are uint16. Shape letters: M num_rows, K inputs, N outputs, L layers.
"""

from typing import NamedTuple

import numpy as np
from numba import types

from bertkit.compiled import compiled, overload, part
from bertkit.transformer.kernels.product_tiles import (
    FRACTION,
    NUM_VECTORS,
    PANEL,
    TILE_ROWS,
    multiply_tile,
    tile_rows,
)
from bertkit.transformer.kernels.rows import Quantized, quantize_rows
from bertkit.transformer.kernels.shared_steps import claim, finish, wait
from bertkit.transformer.kernels.vector_functions import ADD, ADD_ROUNDED, PLAIN, activated
from bertkit.transformer.kernels.vectors import (
    WIDTH,
    broadcast,
    difference_of_integers,
    fma,
    load,
    rounded_as,
    store,
)

_CHUNK = 32
"""Rows of a panel that all tiles of rows multiply before the next ones, which are read from memory meanwhile."""


class Weights(NamedTuple):
    """The weights of a product in all layers, float32 or bfloat16."""

    addresses: np.ndarray  # (L,) int64, of the packed weights, whose N is a multiple of PANEL
    packed: np.ndarray  # (0,) in the dtype of the packed weights
    block: int  # words of 32 bits of a row, or its numbers if they are widened, that are added up at a time
    bias: np.ndarray  # (L, N) in the dtype of products: float32 with packed bfloat16 means that each is widened


class RoundedWeights(NamedTuple):
    """The same in 8 bits."""

    addresses: np.ndarray
    packed: np.ndarray  # (0,) int8
    block: int  # all words
    bias: np.ndarray  # (L, N) float32
    vectors: np.ndarray  # (L, 4, N) float32: what is subtracted from sums in int32 (its bits), and then in float32;
    # scales; and the product for a row of ones


@part
def sums_of(num_rows):
    """Memory of a thread for the sums of M rows and a panel, twice."""
    return np.empty((2, (num_rows + TILE_ROWS) * PANEL), np.float32)


@compiled
def multiply(weights, layer, counters, step, x, then, residual, out, sums):
    """One step: ``out = x W^T + bias``, then one of PLAIN to RELU.

    Args:
        weights: `Weights` or `RoundedWeights`.
        x: (M, K) float32 or bfloat16, K a multiple of 16, for products of bfloat16 of 32; for those of 8 bits float32,
            K a multiple of 64, which each thread quantizes.
        residual: (M, N), read for ADD and ADD_ROUNDED only.
        out: (M, N).
        sums: `sums_of` M rows.
    """
    inputs, words = _inputs_of(weights, weights.bias, x)
    (num_rows, num_words), num_units, block = words.shape, out.shape[1] // PANEL, weights.block
    tile = tile_rows(num_rows)
    size = 2 if 2 * weights.packed.itemsize == weights.bias.itemsize else 4  # bytes of a word of packed weights
    num_tiles = (num_rows + tile - 1) // tile  # that read the same weights
    chunk = num_words if num_tiles == 1 else _CHUNK
    share = FRACTION * NUM_VECTORS // num_tiles  # requested from memory for each row of a panel and tile
    is_filled = False
    unit = claim(counters, step)
    while unit < num_units:
        if not is_filled:
            _fill(x, inputs, words)
            is_filled = True
        panel = weights.addresses[layer] + size * unit * PANEL * num_words
        for start in range(0, num_words, block):
            end, own = min(start + block, num_words), sums[min(start, 1)]
            for first in range(start, end, chunk):
                count = min(chunk, end - first)
                rows = panel + size * first * PANEL
                fetched = 0
                for row in range(0, num_rows, tile):
                    multiply_tile(
                        weights.packed, weights.bias, words, row, first, tile, rows, count, own, first > start, fetched,
                        share,
                    )  # fmt: skip
                    fetched += count * share
            if start > 0:
                _add_sums(sums, num_rows * PANEL)
        for row in range(num_rows):
            for c in range(0, PANEL, WIDTH):
                vector = _finished(weights, layer, inputs, row, unit * PANEL + c, load(sums, row * PANEL + c))
                at = row * out.shape[1] + unit * PANEL + c
                store(out, at, _after_product(weights.bias, x, vector, then, residual, at))
        finish(counters, step)
        unit = claim(counters, step)
    wait(counters, step, num_units)


@compiled
def multiply_few_rows(weights, counters, x, then, residual, out):
    """`multiply` for one layer: a share of the work on this thread, the rest on other threads that call it with the
    same arguments.

    Args:
        counters: (2,) int64 zeros.
        out: also returned.
    """
    layer = step = np.intp(0)
    multiply(weights, layer, counters, step, x, then, residual, out, sums_of(len(x)))
    return out


def _inputs_of(weights, bias, x):
    """What is multiplied, the rows or Quantized; and the same as (M, words) float32, which are multiplied at a time: a
    number, or two of bfloat16 (not with weights in float32), or four of 8 bits. `_fill` writes what is not yet
    written."""
    raise NotImplementedError


@overload(_inputs_of)
def _choose_inputs(weights, bias, x):
    if weights.instance_class is RoundedWeights:
        return _empty_quantized
    if x.dtype == types.float32:
        return lambda weights, bias, x: (x, x)
    if x.dtype == bias.dtype:
        return lambda weights, bias, x: (x, x.view(np.float32))
    return lambda weights, bias, x: (x, np.empty(x.shape, np.float32))


def _empty_quantized(weights, bias, x):
    values = np.empty(x.shape, np.uint8)
    scales, middles = np.empty(len(x), np.float32), np.empty(len(x), np.float32)
    return Quantized(values, scales, middles), values.view(np.float32)


def _fill(x, inputs, words):
    """Quantize rows of numbers if 8 bits are multiplied, and widen bfloat16 where float32 is."""
    raise NotImplementedError


@overload(_fill)
def _choose_fill(x, inputs, words):
    if x != inputs:
        return lambda x, inputs, words: quantize_rows(x, 0, len(x), inputs)
    return (lambda x, inputs, words: None) if x == words else _widen


def _widen(x, inputs, words):
    if words.shape == x.shape:  # not in pairs
        for at in range(0, x.size, WIDTH):
            store(words, at, load(x, at))


def _finished(weights, layer, inputs, row, column, sums):
    """Sums of products of a row, from a column on, as numbers with the bias."""
    raise NotImplementedError


@overload(_finished)
def _choose_finished(weights, layer, inputs, row, column, sums):
    return _finish_floats if weights.instance_class is Weights else _finish_integers


def _finish_floats(weights, layer, inputs, row, column, sums):
    return sums + load(weights.bias, layer * weights.bias.shape[1] + column)


def _finish_integers(weights, layer, inputs, row, column, sums):
    width = weights.bias.shape[1]
    first = 4 * layer * width + column
    values = difference_of_integers(sums, load(weights.vectors, first)) - load(weights.vectors, first + width)
    values = values * load(weights.vectors, first + 2 * width)
    of_ones, bias = load(weights.vectors, first + 3 * width), load(weights.bias, layer * width + column)
    return fma(broadcast(inputs.scales[row]), values, fma(broadcast(inputs.middles[row]), of_ones, bias))


@part
def _add_sums(sums, number):
    """Add the sums of a block of inputs, ``sums[1]``, to those of earlier blocks."""
    for at in range(0, number, WIDTH):
        store(sums[0], at, load(sums[0], at) + load(sums[1], at))


@part
def _after_product(bias, x, vector, then, residual, at):
    """Add the residual at an index, or apply the activation to the vector in the precision of the bias."""
    if then == PLAIN:
        return vector
    if then == ADD:
        return vector + load(residual, at)
    if then == ADD_ROUNDED:
        return rounded_as(x, vector) + load(residual, at)
    return activated(rounded_as(bias, vector), then)
