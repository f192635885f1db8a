"""What is done to one row, the hidden state of one token, at a time: embedding, layer norm, GELU, quantization.

A row stays in the processor's nearest memory from its first addition to its last, so the steps around the matrix
products cost one reading and one writing of it. Shape letters: T total_tokens, D width of a row.
"""

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from bertkit.compiled import compiled
from bertkit.transformer.kernels.vector_functions import gelu
from bertkit.transformer.kernels.vectors import (
    WIDTH,
    broadcast,
    fma,
    keep_first,
    larger,
    largest,
    load,
    load_first,
    nearest,
    smaller,
    smallest,
    store,
    store_bytes,
    store_first,
    total,
)


class Norm(NamedTuple):
    """A layer normalization."""

    weight: np.ndarray  # (D,) float32
    bias: np.ndarray  # (D,) float32
    eps: np.float32  # added to the variance


class Quantized(NamedTuple):
    """Rows of 8-bit numbers, each with a scale of its own: ``x = scale * (value - 128) + middle``.

    The scale spreads the 256 values from the smallest number of the row to its largest.
    """

    values: np.ndarray  # (T, D) uint8
    scales: np.ndarray  # (T,) float32
    middles: np.ndarray  # (T,) float32


class Product(NamedTuple):
    """``x W^T + bias`` of quantized rows x and quantized W, its scaling still to be done.

    ``y[t, c] = scales[t] * values[t, c] + middles[t] * weight_sums[c] + bias[c]``.
    """

    values: np.ndarray  # (T, D) float32: the products of value - 128 and the weights
    scales: np.ndarray  # (T,) float32, of the rows
    middles: np.ndarray  # (T,) float32, of the rows
    weight_sums: np.ndarray  # (D,) float32: what a row of ones would give
    bias: np.ndarray  # (D,) float32


def read(rows, row, column):
    """Columns ``column`` to ``column + 15`` of a row of an array or a Product; zeros beyond its end (compiled only)."""
    raise NotImplementedError


@overload(read)
def _read(rows, row, column):
    if isinstance(rows, types.Array):
        return _read_array
    if rows.instance_class is Product:
        return _read_product


def _read_array(rows, row, column):
    width = rows.shape[1]
    return load_first(rows, row * width + column, width - column)


def _read_product(rows, row, column):
    width = rows.values.shape[1]
    left = width - column
    shift = fma(
        broadcast(rows.middles[row]), load_first(rows.weight_sums, column, left), load_first(rows.bias, column, left)
    )
    return fma(broadcast(rows.scales[row]), load_first(rows.values, row * width + column, left), shift)


@compiled
def quantize_row(line, quantized, row):
    """Write the numbers of ``line`` as a row of ``quantized``."""
    width = quantized.values.shape[1]
    low, high = broadcast(np.float32(np.inf)), broadcast(np.float32(-np.inf))
    whole = width // WIDTH * WIDTH
    for c in range(0, whole, WIDTH):
        numbers = load(line, c)
        low, high = smaller(low, numbers), larger(high, numbers)
    bottom, top = smallest(low), largest(high)
    for c in range(whole, width):
        bottom, top = min(bottom, line[c]), max(top, line[c])
    scale = max((top - bottom) / np.float32(255), np.float32(1e-30))
    middle = bottom + np.float32(128) * scale
    quantized.scales[row] = scale
    quantized.middles[row] = middle
    shift, factor = broadcast(middle), broadcast(np.float32(1) / scale)
    for c in range(0, whole, WIDTH):
        store_bytes(quantized.values, row * width + c, nearest((load(line, c) - shift) * factor))
    for c in range(whole, width):
        quantized.values[row, c] = np.uint8(np.rint((line[c] - middle) / scale) + np.float32(128))


@compiled
def _normalize_row(line, width, sums, norm, hidden, row):
    """Write ``line``, whose lanes add up to ``sums``, normalized into a row of ``hidden`` and back into ``line``."""
    mean = broadcast(total(sums) / np.float32(width))
    squares = broadcast(np.float32(0))
    for c in range(0, width, WIDTH):
        distance = keep_first(load(line, c) - mean, width - c)
        squares = fma(distance, distance, squares)
    factor = broadcast(np.float32(1) / np.sqrt(total(squares) / np.float32(width) + norm.eps))
    for c in range(0, width, WIDTH):
        weight, bias = load_first(norm.weight, c, width - c), load_first(norm.bias, c, width - c)
        normalized = fma((load(line, c) - mean) * factor, weight, bias)
        store(line, c, normalized)
        store_first(hidden, row * width + c, normalized, width - c)


@compiled
def _room_for(width):
    """A row of zeros, with room for whole vectors."""
    return np.zeros((width + WIDTH - 1) // WIDTH * WIDTH, np.float32)


@compiled
def embed_rows(word, position, token_type, input_ids, position_ids, token_type_ids, norm, hidden, quantized):
    """``hidden = norm(word + position + token_type)``: float32 tables, (T,) int64 ids, (T, D) hidden."""
    num_rows, width = hidden.shape
    line = _room_for(width)
    for row in range(num_rows):
        sums = broadcast(np.float32(0))
        for c in range(0, width, WIDTH):
            summed = read(word, input_ids[row], c) + read(token_type, token_type_ids[row], c)
            summed = summed + read(position, position_ids[row], c)
            sums = sums + summed
            store(line, c, summed)
        _normalize_row(line, width, sums, norm, hidden, row)
        if quantized is not None:
            quantize_row(line, quantized, row)


@compiled
def norm_rows(rows, residual, norm, hidden, quantized):
    """``hidden = norm(rows + residual)``, for rows an array or a Product; ``hidden`` may be one of the two arrays.

    ``residual`` and ``quantized`` may be None: nothing is added, nothing quantized.
    """
    num_rows, width = hidden.shape
    line = _room_for(width)
    for row in range(num_rows):
        sums = broadcast(np.float32(0))
        for c in range(0, width, WIDTH):
            summed = read(rows, row, c)
            if residual is not None:
                summed = summed + read(residual, row, c)
            sums = sums + summed
            store(line, c, summed)
        _normalize_row(line, width, sums, norm, hidden, row)
        if quantized is not None:
            quantize_row(line, quantized, row)


@compiled
def gelu_rows(product, quantized):
    """``quantized = gelu(product)``."""
    num_rows, width = quantized.values.shape
    line = _room_for(width)
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            store(line, c, gelu(read(product, row, c)))
        quantize_row(line, quantized, row)


@compiled
def read_rows(product, rows):
    """``rows = product``, as plain float32 numbers."""
    num_rows, width = rows.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            store_first(rows, row * width + c, read(product, row, c), width - c)


@compiled
def quantize_rows(rows, quantized):
    """``quantized = rows``."""
    num_rows, width = rows.shape
    line = _room_for(width)
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            store(line, c, read(rows, row, c))
        quantize_row(line, quantized, row)
