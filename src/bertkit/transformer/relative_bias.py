"""Encoder with learned relative position biases of attention scores (Raffel et al. 2020, section 2.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from bertkit.later import torch
from bertkit.transformer.config import BertConfig
from bertkit.transformer.encoder import Encoder
from bertkit.transformer.kernels.arrays import Rows
from bertkit.transformer.modules import nn, table

NUM_BUCKETS = 32

_FIRST_DISTANCES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)
"""The smallest distance in each of the 16 buckets of a side: exact to 7, then on a logarithmic scale up to 128
(transformers ``MPNetEncoder.relative_position_bucket``, with the logarithms in float32)."""


def bucket(distances: Rows) -> Rows:
    """Bucket of each distance, key minus query: 0 to 15 for keys before the query and at it, 16 to 31 after it.

    >>> bucket(torch.tensor([-200, -8, -1, 0, 1, 12])).tolist()
    [15, 8, 1, 0, 17, 25]
    """
    if isinstance(distances, np.ndarray):
        numbers: Any = np.searchsorted(_FIRST_DISTANCES, abs(distances), side="right")
    else:
        numbers = torch.searchsorted(
            torch.tensor(_FIRST_DISTANCES, device=distances.device), distances.abs(), right=True
        )
    return numbers - 1 + NUM_BUCKETS // 2 * (distances > 0)


class RelativeBiasEncoder(Encoder):
    """BERT's encoder with one table of relative position biases, shared by all layers."""

    def __init__(self, config: BertConfig, *, with_pooler: bool = True) -> None:
        super().__init__(config, with_pooler=with_pooler)
        self.relative_attention_bias: nn.Embedding = table(NUM_BUCKETS, config.num_attention_heads)

    def distance_bias(self, longest: int) -> Rows:
        weight = self.relative_attention_bias.weight
        if isinstance(weight, np.ndarray):
            return weight[bucket(np.arange(1 - longest, longest))].T
        distances = torch.arange(1 - longest, longest, device=weight.device)
        return weight[bucket(distances)].T
