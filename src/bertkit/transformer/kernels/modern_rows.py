"""The row steps of the modern encoder, forward and backward: residual, then norm without bias; the gated activation.

Shape letters: T total_tokens, D hidden_size, F intermediate_size.
"""

import numpy as np

from bertkit.compiled import compiled
from bertkit.transformer.kernels.rows import quantize_row, read, whole_vectors, write
from bertkit.transformer.kernels.training_rows import apply_dropout, mean_and_factor
from bertkit.transformer.kernels.vector_functions import gelu, normal, silu
from bertkit.transformer.kernels.vectors import (
    WIDTH,
    broadcast,
    fma,
    load,
    store,
    store_first,
    total,
)


@compiled
def add_then_norm_forward(x, residual, norm, dropout, summed, normed, means, factors, quantized):
    """``summed = residual + dropout(x); normed = norm(summed)``, all (T, D); x may be an UnscaledProduct.

    Args:
        norm: Norm; its bias is ignored.
        dropout: Dropout, or None.
        means, factors: (T,) means of the rows and 1 / standard deviations, for the backward pass. Without ``means``
            none are subtracted, and rows are divided by the root of their mean square (Zhang & Sennrich 2019).
        quantized: Quantized, also receives the norm; or None.
    """
    num_rows, width = residual.shape
    line = np.zeros(whole_vectors(width), np.float32)
    for row in range(num_rows):
        sums = broadcast(np.float32(0))
        for c in range(0, width, WIDTH):
            numbers = read(x, row, c)
            if dropout is not None:
                numbers = apply_dropout(numbers, dropout, row * width + c)
            numbers = read(residual, row, c) + numbers
            sums = sums + numbers
            store(line, c, numbers)
            write(summed, row, c, numbers)
        if means is None:
            sums = broadcast(np.float32(0))
        mean, factor = mean_and_factor(line, width, sums, norm.eps)
        if means is not None:
            means[row] = mean
        factors[row] = factor
        for c in range(0, width, WIDTH):
            numbers = (load(line, c) - broadcast(mean)) * broadcast(factor) * load(norm.weight, c)
            write(normed, row, c, numbers)
            store(line, c, numbers)
        if quantized is not None:
            quantize_row(line, quantized, row)


@compiled
def norm_without_bias(rows, norm, normed):
    """``normed = norm(rows)`` with the bits of `add_then_norm_forward`."""
    num_rows, width = normed.shape
    line = np.zeros(whole_vectors(width), np.float32)
    for row in range(num_rows):
        sums = broadcast(np.float32(0))
        for c in range(0, width, WIDTH):
            numbers = read(rows, row, c)
            sums = sums + numbers
            store(line, c, numbers)
        mean, factor = mean_and_factor(line, width, sums, norm.eps)
        for c in range(0, width, WIDTH):
            write(normed, row, c, (load(line, c) - broadcast(mean)) * broadcast(factor) * load(norm.weight, c))


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


@compiled
def add_then_norm_backward(
    grad_summed, grad_normed, summed, norm, dropout, means, factors, grad_x, grad_residual, grad_weight
):
    """The gradients of `add_then_norm_forward`; that of the weight is accumulated.

    With n = (summed - mean) * factor and g = grad_normed * weight, the gradient of the sum is
    grad_summed + factor * (g - mean(g) - n * mean(g * n)).
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
            grad = grad * load(norm.weight, c)  # zero beyond the end, for any n there
            sums = sums + grad
            products = fma(grad, n, products)
            store(scaled, c, n)
            store(grads, c, grad)
        mean_grad = broadcast(total(sums) / np.float32(width))
        mean_product = broadcast(total(products) / np.float32(width))
        for c in range(0, width, WIDTH):
            grad = (load(grads, c) - mean_grad - load(scaled, c) * mean_product) * factor
            grad = grad + read(grad_summed, row, c)
            write(grad_residual, row, c, grad)
            if dropout is not None:
                grad = apply_dropout(grad, dropout, row * width + c)
            write(grad_x, row, c, grad)


@compiled
def gate_forward(x, out):
    """``out = gelu(left) * right``, of the halves of (T, 2 F) rows, to (T, F)."""
    num_rows, width = out.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            left, right = read(x, row, c), read(x, row, width + c)
            cdf, _ = normal(left)
            write(out, row, c, left * cdf * right)


@compiled
def silu_gate_forward(x, out):
    """As `gate_forward`, with SiLU."""
    num_rows, width = out.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            write(out, row, c, silu(read(x, row, c)) * read(x, row, width + c))


@compiled
def gate_rows(product, is_silu, quantized):
    """``quantized = activation(left) * right``, of the halves of a (T, 2 F) UnscaledProduct: `silu` or `gelu`."""
    num_rows, width = quantized.values.shape
    line = np.zeros(whole_vectors(width), np.float32)
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            left, right = read(product, row, c), read(product, row, width + c)
            store(line, c, (silu(left) if is_silu else gelu(left)) * right)
        quantize_row(line, quantized, row)


@compiled
def gate_backward(grad_out, x, grad_x):
    """The gradients of `gate_forward`: grad_out * right * gelu'(left), and grad_out * gelu(left)."""
    num_rows, width = grad_out.shape
    for row in range(num_rows):
        for c in range(0, width, WIDTH):
            grad, left, right = read(grad_out, row, c), read(x, row, c), read(x, row, width + c)
            cdf, density = normal(left)
            offset = row * 2 * width + c
            store_first(grad_x, offset, grad * right * fma(left, density, cdf), width - c)
            store_first(grad_x, offset + width, grad * left * cdf, width - c)
