"""Forward and backward of the row steps of training: dropout + residual + norm, GELU, sums over rows.

Dropout masks come from counters, so the backward pass regenerates them instead of storing them. Shape letters: T
total_tokens, D width of a row.
"""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import compiled
from bertkit.transformer.kernels.rows import read, whole_vectors, write
from bertkit.transformer.kernels.vector_functions import normal
from bertkit.transformer.kernels.vectors import WIDTH, broadcast, drop, fma, load, store, total


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
def mean_and_factor(line, width, sums, eps):
    """The mean of a row in ``line``, whose lanes add up to ``sums``, and 1 / its standard deviation."""
    mean = total(sums) / np.float32(width)
    line[width:] = mean  # values beyond the end do not count
    squares = broadcast(np.float32(0))
    for c in range(0, width, WIDTH):
        distance = load(line, c) - broadcast(mean)
        squares = fma(distance, distance, squares)
    return mean, np.float32(1) / np.sqrt(total(squares) / np.float32(width) + eps)


@compiled
def add_norm_forward(x, residual, norm, dropout, out, means, factors):
    """``out = norm(dropout(x) + residual)``; means and 1 / standard deviations (T,) are kept for the backward pass."""
    num_rows, width = x.shape
    line = np.zeros(whole_vectors(width), np.float32)
    for row in range(num_rows):
        sums = broadcast(np.float32(0))
        for c in range(0, width, WIDTH):
            summed = read(residual, row, c) + apply_dropout(read(x, row, c), dropout, row * width + c)
            sums = sums + summed
            store(line, c, summed)
        mean, factor = mean_and_factor(line, width, sums, norm.eps)
        means[row], factors[row] = mean, factor
        for c in range(0, width, WIDTH):
            scaled = (load(line, c) - broadcast(mean)) * broadcast(factor)
            write(out, row, c, fma(scaled, load(norm.weight, c), load(norm.bias, c)))


@compiled
def add_norm_backward(
    grad_out, x, residual, norm, dropout, means, factors, grad_x, grad_residual, grad_weight, grad_bias
):
    """The gradients of `add_norm_forward`; those of weight and bias are accumulated.

    With n = (s - mean) * factor and g = grad_out * weight: grad_s = factor * (g - mean(g) - n * mean(g * n)).
    """
    num_rows, width = x.shape
    scaled, grads = np.zeros(whole_vectors(width), np.float32), np.zeros(whole_vectors(width), np.float32)
    for row in range(num_rows):
        mean, factor = broadcast(means[row]), broadcast(factors[row])
        sums = products = broadcast(np.float32(0))
        for c in range(0, width, WIDTH):
            grad = read(grad_out, row, c)
            summed = read(residual, row, c) + apply_dropout(read(x, row, c), dropout, row * width + c)
            n = (summed - mean) * factor
            store(grad_weight, c, fma(grad, n, load(grad_weight, c)))
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
            write(grad_residual, row, c, grad)
            write(grad_x, row, c, apply_dropout(grad, dropout, row * width + c))


@compiled
def gelu_forward(x, out):
    """``out = x * Phi(x)`` (Hendrycks and Gimpel 2016)."""
    num_rows, width = x.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            numbers = read(x, row, c)
            cdf, _ = normal(numbers)
            write(out, row, c, numbers * cdf)


@compiled
def gelu_backward(grad_out, x, grad_x):
    """``grad_x = grad_out * (Phi(x) + x * phi(x))``."""
    num_rows, width = x.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            numbers = read(x, row, c)
            cdf, density = normal(numbers)
            write(grad_x, row, c, read(grad_out, row, c) * fma(numbers, density, cdf))


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
