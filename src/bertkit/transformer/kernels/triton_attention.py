"""Self-attention on a GPU: FlashAttention 2 (Dao 2023) in Triton, in compiled training for short sequences, and in
inference where a text has the same bits in any batch.

Queries, keys and values are read from the joined product and gradients written as its gradient, without copies.
Dropout is one multiplication for each probability. Nothing is added in an order that may vary, so gradients are
bit-identical in every run. Tiles are counted from the first token of a sequence, and one program adds up a row.

Shape letters: T total_tokens, H num_heads, G key/value heads, K head_dim, N sequences, M as in `packed_attention`.
Needs triton, which comes with torch for CUDA.
"""

import math
from typing import Any

import torch
import triton  # pyrefly: ignore  # comes with torch for CUDA
import triton.language as tl  # pyrefly: ignore
from torch import Tensor

from bertkit.transformer.kernels.training_rows import drop_limit
from bertkit.transformer.window import EVERY_TOKEN, Window

_FORWARD, _KEY_TILES, _QUERY_TILES = (64, 64, 4, 3), (32, 128, 4, 2), (64, 64, 4, 3)
"""Queries and keys of a tile, warps that compute it, and tiles in flight, in each pass."""
_LOG2_E = 1.4426950408889634


@triton.jit
def _place(num_tiles, num_heads: tl.constexpr):
    """The tile, the head and the sequence of this program; neighbors share a head."""
    number = tl.program_id(0)
    return number % num_tiles, number // num_tiles % num_heads, number // (num_tiles * num_heads)


@triton.jit
def _hashed(bits):
    """Wellons 2018, "Prospecting for hash functions", lowbias32."""
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def _row_bits(seed, rows):
    """A random odd number for each row (token and head) of the probabilities."""
    return _hashed(rows.to(tl.uint32) * 0x9E3779B9 + seed) | 1


@triton.jit
def _column_bits(seed, columns):
    """A random number for each column (position of a key in its sequence)."""
    return _hashed(columns.to(tl.uint32) * 0x85EBCA6B + (seed ^ 0x5BD1E995))


@triton.jit
def _stays(row_bits, column_bits, limit):
    """Whether each probability is kept: the hash of its column by multiplication with its row's number (Dietzfelbinger
    et al. 1997, "A reliable randomized algorithm for the closest-pair problem", section 2)."""
    return row_bits * column_bits >= limit


