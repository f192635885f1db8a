"""Attention written out in torch's own operations, with its probabilities."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bertkit.transformer.kernels.attention import recorded_attention
from bertkit.transformer.recorder import LayerRecord


def attention_with_probs(
    query: Tensor, key: Tensor, value: Tensor, seqlens: Sequence[int], dropout_prob: float = 0.0
) -> tuple[Tensor, list[Tensor]]:
    """(T, H, K) each to the context (T, H, K) and, for each sequence, the (H, L, L) probabilities."""
    record, query_key_value = LayerRecord(), torch.stack([query, key, value], dim=1).flatten(1)
    context = recorded_attention(record, query_key_value, seqlens, query.shape[1], dropout_prob)
    return context.unflatten(-1, query.shape[1:]), record.attention_probs
