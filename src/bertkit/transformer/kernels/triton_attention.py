"""Self-attention in compiled training on a GPU, as kernels in Triton, for sequences of up to a few hundred tokens.

FlashAttention 2 (Dao 2023) is made for long sequences: short ones leave most of its time to reading and writing. Here
queries, keys and values are read from the joined product, gradients are written as its gradient, a sequence of up to
128 tokens has its gradients from one pass, and dropout is a hash of row and column, computed again in the backward
pass. The sums are the same in every run: no atomic additions.

Shape letters: T total_tokens, H num_heads, K head_dim, N sequences. Imports triton, which comes with torch for CUDA.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 512
"""Tokens of the longest sequence for which these kernels are meant."""

_FORWARD, _BACKWARD = (128, 64, 8, 2), (64, 128, 8, 1)
"""Queries and keys of a tile, warps that compute it, and tiles in flight, in each pass."""
_LOG2_E = 1.4426950408889634


@triton.jit
def _hashed(bits):
    """Wellons 2018, "Prospecting for hash functions", lowbias32."""
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def _row_bits(key, rows, head, num_heads: tl.constexpr):
    """The random bits of each row (token and head) of the probabilities."""
    return _hashed((rows.to(tl.uint32) * num_heads + head.to(tl.uint32)) * 0x9E3779B9 + key)


@triton.jit
def _column_bits(key, columns):
    """The random bits of each column (position of a key in its sequence)."""
    return _hashed(columns.to(tl.uint32) * 0x85EBCA6B + (key ^ 0x5BD1E995))


@triton.jit
def _stays(row_bits, column_bits, limit):
    """Whether each probability is kept: a hash of the sum of the bits of its row and column."""
    bits = (row_bits + column_bits) * 0x7FEB352D
    return (bits ^ (bits >> 15)) * 0x846CA68B >= limit


@triton.jit
def _attend(
    joined, cu_seqlens, keys_of_dropout, context, log_sums, scale, limit, kept_scale,
    num_heads: tl.constexpr, head_dim: tl.constexpr, num_queries: tl.constexpr, num_keys: tl.constexpr,
    drops: tl.constexpr,
):  # fmt: skip
    """Context, and the logarithm (of base 2) of each row's sum of exponentials, of some queries of a sequence."""
    head, sequence = tl.program_id(1), tl.program_id(2)
    first = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - first
    start = tl.program_id(0) * num_queries
    if start < length:
        width: tl.constexpr = num_heads * head_dim
        queries, keys, columns = start + tl.arange(0, num_queries), tl.arange(0, num_keys), tl.arange(0, head_dim)
        rows = (first + queries).to(tl.int64)
        are_queries = (queries < length)[:, None]
        of_head = joined + head * head_dim + columns[None, :]
        query = tl.load(of_head + rows[:, None] * (3 * width), mask=are_queries, other=0.0)
        if drops:
            key_of_dropout = tl.load(keys_of_dropout).to(tl.uint32, bitcast=True)
            row_bits = _row_bits(key_of_dropout, rows, head, num_heads)[:, None]
        largest = tl.full((num_queries,), float("-inf"), tl.float32)
        total = tl.zeros((num_queries,), tl.float32)
        summed = tl.zeros((num_queries, head_dim), tl.float32)
        for start_keys in range(0, length, num_keys):
            positions = start_keys + keys
            are_keys = positions < length
            of_keys = of_head + (first + positions).to(tl.int64)[:, None] * (3 * width)
            key = tl.load(of_keys + width, mask=are_keys[:, None], other=0.0)
            value = tl.load(of_keys + 2 * width, mask=are_keys[:, None], other=0.0)
            scores = tl.where(are_keys[None, :], tl.dot(query, tl.trans(key)) * scale, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, 1))
            probs = tl.exp2(scores - new_largest[:, None])
            factor = tl.exp2(largest - new_largest)
            total = total * factor + tl.sum(probs, 1)
            if drops:
                probs = tl.where(_stays(row_bits, _column_bits(key_of_dropout, positions)[None, :], limit), probs, 0.0)
            summed = tl.dot(probs.to(value.dtype), value, summed * factor[:, None])
            largest = new_largest
        averaged = summed * (kept_scale / total)[:, None]
        tl.store(
            context + rows[:, None] * width + head * head_dim + columns[None, :], averaged.to(context.dtype.element_ty),
            mask=are_queries,
        )  # fmt: skip
        tl.store(log_sums + rows * num_heads + head, largest + tl.log2(total), mask=queries < length)