@triton.jit(do_not_specialize=["num_tiles", "longest"])
def _attend(
    joined, cu_seqlens, dropout_key, bias, context, log_sums, num_tiles, longest, scale, limit, kept_scale,
    num_heads: tl.constexpr, num_key_heads: tl.constexpr, head_dim: tl.constexpr, num_columns: tl.constexpr,
    before: tl.constexpr, after: tl.constexpr, num_queries: tl.constexpr, num_keys: tl.constexpr,
    drops: tl.constexpr, has_bias: tl.constexpr,
):  # fmt: skip
    """Context, and the logarithm (of base 2) of each row's sum of exponentials, of some queries of a sequence.

    Args:
        bias: (H, 2 longest - 1) float32 by distance, added to the products before these are scaled.
        num_columns: head_dim or the next power of two.
        before, after: visible tokens on each side, -1 for all.
    """
    tile, head, sequence = _place(num_tiles, num_heads)
    first = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - first
    start = tile * num_queries
    if start < length:
        width: tl.constexpr = num_heads * head_dim
        row_width: tl.constexpr = width + 2 * num_key_heads * head_dim
        queries, keys, columns = start + tl.arange(0, num_queries), tl.arange(0, num_keys), tl.arange(0, num_columns)
        are_queries = (queries < length)[:, None]
        are_columns = columns[None, :] < head_dim
        joined += first.to(tl.int64) * row_width
        of_head = head * head_dim + columns[None, :]
        of_key_head = width + head // (num_heads // num_key_heads) * head_dim + columns[None, :]
        query = tl.load(
            joined + (queries[:, None] * row_width + of_head),
            mask=are_queries & are_columns if num_columns > head_dim else are_queries, other=0.0,
        )  # fmt: skip
        rows = (first + queries) * num_heads + head
        seed = tl.load(dropout_key).to(tl.uint32, bitcast=True)
        row_bits = _row_bits(seed, rows)[:, None]
        largest = tl.full((num_queries,), float("-inf"), tl.float32)
        total = tl.zeros((num_queries,), tl.float32)
        summed = tl.zeros((num_queries, num_columns), tl.float32)
        first_key, end_key = 0, length
        if before >= 0:
            first_key = tl.maximum(start - before, 0) // num_keys * num_keys
        if after >= 0:
            end_key = tl.minimum(start + num_queries + after, length)
        for start_keys in range(first_key, end_key, num_keys):
            positions = start_keys + keys
            are_keys = positions < length
            of_keys = positions[:, None] * row_width + of_key_head
            are_read = are_keys[:, None] & are_columns if num_columns > head_dim else are_keys[:, None]
            key = tl.load(joined + of_keys, mask=are_read, other=0.0)
            value = tl.load(joined + num_key_heads * head_dim + of_keys, mask=are_read, other=0.0)
            distances = positions[None, :] - queries[:, None]
            are_seen = are_keys[None, :]
            if before >= 0:
                are_seen = are_seen & (distances >= -before)
            if after >= 0:
                are_seen = are_seen & (distances <= after)
            scores = tl.dot(query, tl.trans(key), input_precision="ieee")
            if has_bias:
                of_bias = head * (2 * longest - 1) + longest - 1 + distances
                scores += tl.load(bias + of_bias, mask=are_seen & are_queries, other=0.0).to(tl.float32)
            scores = tl.where(are_seen, scores, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, 1) * scale)
            if before >= 0 or after >= 0:  # a query may see nothing of the first tiles
                shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
            else:
                shift = new_largest
            probs = tl.exp2(scores * scale - shift[:, None])
            factor = tl.exp2(largest - shift)
            total = total * factor + tl.sum(probs, 1)
            if drops:
                probs = tl.where(_stays(row_bits, _column_bits(seed, positions)[None, :], limit), probs, 0.0)
            summed = tl.dot(probs.to(value.dtype), value, summed * factor[:, None], input_precision="ieee")
            largest = new_largest
        averaged = summed * (kept_scale / total)[:, None]
        context += first.to(tl.int64) * width
        tl.store(
            context + (queries[:, None] * width + of_head), averaged.to(context.dtype.element_ty),
            mask=are_queries & are_columns if num_columns > head_dim else are_queries,
        )  # fmt: skip
        tl.store(log_sums + rows, largest + tl.log2(total), mask=queries < length)


@triton.jit
def _average_gradients(context, grad_context, averages, num_rows, head_dim: tl.constexpr, size: tl.constexpr):
    """The gradients of the probabilities of each row (token and head), averaged with these probabilities."""
    rows = tl.program_id(0) * size + tl.arange(0, size)
    numbers = rows.to(tl.int64)[:, None] * head_dim + tl.arange(0, head_dim)[None, :]
    are_rows = rows < num_rows
    output = tl.load(context + numbers, mask=are_rows[:, None], other=0.0).to(tl.float32)
    grad = tl.load(grad_context + numbers, mask=are_rows[:, None], other=0.0).to(tl.float32)
    tl.store(averages + rows, tl.sum(output * grad, 1), mask=are_rows)


