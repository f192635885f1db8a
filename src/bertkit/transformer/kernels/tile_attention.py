"""Attention over a packed row, compiled: eight queries against sixteen keys at a time.

Each sequence and head is computed separately, regardless of length and batch: no padding, no groups of equal length,
bit-identical results in any batch. Shape letters: T total_tokens, D hidden_size, H num_heads, K head_dim, L tokens of a
sequence.

In inference, where the processor adds two products of bfloat16 at once, queries, keys, values and probabilities are
rounded to bfloat16; sums and softmax are float32.
"""

from typing import Any

import numpy as np
from numba import types

from bertkit.compiled import compiled, overload, part
from bertkit.transformer.kernels.attention_mask import choose_head, key_range, mask_of, mask_scores, mask_weights
from bertkit.transformer.kernels.choices import multiplies_pairs_fast
from bertkit.transformer.kernels.rows import UnscaledProduct, quantize_rows, read, whole_vectors, width_of
from bertkit.transformer.kernels.tiles import (
    QUERIES,
    add_matrix,
    add_pair_products,
    add_tile,
    eight_lanes,
    in_tile,
    larger_tile,
    powers_of_2,
    store_tile,
    times_tile,
)
from bertkit.transformer.kernels.training_rows import apply_dropout
from bertkit.transformer.kernels.vectors import (
    WIDTH,
    broadcast,
    inverse,
    largest_of_eight,
    load,
    store,
    store_first,
    store_pairs,
    totals_of_eight,
    transpose,
)


@compiled
def attend_tiles(
    query, key_value, cu_seqlens, cu_keys, num_heads, key_column, context, quantized, dropout, rotary, window, bias
):
    """``context = softmax(Q K^T / sqrt(K)) V`` in each sequence and head (Vaswani et al. 2017, equation 1): of a packed
    row, or without rotary, window and bias with the keys and values of another.

    Args:
        query: (T, D) or wider array or UnscaledProduct: the queries of H heads of each token in its first D columns.
        key_value: the same, or of each token of the other row (S, ...): from ``key_column`` on the keys, and after them
            the values, of G heads, each for equally many neighboring query heads.
        cu_seqlens, cu_keys: (B + 1,) int32 of both rows.
        context: (T, D) array.
        quantized: Quantized, also receives the context; or None.
        dropout: Dropout of the attention probabilities, or None; element j of query i in head h has the number
            (i * H + h) * (longest L) + j.
        rotary: (T, K / 2) float32 cosines and sines for rotating queries and keys first, or None.
        window: Window of the keys that a query attends to, up to the longest sequence; or None: its whole sequence.
        bias: (H, N) float32 added to the products before they are scaled, at N // 2 + d for a key d tokens after its
            query, with a vector or more beyond the largest distance to each side; or None. Without a window.
    """
    attend_heads(
        query, key_value, cu_seqlens, cu_keys, num_heads, key_column, context, quantized, dropout, rotary, window, bias,
        (0, num_heads), None,
    )  # fmt: skip


@compiled
def attend(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias):
    """Self-attention in inference: `attend_tiles` without dropout, or `attend_pairs` where it is faster."""
    heads = 0, num_heads
    attend_either(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads)


def attend_either(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads):
    """`attend` in compiled functions, for heads from the first to before the second of ``heads``."""
    raise NotImplementedError


@overload(attend_either)
def _choose(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads):
    return _in_pairs if is_rounded(query_key_value) and multiplies_pairs_fast() else _in_tiles


def attend_rounded(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads):
    """`attend_either` of rows that are float32 and may be rounded, such as products of 8 bits."""
    raise NotImplementedError


@overload(attend_rounded)
def _choose_rounded(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads):
    return _in_pairs if multiplies_pairs_fast() else _in_tiles


def is_rounded(rows: Any) -> bool:
    """Whether a numba type of rows is not float32: bfloat16, or an UnscaledProduct of 8 bits."""
    return rows.dtype == types.uint16 if isinstance(rows, types.Array) else rows.instance_class is UnscaledProduct


