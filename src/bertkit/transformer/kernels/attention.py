"""Attention over packed sequences with torch's own operations.

Shape letters: T total_tokens, H num_heads, K head_dim, N sequences of one length, L their length, M the length of the
longest sequence that a bias by distance is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from bertkit.later import F, Tensor, nn, torch
from bertkit.transformer.recorder import LayerRecord
from bertkit.transformer.relative import PositionRows, position_scores
from bertkit.transformer.rotary import Rotary, rotate
from bertkit.transformer.window import Window, window_of


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seqlens: Sequence[int],
    dropout_prob: float = 0.0,
    window: int | Window | None = None,
    bias: Tensor | PositionRows | None = None,
    key_seqlens: Sequence[int] | None = None,
    attended: Tensor | None = None,
) -> Tensor:
    """``softmax(Q K^T / sqrt(K)) V`` within each sequence (Vaswani et al. 2017, equation 1).

    Neighboring sequences of equal length form one rectangular product without padding or copying, so a batch sorted by
    length takes one call per distinct length.

    Args:
        query, key, value: (T, H, K); keys and values of another packed row (S, H, K).
        seqlens: number of tokens of each sequence, summing to T.
        dropout_prob: dropout on the attention probabilities.
        window: number of tokens visible on each side, or before and after; None: the whole sequence.
        bias: (H, 2 M - 1) added to the scores, in column M - 1 + d for a key d tokens after its query (MPNet); or keys
            and queries of relative positions (DeBERTa); None: nothing is added (BERT). Not with a window.
        key_seqlens: number of tokens of each sequence of keys, summing to S; None: as the queries. No window, no bias.
        attended: (S,) bool, True for the keys that queries attend to; None: all.

    Returns:
        (T, H, K), zeros for a query that attends to no key.
    """
    parts = []
    for rows, key_rows, (num_sequences, length, key_length) in _equal_length_runs(seqlens, key_seqlens or seqlens):
        # (N * L, H, K) -> (N, H, L, K), a view
        q = query[rows].unflatten(0, (num_sequences, length)).transpose(1, 2)
        k, v = (x[key_rows].unflatten(0, (num_sequences, key_length)).transpose(1, 2) for x in (key, value))
        mask = None if window is None else _near(length, window, query.device)
        scale = None
        if isinstance(bias, PositionRows):
            mask, scale = position_scores(q, k, bias) / bias.scale, 1 / bias.scale
        elif bias is not None:
            mask = by_distance(bias, length)
        if attended is not None:
            shown = attended[key_rows].view(num_sequences, 1, 1, key_length)
            if mask is None or mask.dtype == torch.bool:
                mask = shown if mask is None else mask & shown
            else:
                mask = mask.masked_fill(~shown, -torch.inf)
        context = F.scaled_dot_product_attention(q, k, v, mask, dropout_prob, scale=scale)
        parts.append(context.transpose(1, 2).flatten(0, 1))  # back to (N * L, H, K)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def packed_self_attention(
    query_key_value: Tensor,
    seqlens: Sequence[int],
    num_heads: int,
    dropout_prob: float = 0.0,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | PositionRows | None = None,
    attended: Tensor | None = None,
) -> Tensor:
    """Attention of (T, 3 D) queries, keys and values of all heads, to the context (T, D).

    Args:
        rotary: angles for rotating queries and keys first; None: no rotation.
        attended: as in `packed_attention`.
    """
    query, key, value = query_key_value.unflatten(-1, (3, num_heads, -1)).unbind(1)  # (T, H, K) each
    if rotary is not None:
        query, key = rotate(query, rotary), rotate(key, rotary)
    return packed_attention(query, key, value, seqlens, dropout_prob, window, bias, attended=attended).flatten(-2)


def norm_heads(query_key_value: Tensor, query_norm: nn.RMSNorm, key_norm: nn.RMSNorm, num_heads: int) -> Tensor:
    """Queries and keys with a norm over the columns of each head: (T, (H + 2 G) K) to the same for H query heads and G
    key/value heads, computed in the dtype of the norms.

    Args:
        query_norm, key_norm: of K columns, without biases.
        num_heads: query heads.
    """
    heads = query_key_value.unflatten(-1, (-1, query_norm.normalized_shape[0]))  # (T, H + 2 G, K)
    query, key, value = heads.tensor_split((num_heads, (num_heads + heads.shape[-2]) // 2), dim=-2)
    parts = [norm(part.to(norm.weight.dtype)) for norm, part in ((query_norm, query), (key_norm, key))]
    return torch.cat([*(part.to(value.dtype) for part in parts), value], dim=-2).flatten(-2)


def repeated_heads(query_key_value: Tensor, num_heads: int, head_dim: int) -> Tensor:
    """Keys and values once for each query head that they serve: (T, (H + 2 G) K) to (T, 3 H K)."""
    heads = query_key_value.unflatten(-1, (-1, head_dim))
    repeats = 2 * num_heads // (heads.shape[-2] - num_heads)
    if repeats == 1:
        return query_key_value
    return torch.cat([heads[:, :num_heads], heads[:, num_heads:].repeat_interleave(repeats, 1)], 1).flatten(1)


def recorded_attention(
    record: LayerRecord | None,
    query_key_value: Tensor,
    seqlens: Sequence[int],
    num_heads: int,
    dropout_prob: float = 0.0,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | PositionRows | None = None,
    drop: Callable[[Tensor, float], Tensor] | None = None,
) -> Tensor:
    """`packed_self_attention` written out as matrix products and a softmax, with a record; also the reference for other
    kernels.

    Args:
        drop: dropout of the (H, L, L) probabilities; None: torch's.
    """
    query, key, value = query_key_value.unflatten(-1, (3, num_heads, -1)).unbind(1)  # (T, H, K) each
    if rotary is not None:
        query, key = rotate(query, rotary), rotate(key, rotary)
    contexts, all_scores, all_probs = [], [], []
    for q, k, v in zip(*(x.transpose(0, 1).split(list(seqlens), dim=1) for x in (query, key, value)), strict=True):
        if isinstance(bias, PositionRows):
            scores = (q @ k.transpose(1, 2) + position_scores(q[None], k[None], bias)[0]) / bias.scale
        else:
            scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5  # (H, L, L)
        if isinstance(bias, Tensor):
            scores = scores + by_distance(bias, q.shape[1])
        if window is not None:
            scores = scores.masked_fill(~_near(q.shape[1], window, q.device), -torch.inf)
        probs = scores.softmax(dim=-1)
        contexts.append((drop or F.dropout)(probs, dropout_prob) @ v)  # (H, L, K)
        all_scores.append(scores)
        all_probs.append(probs)
    if record is not None:
        record.query, record.key, record.value = query, key, value
        record.attention_scores, record.attention_probs = all_scores, all_probs
    return torch.cat(contexts, dim=1).transpose(0, 1).flatten(-2)  # (H, T, K) -> (T, D)


def packed_cross_attention(
    query: Tensor,
    key_value: Tensor,
    seqlens: Sequence[int],
    key_seqlens: Sequence[int],
    num_heads: int,
    dropout_prob: float = 0.0,
) -> Tensor:
    """Cross-attention of each sequence to its source in another packed row (Vaswani et al. 2017, section 3.2.3).

    Args:
        query: (T, D) queries of all heads.
        key_value: (S, 2 D) keys and values of all heads for each token of the sources.

    Returns:
        (T, D).
    """
    key, value = key_value.unflatten(-1, (2, num_heads, -1)).unbind(1)  # (S, H, K) each
    q = query.unflatten(-1, (num_heads, -1))
    return packed_attention(q, key, value, seqlens, dropout_prob, key_seqlens=key_seqlens).flatten(-2)


def recorded_cross_attention(
    record: LayerRecord,
    query: Tensor,
    key_value: Tensor,
    seqlens: Sequence[int],
    key_seqlens: Sequence[int],
    num_heads: int,
    dropout_prob: float = 0.0,
) -> Tensor:
    """`packed_cross_attention` in elementary operations, with a record."""
    key, value = key_value.unflatten(-1, (2, num_heads, -1)).transpose(0, 2).unbind(1)  # (H, S, K) each
    queries = query.unflatten(-1, (num_heads, -1)).transpose(0, 1).split(list(seqlens), dim=1)
    contexts, record.cross_attention_probs = [], []
    parts = (key.split(list(key_seqlens), dim=1), value.split(list(key_seqlens), dim=1))
    for q, k, v in zip(queries, *parts, strict=True):
        probs = (q @ k.transpose(1, 2) * q.shape[-1] ** -0.5).softmax(dim=-1)  # (H, L, L of keys)
        record.cross_attention_probs.append(probs)
        contexts.append(F.dropout(probs, dropout_prob) @ v)
    return torch.cat(contexts, dim=1).transpose(0, 1).flatten(-2)


def bias_of_length(bias: Tensor | PositionRows | None, length: int) -> Tensor | PositionRows | None:
    """The part of a bias that sequences of up to ``length`` tokens need: (H, 2 M - 1) to (H, 2 L - 1)."""
    if bias is None or isinstance(bias, PositionRows):
        return bias
    first = bias.shape[1] // 2 - length + 1
    return bias[:, first : first + 2 * length - 1]


def by_distance(bias: Tensor, length: int) -> Tensor:
    """(H, 2 M - 1) numbers by distance to (H, L, L), row = query, column = key."""
    positions = torch.arange(length, device=bias.device)
    return bias[:, bias.shape[1] // 2 + positions - positions[:, None]]


def _near(length: int, window: int | Window, device: torch.device) -> Tensor:
    """(L, L) bool, True for the keys (columns) that each query (row) attends to."""
    seen, positions = window_of(window), torch.arange(length, device=device)
    assert seen is not None
    distance = positions - positions[:, None]  # from query to key
    return (distance >= -seen.before) & (distance <= seen.after)


def _equal_length_runs(
    seqlens: Sequence[int], key_seqlens: Sequence[int]
) -> Iterator[tuple[slice, slice, tuple[int, int, int]]]:
    """Rows of the packed axes of queries and keys, and (N, L, key length), for each run of neighboring sequences of the
    same lengths.

    >>> [(rows.start, rows.stop, shape) for rows, _, shape in _equal_length_runs([4, 4, 3], [5, 5, 5])]
    [(0, 8, (2, 4, 5)), (8, 11, (1, 3, 5))]
    """
    start = key_start = 0
    for (length, key_length), run in groupby(zip(seqlens, key_seqlens, strict=True)):
        num_sequences = sum(1 for _ in run)
        end, key_end = start + num_sequences * length, key_start + num_sequences * key_length
        yield slice(start, end), slice(key_start, key_end), (num_sequences, length, key_length)
        start, key_start = end, key_end
