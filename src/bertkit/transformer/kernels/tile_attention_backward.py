"""The gradient of attention over a packed row, compiled; with recomputed probabilities.

Shape letters as in `tile_attention`. With P the probabilities, M the dropout mask and C = (M * P) V the context:
dV = (M * P)^T dC;  dP = M * (dC V^T);  dS = P * (dP - sum(P * dP)) / sqrt(K);  dQ = dS K;  dK = dS^T Q.
"""

import numpy as np

from bertkit.compiled import compiled
from bertkit.transformer.kernels.attention_mask import choose_head, key_range, mask_of
from bertkit.transformer.kernels.rows import read, whole_vectors
from bertkit.transformer.kernels.tile_attention import (
    copy_rotated,
    drop_tile,
    longest_of,
    padded_width,
    put,
    score_tile,
    sum_values,
    take,
    transpose_block,
)
from bertkit.transformer.kernels.tiles import (
    QUERIES,
    add_matrix,
    add_mixture,
    add_tile,
    eight_lanes,
    in_tile,
    load_tile,
    store_tile,
    times_tile,
)
from bertkit.transformer.kernels.vectors import WIDTH, broadcast, load, store, store_first, totals_of_eight


@compiled
def attend_tiles_backward(
    grad_context, grad_query, grad_key_value, query, key_value, cu_seqlens, cu_keys, num_heads, key_column, dropout,
    rotary, window, bias, grad_bias,
):  # fmt: skip
    """Fill ``grad_query`` and ``grad_key_value`` from ``grad_context`` (T, D), and add to ``grad_bias``; the others as
    `attend_tiles` had them."""
    hidden_size = grad_context.shape[1]
    head_dim = hidden_size // num_heads
    longest = longest_of(cu_keys)
    width, stride = padded_width(head_dim), whole_vectors(longest)
    queries, grads, mixed = (
        np.zeros((QUERIES, width), np.float32),
        np.zeros((QUERIES, width), np.float32),
        np.empty((QUERIES, width), np.float32),
    )
    keys, values = np.zeros((stride, width), np.float32), np.zeros((stride, width), np.float32)
    keys_across, values_across = np.empty((width, stride), np.float32), np.empty((width, stride), np.float32)
    grad_keys, grad_values = np.empty((stride, width), np.float32), np.empty((stride, width), np.float32)
    mask = mask_of(stride, window, bias)
    probs, dropped, grad_scores = (
        np.empty((QUERIES, stride), np.float32),
        np.empty((QUERIES, stride), np.float32),
        np.empty((QUERIES, stride), np.float32),
    )
    for sequence in range(len(cu_seqlens) - 1):
        start, end = np.intp(cu_seqlens[sequence]), np.intp(cu_seqlens[sequence + 1])
        first_key = np.intp(cu_keys[sequence])
        length, num_rows = np.intp(cu_keys[sequence + 1]) - first_key, end - start
        mask.beyond_end[:length] = 0
        mask.beyond_end[length : whole_vectors(length)] = -np.inf
        for head in range(num_heads):
            column = head * head_dim
            choose_head(mask, bias, head)
            copy_rotated(key_value, first_key, key_column + column, length, head_dim, rotary, keys)
            take(key_value, first_key, key_column + hidden_size + column, length, head_dim, values)
            keys[length : whole_vectors(length)] = 0
            values[length : whole_vectors(length)] = 0
            transpose_block(keys, length, head_dim, keys_across)
            transpose_block(values, length, head_dim, values_across)
            grad_keys[:length] = 0
            grad_values[:length] = 0
            for row in range(0, num_rows, QUERIES):
                num_queries = min(QUERIES, num_rows - row)
                first, last = key_range(mask, row, num_queries, length)
                copy_rotated(query, start + row, column, num_queries, head_dim, rotary, queries)
                take(grad_context, start + row, column, num_queries, head_dim, grads)
                queries[num_queries:] = 0  # missing rows add nothing to the sums over rows
                grads[num_queries:] = 0
                inverse_sums = score_tile(queries, keys_across, mask, row, num_queries, first, last, head_dim, probs)
                _scale_tile(probs, first, last, inverse_sums)
                for key in range(first, last, WIDTH):
                    tile = in_tile(broadcast(np.float32(0)))
                    tile = add_matrix(tile, grads, 0, 1, width, values_across, key, stride, head_dim)
                    store_tile(grad_scores, key, stride, tile)
                    store_tile(dropped, key, stride, load_tile(probs, key, stride))
                if dropout is not None:
                    number = ((start + row) * num_heads + head) * longest
                    drop_tile(dropped, first, last, dropout, number, num_heads * longest)
                    drop_tile(grad_scores, first, last, dropout, number, num_heads * longest)
                _through_softmax(probs, grad_scores, first, last, head_dim)
                if grad_bias is not None:
                    _add_by_distance(grad_scores, row, num_queries, length, grad_bias[head])
                sum_values(grad_scores, keys, first, last, head_dim, in_tile(broadcast(np.float32(1))), mixed)
                _put_turned_back(mixed, num_queries, head_dim, rotary, grad_query, start + row, column)
                _add_across(dropped, grads, first, last, head_dim, grad_values)
                _add_across(grad_scores, queries, first, last, head_dim, grad_keys)
            _put_turned_back(grad_keys, length, head_dim, rotary, grad_key_value, first_key, key_column + column)
            put(grad_values, length, head_dim, grad_key_value, first_key, key_column + hidden_size + column)


