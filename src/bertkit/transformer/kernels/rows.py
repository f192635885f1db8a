"""Row kernels for hidden states: embedding, norms, activations, quantization.

A row stays in the nearest cache from its first addition to its last, so the steps around matrix products read and
write it once. Shape letters: T total_tokens, D width of a row.
"""

from typing import NamedTuple

import numpy as np
from numba import types

from bertkit.compiled import compiled, overload, part
from bertkit.transformer.kernels.llvm_vectors import LARGEST_BYTE
from bertkit.transformer.kernels.rotation import rotate_row
from bertkit.transformer.kernels.vector_functions import WHOLE, activated
from bertkit.transformer.kernels.vectors import (
    WIDTH,
    broadcast,
    fma,
    larger,
    largest,
    load,
    load_first,
    smaller,
    smallest,
    store,
    store_first,
    store_lowest_bytes,
    total,
)


class Norm(NamedTuple):
    """A layer normalization."""

    weight: np.ndarray  # (D,) float32, then zeros up to whole vectors
    bias: np.ndarray  # (D,) float32, then zeros up to whole vectors
    eps: np.float32  # added to the variance


class Quantized(NamedTuple):
    """Rows of 8-bit numbers, each with its own scale: ``x = scale * (value - 128) + middle``.

    The values from 0 to LARGEST_BYTE span the range of the row.
    """

    values: np.ndarray  # (T, D) uint8
    scales: np.ndarray  # (T,) float32
    middles: np.ndarray  # (T,) float32


class UnscaledProduct(NamedTuple):
    """``x W^T + bias`` of quantized rows x and quantized W, before scaling.

    ``y[t, c] = scales[t] * values[t, c] + middles[t] * weight_sums[c] + bias[c]``.
    """

    values: np.ndarray  # (T, D) float32: the products of value - 128 and the weights
    scales: np.ndarray  # (T,) float32, of the rows
    middles: np.ndarray  # (T,) float32, of the rows
    weight_sums: np.ndarray  # (D,) float32: the product for a row of ones; then WIDTH zeros
    bias: np.ndarray  # (D,) float32, then WIDTH zeros


def empty_quantized(num_rows: int, width: int) -> Quantized:
    """Uninitialized quantized rows (num_rows, width)."""
    return Quantized(
        np.empty((num_rows, width), np.uint8), np.empty(num_rows, np.float32), np.empty(num_rows, np.float32)
    )


def padded(numbers: np.ndarray) -> np.ndarray:
    """(D,) float32 numbers and zeros up to whole vectors."""
    whole = np.zeros(len(numbers) + -len(numbers) % WIDTH, numbers.dtype)  # np.pad takes many times as long
    whole[: len(numbers)] = numbers
    return whole


def read(rows, row, column):
    """Columns ``column`` to ``column + 15`` of a row of an array or an UnscaledProduct; zeros beyond its end
    (compiled only)."""
    raise NotImplementedError


@overload(read)
def _read(rows, row, column):
    if isinstance(rows, types.Array):
        return _read_array
    if rows.instance_class is UnscaledProduct:
        return _read_product


def _read_array(rows, row, column):
    width = rows.shape[1]
    offset = row * width + column
    return load(rows, offset) if column + WIDTH <= width else load_first(rows, offset, width - column)


def _read_product(rows, row, column):
    shift = fma(broadcast(rows.middles[row]), load(rows.weight_sums, column), load(rows.bias, column))
    return fma(broadcast(rows.scales[row]), read(rows.values, row, column), shift)


def width_of(rows):
    """Columns of an array or an UnscaledProduct (compiled only)."""
    raise NotImplementedError


@overload(width_of)
def _width_of(rows):
    if isinstance(rows, types.Array):
        return lambda rows: rows.shape[1]
    return lambda rows: rows.values.shape[1]


@part
def write(rows, row, column, vector):
    """Write columns ``column`` to ``column + 15`` of a row, as far as it goes."""
    width = rows.shape[1]
    offset = row * width + column
    if column + WIDTH <= width:
        store(rows, offset, vector)
    else:
        store_first(rows, offset, vector, width - column)


@compiled
def whole_vectors(width):
    """The width rounded up to whole vectors."""
    return (width + WIDTH - 1) // WIDTH * WIDTH


@part
def quantize_row(line, quantized, row):
    """Quantize ``line`` into a row of ``quantized``, rotated where `rotate_row` does; ``line`` is overwritten.

    ``line`` is read, and the row written, in whole vectors, except for the end of the row.
    """
    width = quantized.values.shape[1]
    rotate_row(line, 0, width)
    low = high = load(line, 0)
    for c in range(WIDTH, width, WIDTH):
        numbers = load(line, c)
        low, high = smaller(low, numbers), larger(high, numbers)
    bottom, top = smallest(low), largest(high)
    scale = max((top - bottom) / np.float32(LARGEST_BYTE), np.float32(1e-30))
    middle = bottom + np.float32(128) * scale
    quantized.scales[row], quantized.middles[row] = scale, middle
    factor, shift = broadcast(np.float32(1) / scale), broadcast(np.float32(128) - middle / scale)
    whole, least, most = width // WIDTH * WIDTH, np.float32(0), np.float32(LARGEST_BYTE)
    for c in range(0, whole, WIDTH):
        numbers = fma(load(line, c), factor, shift)  # in a row of nearly equal numbers also beyond their range
        numbers = smaller(larger(numbers, broadcast(least)), broadcast(most))
        store_lowest_bytes(quantized.values, row * width + c, numbers + broadcast(WHOLE))
    for c in range(whole, width):
        number = np.rint((line[c] - middle) / scale) + np.float32(128)
        quantized.values[row, c] = np.uint8(min(max(number, least), most))


