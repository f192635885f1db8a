"""Forward and backward of the row steps of training: dropout + residual, then norm; GELU, gates, sums over rows.

Dropout masks come from counters, so the backward pass regenerates them instead of storing them. Shape letters: T
total_tokens, D width of a row, F half of one.
"""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import compiled
from bertkit.transformer.kernels.rows import quantize_row, read, whole_vectors, write
from bertkit.transformer.kernels.vector_functions import normal
from bertkit.transformer.kernels.vectors import WIDTH, broadcast, drop, fma, load, store, store_first, total


def drop_limit(probability: float) -> int:
    """The number of 2**32 below which the random number of a dropped element is."""
    return min(int(probability * 2**32), 2**32 - 1)


class Dropout(NamedTuple):
    """One use of dropout: element i is dropped where the random number of (key, i) is below the limit."""

    key: np.uint32
    limit: np.uint32  # the probability, times 2**32
    scale: np.float32  # factor of kept elements, 1 / (1 - probability)

    @classmethod
    def of(cls, probability: float, key: int) -> "Dropout":
        return cls(np.uint32(key & 0xFFFFFFFF), np.uint32(drop_limit(probability)), np.float32(1 / (1 - probability)))


@compiled
def apply_dropout(numbers, dropout, index):
    """Apply dropout to sixteen numbers, elements ``index`` to ``index + 15``."""
    return drop(numbers, dropout.key, index, dropout.limit, dropout.scale)


@compiled
def _mean_and_factor(line, width, sums, eps):
    """The mean of a row in ``line``, whose lanes add up to ``sums``, and 1 / its standard deviation."""
    mean = total(sums) / np.float32(width)
    line[width:] = mean  # values beyond the end do not count
    squares = broadcast(np.float32(0))
    for c in range(0, width, WIDTH):
        distance = load(line, c) - broadcast(mean)
        squares = fma(distance, distance, squares)
    return mean, np.float32(1) / np.sqrt(total(squares) / np.float32(width) + eps)


@compiled
def add_then_norm_forward(x, residual, norm, bias, dropout, summed, normed, means, factors, quantized):
    """``summed = residual + dropout(x); normed = norm(summed)``, all (T, D); x may be an UnscaledProduct.

    Args:
        residual, dropout: what is added to, and Dropout; or None.
        norm: Norm; its own bias is ignored.
        bias: of the norm, or None.
        summed, quantized: array, and Quantized, which also receives the norm; or None.
        means, factors: (T,) means of the rows and 1 / standard deviations, for the backward pass. Without ``means``
            none are subtracted, and rows are divided by the root of their mean square (Zhang & Sennrich 2019).
    """
    num_rows, width = normed.shape
    line = np.zeros(whole_vectors(width), np.float32)
    for row in range(num_rows):
        sums = broadcast(np.float32(0))
        for c in range(0, width, WIDTH):
            numbers = read(x, row, c)
            if dropout is not None:
                numbers = apply_dropout(numbers, dropout, row * width + c)
            if residual is not None:
                numbers = read(residual, row, c) + numbers
            sums = sums + numbers
            store(line, c, numbers)
            if summed is not None:
                write(summed, row, c, numbers)
        if means is None:
            sums = broadcast(np.float32(0))
        mean, factor = _mean_and_factor(line, width, sums, norm.eps)
        if means is not None:
            means[row] = mean
        factors[row] = factor
        for c in range(0, width, WIDTH):
            numbers = (load(line, c) - broadcast(mean)) * broadcast(factor)
            if bias is None:
                numbers = numbers * load(norm.weight, c)
            else:
                numbers = fma(numbers, load(norm.weight, c), load(bias, c))
            write(normed, row, c, numbers)
            store(line, c, numbers)
        if quantized is not None:
            quantize_row(line, quantized, row)


@compiled
def add_then_norm_backward(
    grad_summed, grad_normed, summed, norm, dropout, means, factors, grad_x, grad_residual, grad_weight, grad_bias
):
    """The gradients of `add_then_norm_forward`; those of weight and bias are accumulated.

    With n = (summed - mean) * factor and g = grad_normed * weight, the gradient of the sum is
    grad_summed + factor * (g - mean(g) - n * mean(g * n)).

    Args:
        grad_summed: None if only the norm is read.
        grad_bias: None without a bias.
    """
    num_rows, width = summed.shape
    scaled, grads = np.zeros(whole_vectors(width), np.float32), np.zeros(whole_vectors(width), np.float32)
    for row in range(num_rows):
        mean, factor = broadcast(means[row]), broadcast(factors[row])
        sums = products = broadcast(np.float32(0))
        for c in range(0, width, WIDTH):
            grad = read(grad_normed, row, c)
            n = (read(summed, row, c) - mean) * factor
            store(grad_weight, c, fma(grad, n, load(grad_weight, c)))
            if grad_bias is not None:
                store(grad_bias, c, load(grad_bias, c) + grad)
            grad = grad * load(norm.weight, c)  # zero beyond the end, for any n there
            sums = sums + grad
            products = fma(grad, n, products)
            store(scaled, c, n)
            store(grads, c, grad)
        mean_grad = broadcast(total(sums) / np.float32(width))
        mean_product = broadcast(total(products) / np.float32(width))
        for c in range(0, width, WIDTH):
            grad = (load(grads, c) - mean_grad - load(scaled, c) * mean_product) * factor
            if grad_summed is not None:
                grad = grad + read(grad_summed, row, c)
            write(grad_residual, row, c, grad)
            if dropout is not None:
                grad = apply_dropout(grad, dropout, row * width + c)
            write(grad_x, row, c, grad)


@compiled
def gelu_backward(grad_out, x, grad_x):
    """``grad_x = grad_out * (Phi(x) + x * phi(x))``, of GELU (Hendrycks and Gimpel 2016)."""
    num_rows, width = x.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            numbers = read(x, row, c)
            cdf, density = normal(numbers)
            write(grad_x, row, c, read(grad_out, row, c) * fma(numbers, density, cdf))


@compiled
def gate_backward(grad_out, x, grad_x):
    """The gradients of ``gelu(left) * right`` of the halves of rows: grad_out * right * gelu'(left), and
    grad_out * gelu(left)."""
    num_rows, width = grad_out.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            grad, left, right = read(grad_out, row, c), read(x, row, c), read(x, row, width + c)
            cdf, density = normal(left)
            offset = row * 2 * width + c
            store_first(grad_x, offset, grad * right * fma(left, density, cdf), width - c)
            store_first(grad_x, offset + width, grad * left * cdf, width - c)


@compiled
def dropout_rows(x, dropout, out):
    """``out = dropout(x)``: forward, and backward for gradients."""
    num_rows, width = x.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            write(out, row, c, apply_dropout(read(x, row, c), dropout, row * width + c))


@compiled
def add_rows(rows, sums):
    """Add every row to ``sums``, (D,) and room for whole vectors, float32."""
    num_rows, width = rows.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            store(sums, c, load(sums, c) + read(rows, row, c))
