"""Compiled attention with a key-value cache, for one step of generation.

Each row and head is computed separately: a row is bit-identical regardless of the other rows, and of whether its tokens
are added all at once or one by one. Keys are stored in blocks of sixteen, transposed, to compute sixteen scores at a
time from consecutive memory. Shape letters: N new tokens of all rows, D hidden_size, R rows, H num_heads, K head_dim, C
capacity in tokens, a multiple of 16.
"""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import compiled
from bertkit.transformer.kernels.rows import read
from bertkit.transformer.kernels.vector_functions import exp2
from bertkit.transformer.kernels.vectors import (
    WIDTH,
    broadcast,
    broadcast_from,
    fma,
    larger,
    largest,
    load,
    store,
    store_first,
    total,
)


class CachedAttention(NamedTuple):
    """The keys and values of a layer, and who attends to them in a step."""

    cu_new: np.ndarray  # (R + 1,) int64, cumulative number of new tokens
    lengths: np.ndarray  # (R,) int64, tokens of each row before the new ones; without ``is_causal`` all visible keys
    cache_rows: np.ndarray  # (R,) int64, cache row that each row attends to
    is_causal: bool  # a new token attends to itself and earlier ones
    keys: np.ndarray  # (G, H, C / 16, K, 16) float32 or bfloat16, G cache rows
    values: np.ndarray  # (G, H, C, K padded to whole vectors) in the same dtype


@compiled
def append_keys_values(rows, column, cu_new, lengths, keys, values):
    """Append keys and values of new tokens to the cache.

    Args:
        rows: (N, ...) array with the keys of all heads of each new token from ``column`` on, followed by the values.
        cu_new, lengths, keys, values: as in `CachedAttention`, of rows that are cache rows.
    """
    for row in range(len(lengths)):
        for head in range(keys.shape[1]):
            append_head(rows, column, row, head, cu_new, lengths, keys, values)


@compiled
def append_head(rows, column, row, head, cu_new, lengths, keys, values):
    """`append_keys_values` for one row and head."""
    num_heads, head_dim = keys.shape[1], keys.shape[3]
    line = np.empty(head_dim + WIDTH, keys.dtype)
    for token in range(cu_new[row], cu_new[row + 1]):
        at, first = lengths[row] + token - cu_new[row], column + head * head_dim
        for c in range(0, head_dim, WIDTH):
            store(line, c, read(rows, token, first + c))
        for c in range(head_dim):
            keys[row, head, at // WIDTH, c, at % WIDTH] = line[c]
        for c in range(0, head_dim, WIDTH):
            store(line, c, read(rows, token, first + num_heads * head_dim + c))
        for c in range(head_dim):
            values[row, head, at, c] = line[c]


@compiled
def _weighted_sum(factors, number, numbers, offset, stride):
    """The sum of ``number`` vectors, from ``offset`` on at a distance, each times a factor.

    Four partial sums, as an addition takes as long as four that do not wait for each other.
    """
    first = second = third = fourth = broadcast(np.float32(0))
    index = 0
    while index + 3 < number:
        at = offset + index * stride
        first = fma(broadcast_from(factors, index), load(numbers, at), first)
        second = fma(broadcast_from(factors, index + 1), load(numbers, at + stride), second)
        third = fma(broadcast_from(factors, index + 2), load(numbers, at + 2 * stride), third)
        fourth = fma(broadcast_from(factors, index + 3), load(numbers, at + 3 * stride), fourth)
        index += 4
    while index < number:
        first = fma(broadcast_from(factors, index), load(numbers, offset + index * stride), first)
        index += 1
    return (first + second) + (third + fourth)


@compiled
def attend_cached(rows, attention, context):
    """``context = softmax(Q K^T / sqrt(K)) V`` of new tokens whose keys and values are already cached.

    Args:
        rows: (N, ...) array with the queries of all heads in its first D columns.
        context: (N, D) array.
    """
    for row in range(len(attention.lengths)):
        for head in range(attention.keys.shape[1]):
            attend_head(rows, row, head, attention, context)


@compiled
def attend_head(rows, row, head, attention, context):
    """`attend_cached` for one row and head."""
    keys, values, cu_new = attention.keys, attention.values, attention.cu_new
    num_heads, head_dim, capacity, width = keys.shape[1], keys.shape[3], values.shape[2], values.shape[3]
    scale = np.float32(np.log2(np.e) / np.sqrt(head_dim))  # e**x is 2**(log2(e) x)
    query, weights = np.empty(width, np.float32), np.empty(capacity, np.float32)
    own = attention.cache_rows[row] * num_heads + head
    own_keys, own_values = own * capacity * head_dim, own * capacity
    for token in range(cu_new[row], cu_new[row + 1]):
        seen = attention.lengths[row] + (token - cu_new[row] + 1 if attention.is_causal else 0)
        for c in range(0, head_dim, WIDTH):
            store(query, c, read(rows, token, head * head_dim + c))
        top = broadcast(np.float32(-np.inf))
        for key in range(0, seen, WIDTH):
            store(weights, key, _weighted_sum(query, head_dim, keys, own_keys + key * head_dim, WIDTH))
            if key + WIDTH > seen:
                for beyond in range(seen, key + WIDTH):
                    weights[beyond] = -np.inf
            top = larger(top, load(weights, key))
        top = broadcast(largest(top))
        summed = broadcast(np.float32(0))
        for key in range(0, seen, WIDTH):
            power = exp2((load(weights, key) - top) * broadcast(scale))
            store(weights, key, power)
            if key + WIDTH > seen:
                for beyond in range(seen, key + WIDTH):
                    weights[beyond] = 0
            summed = summed + load(weights, key)
        share = broadcast(np.float32(1) / total(summed))
        for c in range(0, head_dim, WIDTH):
            mixed = _weighted_sum(weights, seen, values, own_values * width + c, width)
            offset = token * context.shape[1] + head * head_dim + c
            store_first(context, offset, mixed * share, head_dim - c)