@triton.jit
def _attend_backward(
    joined, cu_seqlens, keys_of_dropout, context, log_sums, grad_context, grad_joined, query_sums, start_keys, scale,
    score_scale, limit, kept_scale,
    num_heads: tl.constexpr, head_dim: tl.constexpr, num_queries: tl.constexpr, num_keys: tl.constexpr,
    drops: tl.constexpr,
):  # fmt: skip
    """The gradients of some keys and values of a sequence, and their part of those of its queries.

    Tiles are transposed, keys by queries. Gradients of queries are summed over calls, one for each tile of keys in
    order; the last one writes them.
    """
    head, sequence = tl.program_id(0), tl.program_id(1)
    first = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - first
    if start_keys < length:
        width: tl.constexpr = num_heads * head_dim
        columns = head * head_dim + tl.arange(0, head_dim)[None, :]
        positions = start_keys + tl.arange(0, num_keys)
        are_keys = (positions < length)[:, None]
        of_keys = (first + positions).to(tl.int64)[:, None] * (3 * width) + columns
        key = tl.load(joined + of_keys + width, mask=are_keys, other=0.0)
        value = tl.load(joined + of_keys + 2 * width, mask=are_keys, other=0.0)
        grad_key = tl.zeros((num_keys, head_dim), tl.float32)
        grad_value = tl.zeros((num_keys, head_dim), tl.float32)
        if drops:
            key_of_dropout = tl.load(keys_of_dropout).to(tl.uint32, bitcast=True)
            column_bits = _column_bits(key_of_dropout, positions)[:, None]
        for start_queries in range(0, length, num_queries):
            queries = start_queries + tl.arange(0, num_queries)
            rows = (first + queries).to(tl.int64)
            are_queries = (queries < length)[:, None]
            of_queries = rows[:, None] * (3 * width) + columns
            of_context = rows[:, None] * width + columns
            query = tl.load(joined + of_queries, mask=are_queries, other=0.0)
            grad = tl.load(grad_context + of_context, mask=are_queries, other=0.0)
            output = tl.load(context + of_context, mask=are_queries, other=0.0)
            log_sum = tl.load(log_sums + rows * num_heads + head, mask=queries < length, other=float("inf"))
            mean = tl.sum(grad.to(tl.float32) * output.to(tl.float32), 1)  # of the gradients, weighted by probabilities
            probs = tl.exp2(tl.dot(key, tl.trans(query)) * scale - log_sum[None, :])
            probs = tl.where(are_keys, probs, 0.0)
            grad_probs = tl.dot(value, tl.trans(grad))
            kept = probs
            if drops:
                row_bits = _row_bits(key_of_dropout, rows, head, num_heads)[None, :]
                factors = tl.where(_stays(row_bits, column_bits, limit), kept_scale, 0.0)
                kept = probs * factors
                grad_probs = grad_probs * factors
            grad_value = tl.dot(kept.to(grad.dtype), grad, grad_value)
            grad_scores = (probs * (grad_probs - mean[None, :])).to(query.dtype)
            grad_key = tl.dot(grad_scores, query, grad_key)
            grad_query = tl.dot(tl.trans(grad_scores), key)
            if start_keys > 0:
                grad_query += tl.load(query_sums + of_context, mask=are_queries, other=0.0)
            if start_keys + num_keys < length:
                tl.store(query_sums + of_context, grad_query, mask=are_queries)
            else:
                grad_query *= score_scale
                tl.store(grad_joined + of_queries, grad_query.to(grad_joined.dtype.element_ty), mask=are_queries)
        grad_key *= score_scale
        tl.store(grad_joined + of_keys + width, grad_key.to(grad_joined.dtype.element_ty), mask=are_keys)
        tl.store(grad_joined + of_keys + 2 * width, grad_value.to(grad_joined.dtype.element_ty), mask=are_keys)