@part
def _normalize_row(line, width, sums, norm, hidden, row):
    """Write ``line``, whose lanes add up to ``sums``, normalized into a row of ``hidden`` and back into ``line``."""
    mean = total(sums) / np.float32(width)
    line[width:] = mean  # values beyond the end do not count
    squares = s1 = s2 = s3 = broadcast(np.float32(0))  # four sums in turn, which do not wait for each other
    for c in range(0, width, WIDTH):
        distance = load(line, c) - broadcast(mean)
        squares, s1, s2, s3 = s1, s2, s3, fma(distance, distance, squares)
    squares = (squares + s1) + (s2 + s3)
    factor = broadcast(np.float32(1) / np.sqrt(total(squares) / np.float32(width) + norm.eps))
    for c in range(0, width, WIDTH):
        numbers = fma((load(line, c) - broadcast(mean)) * factor, load(norm.weight, c), load(norm.bias, c))
        store(line, c, numbers)
        write(hidden, row, c, numbers)


@compiled
def embed_rows(word, position, token_type, input_ids, position_ids, token_type_ids, norm, hidden, quantized):
    """``hidden = norm(word + position + token_type)``: float32 tables, (T,) int64 ids, (T, D) hidden.

    Also written to ``quantized`` unless it is None.
    """
    num_rows, width = hidden.shape
    line = np.zeros(whole_vectors(width), np.float32)
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
    """``hidden = norm(rows + residual)``, for rows an array or an UnscaledProduct; ``hidden`` may be one of
    the two arrays.

    ``residual`` and ``quantized`` may be None: nothing is added, nothing quantized.
    """
    num_rows, width = hidden.shape
    line = np.zeros(whole_vectors(width), np.float32)
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
def read_rows(product, rows):
    """``rows = product``, as plain float32 numbers."""
    num_rows, width = rows.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            write(rows, row, c, read(product, row, c))


@compiled
def quantize_rows(rows, start, end, quantized):
    """``quantized[start:end] = rows[start:end]``."""
    width = rows.shape[1]
    line = np.zeros(whole_vectors(width), np.float32)
    for row in range(start, end):
        for c in range(0, width, WIDTH):
            store(line, c, read(rows, row, c))
        quantize_row(line, quantized, row)


@compiled
def activate_rows(rows, code, out):
    """``out = activation(rows)``, by its code from GELU to RELU; or ``activation(left) * right`` of the halves of rows
    that are twice as wide."""
    num_rows, width = out.shape
    is_gate = width_of(rows) > width
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            numbers = activated(read(rows, row, c), code)
            write(out, row, c, numbers * read(rows, row, width + c) if is_gate else numbers)


@compiled
def activate_in_8_bits(product, code, quantized):
    """`activate_rows` of an UnscaledProduct."""
    num_rows, width = quantized.values.shape
    is_gate = width_of(product) > width
    line = np.zeros(whole_vectors(width), np.float32)
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            numbers = activated(read(product, row, c), code)
            store(line, c, numbers * read(product, row, width + c) if is_gate else numbers)
        quantize_row(line, quantized, row)


@compiled
def norm_heads(rows, num_heads, head_dim, query_norm, key_norm, normed):
    """Queries and keys divided by the root of the mean square of each head, and values: (T, (H + 2 G) K) each, for H
    query heads and G key/value heads.

    Args:
        rows: an array or an UnscaledProduct; ``normed`` may be the same array.
        query_norm, key_norm: Norm of (K,); their biases are ignored.
    """
    num_rows, width = normed.shape
    num_normed = (num_heads + width // head_dim) // 2
    line = np.zeros(whole_vectors(head_dim), np.float32)
    for row in range(num_rows):
        for head in range(num_normed):
            column, norm = head * head_dim, query_norm if head < num_heads else key_norm
            squares = broadcast(np.float32(0))
            for c in range(0, head_dim, WIDTH):
                store_first(line, c, read(rows, row, column + c), head_dim - c)
                squares = fma(load(line, c), load(line, c), squares)
            factor = broadcast(np.float32(1) / np.sqrt(total(squares) / np.float32(head_dim) + norm.eps))
            for c in range(0, head_dim, WIDTH):
                numbers = load(line, c) * factor * load(norm.weight, c)
                store_first(normed, row * width + column + c, numbers, head_dim - c)
        for c in range(num_normed * head_dim, width, WIDTH):
            write(normed, row, c, read(rows, row, c))
