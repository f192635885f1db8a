"""Disentangled attention: scores of content with content, content with position and position with content.

He et al. 2021, "DeBERTa", section 3.1; the distances in buckets as in version 2 (microsoft/DeBERTa ``da_utils.py``).
Shape letters: N sequences of one length L, H num_heads, K head_dim, D hidden_size, R relative positions.
"""

from typing import NamedTuple

from bertkit.later import Tensor, torch


class RelativePositions(NamedTuple):
    """The rows of the relative position table for sequences up to a length, of all layers."""

    rows: Tensor  # (R, D), normed
    row_of_distance: Tensor  # as in `PositionRows`


class PositionRows(NamedTuple):
    """Keys and queries of relative positions for one layer."""

    keys: Tensor  # (R, D)
    queries: Tensor  # (R, D)
    row_of_distance: Tensor  # (2 M - 1,) int64: for a query t tokens after its key the row in column M - 1 + t
    scale: float  # scores are divided by it


def position_scores(query: Tensor, key: Tensor, positions: PositionRows) -> Tensor:
    """Scores that depend on positions, before they are scaled: (N, H, L, K) queries and keys to (N, H, L, L)."""
    length, num_heads = query.shape[-2], query.shape[-3]
    middle = len(positions.row_of_distance) // 2
    at = torch.arange(length, device=query.device)
    rows = positions.row_of_distance[middle + at[:, None] - at]  # (L, L), of query and key
    keys, queries = (
        part.to(query.dtype).unflatten(-1, (num_heads, -1)).permute(1, 2, 0)  # (H, K, R)
        for part in (positions.keys, positions.queries)
    )
    index = rows.expand(*query.shape[:-1], length)
    content_to_position = (query @ keys).gather(-1, index)
    position_to_content = (key @ queries).gather(-1, index.transpose(-1, -2))
    return content_to_position + position_to_content.transpose(-1, -2)