def triton_attention(
    joined: Tensor, cu_seqlens: Tensor, max_seqlen: int, dropout_prob: float = 0.0, key: Tensor | None = None
) -> Tensor:
    """`packed_attention` of joined queries, keys and values, (T, 3, H, K) contiguous, to (T, H, K).

    Args:
        cu_seqlens: (N + 1,) int32 on the device; the sequences cover all rows.
        dropout_prob: of the probabilities.
        key: int32, of no dimension, on the device: the mask is a function of it, as `stays` computes it; required for
            dropout.
    """
    return _attention(joined, cu_seqlens, key, max_seqlen, dropout_prob)[0]


@torch.library.custom_op("bertkit::triton_attention", mutates_args=())
def _attention(
    joined: Tensor, cu_seqlens: Tensor, key: Tensor | None, max_seqlen: int, dropout_prob: float
) -> tuple[Tensor, Tensor]:
    num_tokens, _, num_heads, head_dim = joined.shape
    context, log_sums = _outputs(joined)
    num_queries, num_keys, num_warps, num_stages = _FORWARD
    grid = (triton.cdiv(max_seqlen, num_queries), num_heads, len(cu_seqlens) - 1)
    _attend[grid](
        joined, cu_seqlens, cu_seqlens if key is None else key, context, log_sums, _LOG2_E / math.sqrt(head_dim),
        *_dropout(dropout_prob), num_heads, head_dim, num_queries, num_keys, dropout_prob > 0,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return context, log_sums


@torch.library.custom_op("bertkit::triton_attention_backward", mutates_args=())
def _gradients(
    joined: Tensor, cu_seqlens: Tensor, key: Tensor | None, context: Tensor, log_sums: Tensor, grad_context: Tensor,
    max_seqlen: int, dropout_prob: float,
) -> Tensor:  # fmt: skip
    num_tokens, _, num_heads, head_dim = joined.shape
    num_queries, num_keys, num_warps, num_stages = _BACKWARD
    grad_joined = torch.empty_like(joined)
    is_split = max_seqlen > num_keys
    sums = torch.empty(context.shape, dtype=torch.float32, device=joined.device) if is_split else log_sums
    for start_keys in range(0, max_seqlen, num_keys):
        _attend_backward[(num_heads, len(cu_seqlens) - 1)](
            joined, cu_seqlens, cu_seqlens if key is None else key, context, log_sums, grad_context.contiguous(),
            grad_joined, sums, start_keys, _LOG2_E / math.sqrt(head_dim), 1 / math.sqrt(head_dim),
            *_dropout(dropout_prob), num_heads, head_dim, num_queries, num_keys, dropout_prob > 0,
            num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
    return grad_joined


def _outputs(joined: Tensor) -> tuple[Tensor, Tensor]:
    num_tokens, _, num_heads, head_dim = joined.shape
    context = joined.new_empty(num_tokens, num_heads, head_dim)
    return context, torch.empty(num_tokens, num_heads, dtype=torch.float32, device=joined.device)


def _dropout(probability: float) -> tuple[int, float]:
    """The number of 2**32 below which hashes are dropped, and the factor of what is kept."""
    return min(int(probability * 2**32), 2**32 - 1), 1 / (1 - probability)


@_attention.register_fake
def _(joined: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _outputs(joined)


@_gradients.register_fake
def _(joined: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(joined)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    joined, cu_seqlens, key, ctx.max_seqlen, ctx.dropout_prob = inputs
    ctx.save_for_backward(joined, cu_seqlens, key, *output)


def _backward(ctx: Any, grad_context: Tensor, _: Any) -> tuple[Tensor, None, None, None, None]:
    joined, cu_seqlens, key, context, log_sums = ctx.saved_tensors
    gradients = _gradients(
        joined, cu_seqlens, key, context, log_sums, grad_context, ctx.max_seqlen, ctx.dropout_prob
    )
    return gradients, None, None, None, None


_attention.register_autograd(_backward, setup_context=_keep)
