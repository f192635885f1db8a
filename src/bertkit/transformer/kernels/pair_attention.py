"""Tile attention for inference with products of bfloat16 numbers, where the processor adds two of them at once.

Queries, keys, values and attention probabilities are rounded to bfloat16, sums and softmax are float32. Two neighboring
numbers of a query or key, and the values of two neighboring keys, lie in the bits of one float32.
"""

from typing import Any

import numpy as np
from numba import types

from bertkit.compiled import compiled, overload, part
from bertkit.transformer.kernels.attention_mask import choose_head, key_range, mask_of, mask_scores
from bertkit.transformer.kernels.choices import multiplies_pairs_fast
from bertkit.transformer.kernels.rows import UnscaledProduct, quantize_rows, read, whole_vectors, width_of
from bertkit.transformer.kernels.tile_attention import (
    attend_heads,
    copy_rotated,
    exponentiate_tile,
    longest_of,
    padded_width,
    put,
    transpose_block,
)
from bertkit.transformer.kernels.tiles import (
    QUERIES,
    add_pair_products,
    in_tile,
    larger_tile,
    store_tile,
    times_tile,
)
from bertkit.transformer.kernels.vectors import WIDTH, broadcast, load, store_pairs


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
    attend_heads_in_pairs(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads)


def _in_tiles(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads):
    attend_heads(
        query_key_value, query_key_value, cu_seqlens, cu_seqlens, num_heads, context.shape[1], context, quantized,
        None, rotary, window, bias, heads,
    )  # fmt: skip


@compiled
def attend_pairs(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias):
    """`attend_tiles` without dropout, in bfloat16. Needs AVX-512 BF16."""
    heads = 0, num_heads
    attend_heads_in_pairs(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads)


@part
def attend_heads_in_pairs(query_key_value, cu_seqlens, num_heads, context, quantized, rotary, window, bias, heads):
    """`attend_pairs` for heads from the first to before the second of ``heads``."""
    hidden_size = context.shape[1]
    head_dim = hidden_size // num_heads
    key_width = (width_of(query_key_value) - hidden_size) // 2
    longest, repeats = longest_of(cu_seqlens), hidden_size // key_width
    width, stride = padded_width(head_dim), whole_vectors(longest)
    queries, keys = np.zeros((QUERIES, width), np.uint16), np.zeros((stride, width), np.uint16)
    keys_across = np.empty((width // 2, stride), np.float32)  # keys, transposed
    values = np.empty((stride // 2, width), np.float32)
    mask = mask_of(stride, window, bias)
    scores, weights = np.empty((QUERIES, stride), np.float32), np.empty((QUERIES, stride), np.uint16)
    mixed = np.empty((QUERIES, width), np.float32)
    query_pairs, key_pairs, weight_pairs = queries.view(np.float32), keys.view(np.float32), weights.view(np.float32)
    for sequence in range(len(cu_seqlens) - 1):
        start, end = np.intp(cu_seqlens[sequence]), np.intp(cu_seqlens[sequence + 1])
        length = end - start
        keys[length : whole_vectors(length)] = 0
        mask.beyond_end[:length] = 0
        mask.beyond_end[length : whole_vectors(length)] = -np.inf
        for head in range(heads[0], heads[1]):
            column, own = head * head_dim, hidden_size + head // repeats * head_dim
            choose_head(mask, bias, head)
            if head % repeats == 0 or head == heads[0]:
                copy_rotated(query_key_value, start, own, length, head_dim, rotary, keys)
                transpose_block(key_pairs, length, (head_dim + 1) // 2, keys_across)
                take_pairs(query_key_value, start, own + key_width, length, head_dim, values)
            for row in range(0, length, QUERIES):
                num_queries = min(QUERIES, length - row)
                first, last = key_range(mask, row, num_queries, length)
                copy_rotated(query_key_value, start + row, column, num_queries, head_dim, rotary, queries)
                inverse_sums = score_pairs_of_keys(
                    query_pairs, keys_across, mask, row, num_queries, first, last, head_dim, scores, weights
                )
                sum_pairs_of_values(weight_pairs, values, first, last, head_dim, inverse_sums, mixed)
                put(mixed, num_queries, head_dim, context, start + row, column)
        if quantized is not None:
            quantize_rows(context, start, end, quantized)


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