@compiled
def _scale_tile(weights, first, last, inverse_sums):
    stride = weights.shape[1]
    for key in range(first, last, WIDTH):
        store_tile(weights, key, stride, times_tile(load_tile(weights, key, stride), inverse_sums))


@compiled
def _through_softmax(probs, grads, first, last, head_dim):
    """``grads = probs * (grads - sum(probs * grads)) / sqrt(head_dim)``, row by row."""
    stride = probs.shape[1]
    sums = in_tile(broadcast(np.float32(0)))
    for key in range(first, last, WIDTH):
        sums = add_tile(sums, times_tile(load_tile(probs, key, stride), load_tile(grads, key, stride)))
    shifts = eight_lanes(totals_of_eight(sums) * broadcast(np.float32(-1)))
    scale = in_tile(broadcast(np.float32(1 / np.sqrt(head_dim))))
    for key in range(first, last, WIDTH):
        tile = times_tile(load_tile(probs, key, stride), add_tile(load_tile(grads, key, stride), shifts))
        store_tile(grads, key, stride, times_tile(tile, scale))


@compiled
def _add_by_distance(grads, query, num_queries, length, sums):
    """Add the gradients of (8, L) scores to those of the bias, in the layout of `attend_tiles`."""
    for row in range(num_queries):
        at = len(sums) // 2 - query - row
        for key in range(length):
            sums[at + key] += grads[row, key]


@compiled
def _add_across(weights, rows, first, last, head_dim, sums):
    """``sums += weights^T rows``: (8, L) and (8, K) to (L, K); keys first to last."""
    width, stride = rows.shape[1], weights.shape[1]
    for c in range(0, head_dim, WIDTH):
        tile = load_tile(rows, c, width)
        for key in range(first, last):
            offset = key * width + c
            store(sums, offset, add_mixture(load(sums, offset), weights, key, stride, tile))


@compiled
def _put_turned_back(block, num_rows, head_dim, rotary, rows, row, column):
    """`put` for gradients of `copy_rotated`: rotates by the opposite angles."""
    if rotary is None:
        put(block, num_rows, head_dim, rows, row, column)
    else:
        half, width = head_dim // 2, block.shape[1]
        for r in range(num_rows):
            offset = (row + r) * rows.shape[1] + column
            for c in range(0, half, WIDTH):
                cos, sin = read(rotary[0], row + r, c), read(rotary[1], row + r, c)
                left, right = load(block, r * width + c), load(block, r * width + half + c)
                store_first(rows, offset + c, left * cos + right * sin, half - c)
                store_first(rows, offset + half + c, right * cos - left * sin, half - c)
