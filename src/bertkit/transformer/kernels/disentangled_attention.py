"""DeBERTa's attention over a packed row, compiled, with the tiles of `tile_attention`.

For a query i and a key j the score is ``q_i k_j + q_i a_(i-j) + k_j b_(i-j)``; a and b are the keys and queries of
relative positions. Both further products cost as much as the first: eight queries need ``a`` of L + 7 distances only,
and so do eight keys ``b``. Shape letters as in `tile_attention`; R relative positions.
"""

import numpy as np

from bertkit.compiled import compiled
from bertkit.transformer.kernels.attention_mask import mask_of
from bertkit.transformer.kernels.rows import quantize_rows, whole_vectors
from bertkit.transformer.kernels.tile_attention import (
    exponentiate_tile,
    longest_of,
    padded_width,
    put,
    sum_values,
    take,
    transpose_block,
)
from bertkit.transformer.kernels.tiles import (
    QUERIES,
    add_matrix,
    add_tile,
    in_tile,
    larger_tile,
    load_tile,
    store_tile,
)
from bertkit.transformer.kernels.vectors import WIDTH, broadcast, load


@compiled
def attend_disentangled(
    query_key_value, cu_seqlens, num_heads, context, quantized, position_keys, position_queries, row_of_distance, scale
):
    """``context = softmax(scores / scale) V`` in each sequence and head (He et al. 2021, equations 2 to 4).

    Args:
        query_key_value, cu_seqlens, num_heads, context, quantized: as for `attend_tiles`.
        position_keys, position_queries: (R, D) float32.
        row_of_distance: (2 M - 1,) int64, row for a query t tokens after its key, at index M - 1 + t.
        scale: divisor of the scores.
    """
    hidden_size = context.shape[1]
    head_dim = hidden_size // num_heads
    longest = longest_of(cu_seqlens)
    width, stride = padded_width(head_dim), whole_vectors(longest)
    shifted = stride + WIDTH  # room for the distances of eight queries
    queries = np.zeros((QUERIES, width), np.float32)
    keys, values = np.zeros((stride + QUERIES, width), np.float32), np.zeros((stride, width), np.float32)
    keys_across = np.empty((width, stride), np.float32)  # keys, transposed
    by_key, by_query = (  # transposed: the first by rising distance of the key, the second of the query
        np.zeros((width, 2 * stride + 2 * WIDTH), np.float32),
        np.zeros((width, 2 * stride + 2 * WIDTH), np.float32),
    )
    near = np.zeros((QUERIES, shifted), np.float32)
    of_keys = np.zeros((stride + QUERIES, stride), np.float32)  # products of keys with positions, row = query
    mask = mask_of(stride, None, None)
    scores = np.empty((QUERIES, stride), np.float32)
    mixed = np.empty((QUERIES, width), np.float32)
    for head in range(num_heads):
        column = head * head_dim
        _spread(position_keys, row_of_distance, -1, longest, column, head_dim, by_key)
        _spread(position_queries, row_of_distance, 1, longest, column, head_dim, by_query)
        for sequence in range(len(cu_seqlens) - 1):
            start, end = np.intp(cu_seqlens[sequence]), np.intp(cu_seqlens[sequence + 1])
            length = end - start
            keys[length : whole_vectors(length) + QUERIES] = 0
            mask.beyond_end[:length] = 0
            mask.beyond_end[length : whole_vectors(length)] = -np.inf
            near[:] = 0  # what a longer sequence left beyond the end may not be a number
            of_keys[:length, length : whole_vectors(length)] = 0
            take(query_key_value, start, hidden_size + column, length, head_dim, keys)
            take(query_key_value, start, 2 * hidden_size + column, length, head_dim, values)
            transpose_block(keys, length, head_dim, keys_across)
            for key in range(0, length, QUERIES):
                _near_products(keys, key, by_query, longest - key, length, head_dim, near)
                for row in range(QUERIES):
                    if key + row < length:
                        for query in range(length):
                            of_keys[query, key + row] = near[row, query + QUERIES - 1 - row]
            for query in range(0, length, QUERIES):
                num_queries = min(QUERIES, length - query)
                take(query_key_value, start + query, column, num_queries, head_dim, queries)
                _near_products(queries, 0, by_key, longest - query, length, head_dim, near)
                inverse_sums = _weigh(queries, keys_across, mask, near, of_keys, query, length, head_dim, scale, scores)
                sum_values(scores, values, 0, length, head_dim, inverse_sums, mixed)
                put(mixed, num_queries, head_dim, context, start + query, column)
    if quantized is not None:
        quantize_rows(context, 0, np.intp(cu_seqlens[-1]), quantized)


@compiled
def _spread(rows, row_of_distance, sign, longest, column, head_dim, across):
    """Write the row of each distance d = 1 - longest, ... into a column of ``across``, transposed.

    Column longest - 1 + d + 8 has the row of a query ``sign * d`` tokens after its key.
    """
    middle = len(row_of_distance) // 2
    for d in range(1 - longest, longest):
        row = row_of_distance[middle + sign * d]
        for c in range(head_dim):
            across[c, longest - 1 + d + QUERIES] = rows[row, column + c]


@compiled
def _near_products(block, first, across, begin, length, head_dim, near):
    """Products of eight rows from ``first`` on with their relative positions: (8, K) and (K, ...) to (8, L + 7).

    Row r has that of the other token n in column n + 7 - r.

    Args:
        begin: column of ``across`` seven distances before that of token 0.
    """
    width, stride = block.shape[1], across.shape[1]
    for x in range(0, length + QUERIES - 1, WIDTH):
        tile = in_tile(broadcast(np.float32(0)))
        tile = add_matrix(tile, block, first * width, 1, width, across, begin + x, stride, head_dim)
        store_tile(near, x, near.shape[1], tile)


@compiled
def _weigh(queries, keys_across, mask, near, of_keys, query, length, head_dim, divisor, scores):
    """As `score_tile`, with the products of positions: eight rows of ``exp(score / divisor)``, up to a factor."""
    width, stride = queries.shape[1], scores.shape[1]
    scale = np.float32(np.log2(np.e)) / divisor
    tops = in_tile(broadcast(np.float32(-np.inf)))
    for key in range(0, length, WIDTH):
        tile = in_tile(load(mask.beyond_end, key))
        tile = add_matrix(tile, queries, 0, 1, width, keys_across, key, stride, head_dim)
        # Row r of `near` is shifted by 7 - r columns.
        tile = add_tile(tile, load_tile(near, key + QUERIES - 1, near.shape[1] - 1))
        tile = add_tile(tile, load_tile(of_keys, query * of_keys.shape[1] + key, of_keys.shape[1]))
        store_tile(scores, key, stride, tile)
        tops = larger_tile(tops, tile)
    return exponentiate_tile(scores, tops, mask, query, QUERIES, 0, length, scale, scores)
