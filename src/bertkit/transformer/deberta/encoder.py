"""DeBERTa's attention and encoder.

Shape letters: T total_tokens, D hidden_size, R relative positions, L tokens of a sequence.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.attention import SelfAttention
from bertkit.transformer.deberta.config import DebertaConfig
from bertkit.transformer.embeddings import table
from bertkit.transformer.encoder import BertEncoder
from bertkit.transformer.kernels import apply_linear, dropout
from bertkit.transformer.recorder import LayerRecord
from bertkit.transformer.relative import PositionRows


class RelativePositions(NamedTuple):
    """The rows of the relative position table for sequences up to a length."""

    rows: Tensor  # (R, D), normed
    row_of_distance: Tensor  # as of `PositionRows`


class DisentangledAttention(SelfAttention):
    """Attention in which the query and key layers also project relative positions."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.scale = config.score_scale
        self.position_dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        hidden_states: Tensor,
        batch: Batch,
        record: LayerRecord | None = None,
        bias: RelativePositions | None = None,
    ) -> Tensor:
        """(T, D) to (T, D)."""
        assert bias is not None  # `DebertaEncoder` always has positions
        rows = dropout(bias.rows, self.position_dropout)
        return super().forward(hidden_states, batch, record, self.for_layer(bias._replace(rows=rows)))

    def for_layer(self, bias: RelativePositions) -> PositionRows:
        """As `SelfAttention.for_layer`: keys and queries of relative positions."""
        keys, queries = apply_linear(bias.rows, self.key, self.query).chunk(2, dim=-1)
        return PositionRows(keys, queries, bias.row_of_distance, self.scale)


class DebertaEncoder(BertEncoder):
    """BERT's encoder with disentangled attention and no absolute positions (He et al. 2021, section 3.1)."""

    attention = DisentangledAttention

    def __init__(self, config: DebertaConfig, *, with_pooler: bool = False) -> None:
        super().__init__(config, with_pooler=with_pooler)
        self.relative_positions = table(2 * config.position_buckets, config.hidden_size)
        self.relative_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def distance_bias(self, longest: int) -> RelativePositions:
        """As `BertEncoder.distance_bias`: the rows of all distances up to ``longest``."""
        buckets = self.config.position_buckets
        weight = self.relative_positions.weight
        distances = torch.arange(1 - longest, longest, device=weight.device)
        of_distance = bucket(distances, buckets, self.config.max_relative_positions) + buckets
        of_distance = of_distance.clamp(0, 2 * buckets - 1)
        first, last = int(of_distance[0]), int(of_distance[-1])
        normed = self.relative_norm(weight[first : last + 1]).to(weight.dtype)
        return RelativePositions(normed, of_distance - first)


def bucket(distances: Tensor, num_buckets: int, longest: int) -> Tensor:
    """Bucket of each distance: the distance up to half the buckets, logarithmic beyond.

    >>> bucket(torch.tensor([-131, -7, 128, 160, 511]), 256, 512).tolist()
    [-131, -7, 128, 149, 255]
    """
    middle = num_buckets // 2
    far = distances.abs().clamp(min=max(middle, 1)).float()
    steps = torch.log(far / middle) / torch.log(torch.tensor((longest - 1) / middle)) * (middle - 1)
    return torch.where(distances.abs() <= middle, distances, (torch.ceil(steps) + middle).long() * distances.sign())
