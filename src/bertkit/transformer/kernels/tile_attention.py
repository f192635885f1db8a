"""Attention over a packed row, compiled: eight queries against sixteen keys at a time.

Each sequence and head is done on its own, whatever its length and company: no padding, no groups of equal length, and
the same bits in any batch. Shape letters: T total_tokens, D hidden_size, H num_heads, K head_dim, L tokens of a
sequence. A tile is a tuple of eight vectors, one for each of eight queries.
"""

import numpy as np

from bertkit.compiled import compiled
from bertkit.transformer.kernels.rows import quantize_rows, read, whole_vectors
from bertkit.transformer.kernels.vector_functions import exp2
from bertkit.transformer.kernels.vectors import (
    WIDTH,
    broadcast,
    broadcast_from,
    fma,
    inverse,
    lane,
    larger,
    largest_of_eight,
    load,
    store,
    store_first,
    totals_of_eight,
    transpose,
)

QUERIES = 8
"""Queries of a tile."""


@compiled
def attend_tiles(query_key_value, cu_seqlens, num_heads, context, quantized):
    """``context = softmax(Q K^T / sqrt(K)) V`` in each sequence and head (Vaswani et al. 2017, equation 1).

    Args:
        query_key_value: (T, 3 D) array or Product: of each token the queries of all heads, the keys, the values.
        cu_seqlens: (B + 1,) int32.
        context: (T, D) array.
        quantized: Quantized that takes the context too, or None.
    """
    hidden_size = context.shape[1]
    head_dim = hidden_size // num_heads
    width = 2 * whole_vectors((head_dim + 1) // 2)  # of the two vectors that are mixed at once
    longest = 0
    for sequence in range(len(cu_seqlens) - 1):
        longest = max(longest, cu_seqlens[sequence + 1] - cu_seqlens[sequence])
    stride = whole_vectors(longest)
    queries = np.zeros((QUERIES, width), np.float32)
    keys, values = np.zeros((stride, width), np.float32), np.zeros((stride, width), np.float32)
    keys_across = np.empty((width, stride), np.float32)  # keys, transposed
    beyond_end = np.empty(stride, np.float32)  # 0 for a key of the sequence, -inf after its last
    scores = np.empty((QUERIES, stride), np.float32)
    mixed = np.empty((QUERIES, width), np.float32)
    for sequence in range(len(cu_seqlens) - 1):
        start, end = np.intp(cu_seqlens[sequence]), np.intp(cu_seqlens[sequence + 1])
        length = end - start
        keys[length : whole_vectors(length)] = 0
        beyond_end[:length] = 0
        beyond_end[length : whole_vectors(length)] = -np.inf
        for head in range(num_heads):
            column = head * head_dim
            _take(query_key_value, start, hidden_size + column, length, head_dim, keys)
            _take(query_key_value, start, 2 * hidden_size + column, length, head_dim, values)
            for key in range(0, length, WIDTH):
                for c in range(0, head_dim, WIDTH):
                    transpose(keys, key * width + c, width, keys_across, c * stride + key, stride)
            for query in range(0, length, QUERIES):
                num_queries = min(QUERIES, length - query)
                _take(query_key_value, start + query, column, num_queries, head_dim, queries)
                _attend_tile(queries, keys_across, values, beyond_end, length, head_dim, scores, mixed)
                for row in range(num_queries):
                    place = (start + query + row) * hidden_size + column
                    for c in range(0, head_dim, WIDTH):
                        store_first(context, place + c, load(mixed, row * width + c), head_dim - c)
        if quantized is not None:
            quantize_rows(context, start, end, quantized)


@compiled
def _attend_tile(queries, keys_across, values, beyond_end, length, head_dim, scores, mixed):
    """One head of eight queries: ``mixed = softmax(queries keys^T / sqrt(head_dim)) values``."""
    width, stride = values.shape[1], scores.shape[1]
    scale = np.float32(np.log2(np.e) / np.sqrt(head_dim))  # e**x is 2**(log2(e) x)
    tops = _in_tile(broadcast(np.float32(-np.inf)))
    for key in range(0, length, WIDTH):
        tile = _in_tile(load(beyond_end, key))
        for c in range(head_dim):
            tile = _add_products(tile, queries, c, width, load(keys_across, c * stride + key))
        _store_tile(scores, key, stride, tile)
        tops = _larger_tile(tops, tile)
    shifts = _lanes(largest_of_eight(tops) * broadcast(-scale))
    sums = _in_tile(broadcast(np.float32(0)))
    for key in range(0, length, WIDTH):
        powers = _powers(scores, key, stride, broadcast(scale), shifts)
        _store_tile(scores, key, stride, powers)
        sums = _add_tile(sums, powers)
    shares = _lanes(inverse(totals_of_eight(sums)))
    for c in range(0, head_dim, 2 * WIDTH):
        left = right = _in_tile(broadcast(np.float32(0)))
        for key in range(length):
            left = _add_products(left, scores, key, stride, load(values, key * width + c))
            right = _add_products(right, scores, key, stride, load(values, key * width + c + WIDTH))
        _store_tile(mixed, c, width, _times_tile(left, shares))
        _store_tile(mixed, c + WIDTH, width, _times_tile(right, shares))


@compiled
def _take(rows, row, column, num_rows, head_dim, block):
    """Copy ``head_dim`` columns of some rows into a block whose own columns beyond them stay as they are."""
    width = block.shape[1]
    for r in range(num_rows):
        for c in range(0, head_dim, WIDTH):
            numbers = read(rows, row + r, column + c)
            store_first(block, r * width + c, numbers, head_dim - c)


# ---- tiles


@compiled
def _in_tile(v):
    return v, v, v, v, v, v, v, v


@compiled
def _add_products(tile, column, at, stride, row):
    """tile + column x row: eight numbers, ``stride`` apart in an array from ``at`` on, each times the vector."""
    return (
        fma(broadcast_from(column, at), row, tile[0]),
        fma(broadcast_from(column, at + stride), row, tile[1]),
        fma(broadcast_from(column, at + 2 * stride), row, tile[2]),
        fma(broadcast_from(column, at + 3 * stride), row, tile[3]),
        fma(broadcast_from(column, at + 4 * stride), row, tile[4]),
        fma(broadcast_from(column, at + 5 * stride), row, tile[5]),
        fma(broadcast_from(column, at + 6 * stride), row, tile[6]),
        fma(broadcast_from(column, at + 7 * stride), row, tile[7]),
    )


@compiled
def _powers(scores, at, stride, scale, shifts):
    """2**(score * scale + shift)."""
    return (
        exp2(fma(load(scores, at), scale, shifts[0])),
        exp2(fma(load(scores, at + stride), scale, shifts[1])),
        exp2(fma(load(scores, at + 2 * stride), scale, shifts[2])),
        exp2(fma(load(scores, at + 3 * stride), scale, shifts[3])),
        exp2(fma(load(scores, at + 4 * stride), scale, shifts[4])),
        exp2(fma(load(scores, at + 5 * stride), scale, shifts[5])),
        exp2(fma(load(scores, at + 6 * stride), scale, shifts[6])),
        exp2(fma(load(scores, at + 7 * stride), scale, shifts[7])),
    )


@compiled
def _store_tile(array, at, stride, tile):
    store(array, at, tile[0])
    store(array, at + stride, tile[1])
    store(array, at + 2 * stride, tile[2])
    store(array, at + 3 * stride, tile[3])
    store(array, at + 4 * stride, tile[4])
    store(array, at + 5 * stride, tile[5])
    store(array, at + 6 * stride, tile[6])
    store(array, at + 7 * stride, tile[7])


@compiled
def _add_tile(a, b):
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5], a[6] + b[6], a[7] + b[7]


@compiled
def _times_tile(a, b):
    return a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3], a[4] * b[4], a[5] * b[5], a[6] * b[6], a[7] * b[7]


@compiled
def _larger_tile(a, b):
    return (
        larger(a[0], b[0]),
        larger(a[1], b[1]),
        larger(a[2], b[2]),
        larger(a[3], b[3]),
        larger(a[4], b[4]),
        larger(a[5], b[5]),
        larger(a[6], b[6]),
        larger(a[7], b[7]),
    )


@compiled
def _lanes(v):
    """Results 0 to 7 of ``totals_of_eight`` or ``largest_of_eight``, each in a vector of its own."""
    return lane(v, 0), lane(v, 2), lane(v, 4), lane(v, 6), lane(v, 8), lane(v, 10), lane(v, 12), lane(v, 14)