def _in_pairs(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads):
    attend_heads(
        query_key_value, query_key_value, cu_seqlens, cu_seqlens, num_heads, context.shape[1], context, quantized,
        None, rotary, window, bias, heads, True,
    )  # fmt: skip


def _in_tiles(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads):
    attend_heads(
        query_key_value, query_key_value, cu_seqlens, cu_seqlens, num_heads, context.shape[1], context, quantized,
        None, rotary, window, bias, heads, None,
    )  # fmt: skip


@compiled
def attend_pairs(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias):
    """`attend_tiles` without dropout, in bfloat16. Needs AVX-512 BF16."""
    attend_heads(
        query_key_value, query_key_value, cu_seqlens, cu_seqlens, num_heads, context.shape[1], context, quantized,
        None, rotary, window, bias, (0, num_heads), True,
    )  # fmt: skip


@part
def attend_heads(
    query, key_value, cu_seqlens, cu_keys, num_heads, key_column, context, quantized, dropout, rotary, window, bias,
    heads, in_pairs,
):  # fmt: skip
    """`attend_tiles` for heads from the first to before the second of ``heads``; ``in_pairs`` True: without dropout, in
    bfloat16, two neighboring columns of queries and keys, and two neighboring keys, in the bits of one float32; or
    None."""
    hidden_size = context.shape[1]
    head_dim = hidden_size // num_heads
    key_width = (width_of(key_value) - key_column) // 2
    longest, repeats = longest_of(cu_keys), hidden_size // key_width
    width, stride = padded_width(head_dim), whole_vectors(longest)
    scores, mixed = np.empty((QUERIES, stride), np.float32), np.empty((QUERIES, width), np.float32)
    if in_pairs is None:
        queries, keys = np.zeros((QUERIES, width), np.float32), np.zeros((stride, width), np.float32)
        keys_across = np.empty((width, stride), np.float32)  # keys, transposed
        values, weights = np.zeros((stride, width), np.float32), scores
    else:
        queries, keys = np.zeros((QUERIES, width), np.uint16), np.zeros((stride, width), np.uint16)
        keys_across = np.empty((width // 2, stride), np.float32)
        values, weights = np.empty((stride // 2, width), np.float32), np.empty((QUERIES, stride), np.uint16)
    mask = mask_of(stride, window, bias)
    query_words, key_words, weight_words = queries.view(np.float32), keys.view(np.float32), weights.view(np.float32)
    for sequence in range(len(cu_seqlens) - 1):
        start, end = np.intp(cu_seqlens[sequence]), np.intp(cu_seqlens[sequence + 1])
        first_key = np.intp(cu_keys[sequence])
        length, num_rows = np.intp(cu_keys[sequence + 1]) - first_key, end - start
        keys[length : whole_vectors(length)] = 0
        mask.beyond_end[:length] = 0
        mask.beyond_end[length : whole_vectors(length)] = -np.inf
        for head in range(heads[0], heads[1]):
            column, own = head * head_dim, key_column + head // repeats * head_dim
            choose_head(mask, bias, head)
            if head % repeats == 0 or head == heads[0]:
                copy_rotated(key_value, first_key, own, length, head_dim, rotary, keys)
                if in_pairs is None:
                    transpose_block(keys, length, head_dim, keys_across)
                    take(key_value, first_key, own + key_width, length, head_dim, values)
                else:
                    transpose_block(key_words, length, (head_dim + 1) // 2, keys_across)
                    take_pairs(key_value, first_key, own + key_width, length, head_dim, values)
            for row in range(0, num_rows, QUERIES):
                num_queries = min(QUERIES, num_rows - row)
                first, last = key_range(mask, row, num_queries, length)
                copy_rotated(query, start + row, column, num_queries, head_dim, rotary, queries)
                if in_pairs is None:
                    inverse_sums = score_tile(
                        queries, keys_across, mask, row, num_queries, first, last, head_dim, scores
                    )
                else:
                    inverse_sums = score_pairs_of_keys(
                        query_words, keys_across, mask, row, num_queries, first, last, head_dim, scores, weights
                    )
                if dropout is not None:
                    number = ((start + row) * num_heads + head) * longest
                    drop_tile(scores, first, last, dropout, number, num_heads * longest)
                if in_pairs is None:
                    sum_values(scores, values, first, last, head_dim, inverse_sums, mixed)
                else:
                    sum_pairs_of_values(weight_words, values, first, last, head_dim, inverse_sums, mixed)
                put(mixed, num_queries, head_dim, context, start + row, column)
        if quantized is not None:
            quantize_rows(context, start, end, quantized)


@part
def score_tile(queries, keys_across, mask, query, num_queries, first, last, head_dim, scores):
    """Eight rows of ``exp(queries keys^T / sqrt(head_dim))``, up to a factor, into ``scores``; keys first to last.

    Returns 1 / their sums, the factors of the attention probabilities.
    """
    width, stride = queries.shape[1], scores.shape[1]
    tops = in_tile(broadcast(np.float32(-np.inf)))
    for key in range(first, last, WIDTH):
        tile = in_tile(load(mask.beyond_end, key))
        tile = mask_scores(tile, mask, query, num_queries, key)
        tile = add_matrix(tile, queries, 0, 1, width, keys_across, key, stride, head_dim)
        store_tile(scores, key, stride, tile)
        tops = larger_tile(tops, tile)
    scale = np.float32(np.log2(np.e) / np.sqrt(head_dim))  # e**x is 2**(log2(e) x)
    return exponentiate_tile(scores, tops, mask, query, num_queries, first, last, scale, scores)


@part
def exponentiate_tile(scores, tops, mask, query, num_queries, first, last, scale, weights):
    """``weights = 2**(scores * scale)``, up to a factor, of eight rows whose largest scores are in ``tops``.

    Returns 1 / their sums, before ``weights`` are rounded to their dtype.
    """
    stride = scores.shape[1]
    tops = eight_lanes(largest_of_eight(tops))
    sums = in_tile(broadcast(np.float32(0)))
    for key in range(first, last, WIDTH):
        powers = powers_of_2(scores, key, stride, broadcast(scale), tops)
        powers = mask_weights(powers, mask, query, num_queries, key)
        store_tile(weights, key, stride, powers)
        sums = add_tile(sums, powers)
    return eight_lanes(inverse(totals_of_eight(sums)))


@part
def sum_values(weights, values, first, last, head_dim, inverse_sums, mixed):
    """``mixed = inverse_sums * (weights values)``: (8, L) and (L, K) to (8, K); keys first to last."""
    width, stride = values.shape[1], weights.shape[1]
    for c in range(0, head_dim, WIDTH):
        tile = in_tile(broadcast(np.float32(0)))
        tile = add_matrix(tile, weights, first, 1, stride, values, first * width + c, width, last - first)
        store_tile(mixed, c, width, times_tile(tile, inverse_sums))


@part
def score_pairs_of_keys(queries, keys_across, mask, query, num_queries, first, last, head_dim, scores, weights):
    """`score_tile` into ``weights``, bfloat16; queries and keys_across have pairs in each number."""
    width, stride = queries.shape[1], scores.shape[1]
    tops = in_tile(broadcast(np.float32(-np.inf)))
    for key in range(first, last, WIDTH):
        tile = in_tile(load(mask.beyond_end, key))
        tile = mask_scores(tile, mask, query, num_queries, key)
        for c in range((head_dim + 1) // 2):
            tile = add_pair_products(tile, queries, c, width, load(keys_across, c * stride + key))
        store_tile(scores, key, stride, tile)
        tops = larger_tile(tops, tile)
    scale = np.float32(np.log2(np.e) / np.sqrt(head_dim))  # e**x is 2**(log2(e) x)
    return exponentiate_tile(scores, tops, mask, query, num_queries, first, last, scale, weights)


@part
def sum_pairs_of_values(weights, values, first, last, head_dim, inverse_sums, mixed):
    """`sum_values` of weights and values with pairs in each number."""
    width, stride = values.shape[1], weights.shape[1]
    for c in range(0, head_dim, 2 * WIDTH):
        left = right = in_tile(broadcast(np.float32(0)))
        for pair in range(first // 2, (last + 1) // 2):
            left = add_pair_products(left, weights, pair, stride, load(values, pair * width + c))
            right = add_pair_products(right, weights, pair, stride, load(values, pair * width + c + WIDTH))
        store_tile(mixed, c, width, times_tile(left, inverse_sums))
        store_tile(mixed, c + WIDTH, width, times_tile(right, inverse_sums))


@part
def drop_tile(weights, first, last, dropout, number, row_step):
    """Dropout of (8, L) weights in place, keys first to last; those of row r are numbered from
    ``number + r * row_step`` on."""
    stride = weights.shape[1]
    for row in range(QUERIES):
        for key in range(first, last, WIDTH):
            offset = row * stride + key
            store(weights, offset, apply_dropout(load(weights, offset), dropout, number + row * row_step + key))


@part
def padded_width(head_dim):
    """Columns of a block of queries, keys or values: whole pairs of vectors."""
    return (head_dim + 2 * WIDTH - 1) // (2 * WIDTH) * 2 * WIDTH


@part
def longest_of(cu_seqlens):
    """Tokens of the longest sequence."""
    longest = 0
    for sequence in range(len(cu_seqlens) - 1):
        longest = max(longest, cu_seqlens[sequence + 1] - cu_seqlens[sequence])
    return longest


@part
def transpose_block(block, length, head_dim, across):
    """``across = block^T``: (L, K) to (K, L)."""
    width, stride = block.shape[1], across.shape[1]
    for key in range(0, length, WIDTH):
        for c in range(0, head_dim, WIDTH):
            transpose(block, key * width + c, width, across, c * stride + key, stride)


@part
def take(rows, row, column, num_rows, head_dim, block):
    """Copy ``head_dim`` columns of some rows into a block, whose columns beyond them are unchanged."""
    width = block.shape[1]
    for r in range(num_rows):
        for c in range(0, head_dim, WIDTH):
            store_part(block, r * width + c, read(rows, row + r, column + c), head_dim - c)


@part
def take_pairs(rows, row, column, num_rows, head_dim, pairs):
    """Copy ``head_dim`` columns of some rows, two rows in the bits of one, and zeros after the last."""
    width = pairs.shape[1]
    for r in range(0, num_rows, 2):
        for c in range(0, head_dim, WIDTH):
            lower, upper = read(rows, row + r, column + c), broadcast(np.float32(0))
            if r + 1 < num_rows:
                upper = read(rows, row + r + 1, column + c)
            store_pairs(pairs, r // 2 * width + c, lower, upper)


@part
def store_part(array, index, vector, count):
    """`store_first`, faster where a whole vector is stored."""
    if count >= WIDTH:
        store(array, index, vector)
    else:
        store_first(array, index, vector, count)


@part
def put(block, num_rows, head_dim, rows, row, column):
    """Copy from a block to rows; the inverse of `take`."""
    width = block.shape[1]
    for r in range(num_rows):
        offset = (row + r) * rows.shape[1] + column
        for c in range(0, head_dim, WIDTH):
            store_part(rows, offset + c, load(block, r * width + c), head_dim - c)


@part
def copy_rotated(rows, row, column, num_rows, head_dim, rotary, block):
    """`take` with rotation by the angles of the rows, which are for the first half of the columns."""
    if rotary is None:
        take(rows, row, column, num_rows, head_dim, block)
    else:
        half, width = head_dim // 2, block.shape[1]
        for r in range(num_rows):
            for c in range(0, half, WIDTH):
                cos, sin = read(rotary[0], row + r, c), read(rotary[1], row + r, c)
                left, right = read(rows, row + r, column + c), read(rows, row + r, column + half + c)
                store_first(block, r * width + c, left * cos - right * sin, half - c)
                store_first(block, r * width + half + c, right * cos + left * sin, half - c)