@triton.jit
def _key_gradients(
    joined, cu_seqlens, dropout_key, log_sums, averages, grad_context, grad_joined, num_tiles, scale, score_scale,
    limit, kept_scale,
    num_heads: tl.constexpr, head_dim: tl.constexpr, num_queries: tl.constexpr, num_keys: tl.constexpr,
    drops: tl.constexpr,
):  # fmt: skip
    """The gradients of some keys and values of a sequence; tiles are transposed, keys by queries."""
    tile, head, sequence = _place(num_tiles, num_heads)
    first = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - first
    start_keys = tile * num_keys
    if start_keys < length:
        width: tl.constexpr = num_heads * head_dim
        joined += first.to(tl.int64) * (3 * width)
        grad_joined += first.to(tl.int64) * (3 * width)
        grad_context += first.to(tl.int64) * width
        columns = head * head_dim + tl.arange(0, head_dim)[None, :]
        keys = start_keys + tl.arange(0, num_keys)
        are_keys = (keys < length)[:, None]
        of_keys = keys[:, None] * (3 * width) + columns
        key = tl.load(joined + width + of_keys, mask=are_keys, other=0.0)
        value = tl.load(joined + 2 * width + of_keys, mask=are_keys, other=0.0)
        grad_key = tl.zeros((num_keys, head_dim), tl.float32)
        grad_value = tl.zeros((num_keys, head_dim), tl.float32)
        seed = tl.load(dropout_key).to(tl.uint32, bitcast=True)
        column_bits = _column_bits(seed, keys)[:, None]
        for start_queries in range(0, length, num_queries):
            queries = start_queries + tl.arange(0, num_queries)
            are_queries = queries < length
            rows = (first + queries) * num_heads + head
            query = tl.load(joined + (queries[:, None] * (3 * width) + columns), mask=are_queries[:, None], other=0.0)
            grad = tl.load(grad_context + (queries[:, None] * width + columns), mask=are_queries[:, None], other=0.0)
            log_sum = tl.load(log_sums + rows, mask=are_queries, other=float("inf"))  # no probabilities
            average = tl.load(averages + rows, mask=are_queries, other=0.0)
            probs = tl.exp2(tl.dot(key, tl.trans(query)) * scale - log_sum[None, :])
            grad_probs = tl.dot(value, tl.trans(grad))
            kept = probs
            if drops:
                stays = _stays(_row_bits(seed, rows)[None, :], column_bits, limit)
                kept = tl.where(stays, probs, 0.0)
                grad_probs = tl.where(stays, grad_probs * kept_scale, 0.0)
            grad_value = tl.dot(kept.to(grad.dtype), grad, grad_value)
            grad_scores = probs * (grad_probs - average[None, :])
            grad_key = tl.dot(grad_scores.to(query.dtype), query, grad_key)
        grad_key *= score_scale
        grad_value *= kept_scale
        tl.store(grad_joined + width + of_keys, grad_key.to(grad_joined.dtype.element_ty), mask=are_keys)
        tl.store(grad_joined + 2 * width + of_keys, grad_value.to(grad_joined.dtype.element_ty), mask=are_keys)


@triton.jit
def _query_gradients(
    joined, cu_seqlens, dropout_key, log_sums, averages, grad_context, grad_joined, num_tiles, scale, score_scale,
    limit, kept_scale,
    num_heads: tl.constexpr, head_dim: tl.constexpr, num_queries: tl.constexpr, num_keys: tl.constexpr,
    drops: tl.constexpr,
):  # fmt: skip
    """The gradients of some queries of a sequence."""
    tile, head, sequence = _place(num_tiles, num_heads)
    first = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - first
    start_queries = tile * num_queries
    if start_queries < length:
        width: tl.constexpr = num_heads * head_dim
        joined += first.to(tl.int64) * (3 * width)
        grad_joined += first.to(tl.int64) * (3 * width)
        grad_context += first.to(tl.int64) * width
        columns = head * head_dim + tl.arange(0, head_dim)[None, :]
        queries = start_queries + tl.arange(0, num_queries)
        are_queries = queries < length
        rows = (first + queries) * num_heads + head
        of_queries = queries[:, None] * (3 * width) + columns
        query = tl.load(joined + of_queries, mask=are_queries[:, None], other=0.0)
        grad = tl.load(grad_context + (queries[:, None] * width + columns), mask=are_queries[:, None], other=0.0)
        log_sum = tl.load(log_sums + rows, mask=are_queries, other=float("inf"))[:, None]
        average = tl.load(averages + rows, mask=are_queries, other=0.0)[:, None]
        grad_query = tl.zeros((num_queries, head_dim), tl.float32)
        seed = tl.load(dropout_key).to(tl.uint32, bitcast=True)
        row_bits = _row_bits(seed, rows)[:, None]
        for start_keys in range(0, length, num_keys):
            keys = start_keys + tl.arange(0, num_keys)
            are_keys = keys < length
            of_keys = keys[:, None] * (3 * width) + columns
            key = tl.load(joined + width + of_keys, mask=are_keys[:, None], other=0.0)
            value = tl.load(joined + 2 * width + of_keys, mask=are_keys[:, None], other=0.0)
            probs = tl.exp2(tl.dot(query, tl.trans(key)) * scale - log_sum)
            probs = tl.where(are_keys[None, :], probs, 0.0)  # infinite where all scores are far below 0
            grad_probs = tl.dot(grad, tl.trans(value))
            if drops:
                stays = _stays(row_bits, _column_bits(seed, keys)[None, :], limit)
                grad_probs = tl.where(stays, grad_probs * kept_scale, 0.0)
            grad_query = tl.dot((probs * (grad_probs - average)).to(key.dtype), key, grad_query)
        grad_query *= score_scale
        tl.store(grad_joined + of_queries, grad_query.to(grad_joined.dtype.element_ty), mask=are_queries[:, None])


def invariant_attention(
    query_key_value: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    num_heads: int,
    head_dim: int,
    window: Window | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`packed_attention` without gradients, with the same bits of a sequence in any batch: (T, (H + 2 G) K) to
    (T, H K).

    Args:
        query_key_value: of bfloat16, float16 or float32; H queries, G keys and G values of each token.
        cu_seqlens: (N + 1,) int32 on the device; rows after the last sequence are undefined.
        bias: (H, 2 M - 1).
    """
    return _attended(
        query_key_value.contiguous(), cu_seqlens, max_seqlen, num_heads, head_dim, window=window, bias=bias
    )[0].flatten(1)


def triton_attention(
    joined: Tensor, cu_seqlens: Tensor, max_seqlen: int, dropout_prob: float = 0.0, key: Tensor | None = None
) -> Tensor:
    """`packed_attention` of joined queries, keys and values, (T, 3, H, K) contiguous, to (T, H, K).

    Args:
        cu_seqlens: (N + 1,) int32 on the device; the sequences cover all rows.
        dropout_prob: of the probabilities.
        key: int32, of no dimension, on the device; required for dropout, whose mask is a function of it.
    """
    return _attention(joined, cu_seqlens, key, max_seqlen, dropout_prob)[0]


@torch.library.custom_op("bertkit::triton_attention", mutates_args=())
def _attention(
    joined: Tensor, cu_seqlens: Tensor, key: Tensor | None, max_seqlen: int, dropout_prob: float
) -> tuple[Tensor, Tensor]:
    num_heads, head_dim = joined.shape[2:]
    return _attended(joined.flatten(1), cu_seqlens, max_seqlen, num_heads, head_dim, dropout_prob, key)


@torch.library.custom_op("bertkit::triton_attention_backward", mutates_args=())
def _gradients(
    joined: Tensor, cu_seqlens: Tensor, key: Tensor | None, context: Tensor, log_sums: Tensor, grad_context: Tensor,
    max_seqlen: int, dropout_prob: float,
) -> Tensor:  # fmt: skip
    num_heads, head_dim = joined.shape[2:]
    grad_context, averages = grad_context.contiguous(), torch.empty_like(log_sums)
    _average_gradients[(triton.cdiv(averages.numel(), 128),)](
        context, grad_context, averages, averages.numel(), head_dim, 128
    )
    grad_joined = torch.empty_like(joined)
    for kernel, (num_queries, num_keys, num_warps, num_stages), size in (
        (_key_gradients, _KEY_TILES, _KEY_TILES[1]), (_query_gradients, _QUERY_TILES, _QUERY_TILES[0]),
    ):  # fmt: skip
        num_tiles = triton.cdiv(max_seqlen, size)
        kernel[(num_tiles * num_heads * (len(cu_seqlens) - 1),)](
            joined, cu_seqlens, cu_seqlens if key is None else key, log_sums, averages, grad_context, grad_joined,
            num_tiles, _LOG2_E / math.sqrt(head_dim), 1 / math.sqrt(head_dim), *_dropout(dropout_prob), num_heads,
            head_dim, num_queries, num_keys, dropout_prob > 0, num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
    return grad_joined


def _attended(
    joined: Tensor, cu_seqlens: Tensor, max_seqlen: int, num_heads: int, head_dim: int, dropout_prob: float = 0.0,
    key: Tensor | None = None, window: Window | None = None, bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The context, (T, H, K), and the logarithms of the sums, (T, H)."""
    context, log_sums = _outputs(joined, num_heads, head_dim)
    num_key_heads = (joined.shape[1] // head_dim - num_heads) // 2
    num_queries, num_keys, num_warps, num_stages = forward_tiles(head_dim, joined.dtype)
    num_tiles, longest = triton.cdiv(max_seqlen, num_queries), 0 if bias is None else bias.shape[1] // 2 + 1
    seen = (-1, -1) if window is None else [-1 if reach == EVERY_TOKEN else reach for reach in window]
    if bias is not None:
        bias = (bias.float() * math.sqrt(head_dim)).contiguous()
    _attend[(num_tiles * num_heads * (len(cu_seqlens) - 1),)](
        joined, cu_seqlens, cu_seqlens if key is None else key, log_sums if bias is None else bias, context, log_sums,
        num_tiles, longest, _LOG2_E / math.sqrt(head_dim), *_dropout(dropout_prob), num_heads, num_key_heads, head_dim,
        max(16, triton.next_power_of_2(head_dim)), *seen, num_queries, num_keys, dropout_prob > 0, bias is not None,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return context, log_sums


def forward_tiles(head_dim: int, dtype: torch.dtype) -> tuple[int, int, int, int]:
    """As `_FORWARD`, for any width of heads and dtype, so that a tile fits in a program's memory; not by the batch:
    other tiles would add in another order."""
    if dtype == torch.float32:
        return (32, 32, 4, 2) if head_dim <= 128 else (32, 16, 4, 2)
    return _FORWARD if head_dim <= 64 else (64, 32, 4, 2)


def _outputs(joined: Tensor, num_heads: int, head_dim: int) -> tuple[Tensor, Tensor]:
    context = joined.new_empty(len(joined), num_heads, head_dim)
    return context, torch.empty(len(joined), num_heads, dtype=torch.float32, device=joined.device)


def _dropout(probability: float) -> tuple[int, float]:
    """The number of 2**32 below which hashes are dropped, and the factor of what is kept."""
    return drop_limit(probability), 1 / (1 - probability)


@_attention.register_fake
def _(joined: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _outputs(joined, *joined.shape[2:])


@_gradients.register_fake
def _(joined: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(joined)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    joined, cu_seqlens, key, ctx.max_seqlen, ctx.dropout_prob = inputs
    ctx.save_for_backward(joined, cu_seqlens, key, *output)


def _backward(ctx: Any, grad_context: Tensor, _: Any) -> tuple[Tensor, None, None, None, None]:
    joined, cu_seqlens, key, context, log_sums = ctx.saved_tensors
    gradients = _gradients(joined, cu_seqlens, key, context, log_sums, grad_context, ctx.max_seqlen, ctx.dropout_prob)
    return gradients, None, None, None, None


_attention.register_autograd(_backward, setup_context=_keep)
