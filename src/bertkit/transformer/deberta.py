"""DeBERTa, versions 2 and 3: BERT's layers with disentangled attention (He et al. 2021).

Shape letters: D hidden_size, R relative positions.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bertkit.errors import UsageError
from bertkit.later import torch
from bertkit.transformer.config import BertConfig
from bertkit.transformer.config_checks import check_activations, check_probabilities
from bertkit.transformer.encoder import Encoder
from bertkit.transformer.kernels import like, normalize
from bertkit.transformer.kernels.arrays import Rows, library_of
from bertkit.transformer.layer_config import DisentangledPositions, LayerConfig
from bertkit.transformer.modules import nn, table
from bertkit.transformer.relative import RelativePositions


@dataclass(frozen=True)
class DebertaConfig(BertConfig):
    """Defaults are DeBERTa base, version 3 (He et al. 2023, and its published ``config.json``)."""

    may_be_zero: ClassVar[tuple[str, ...]] = ("num_hidden_layers", "type_vocab_size")
    may_be_decoder: ClassVar[bool] = False

    vocab_size: int = 128_100  # rows of the word embedding
    type_vocab_size: int = 0  # segments
    layer_norm_eps: float = 1e-7  # added to the variance in layer normalization
    position_buckets: int = 256  # rows of the table of relative positions on each side
    max_relative_positions: int = 512  # distances from here on share one row
    pooler_dropout: float = 0.0  # dropout before the first layer of a sequence classifier, in training
    pooler_hidden_act: str = "gelu"  # activation of that layer: a key of ACTIVATIONS
    cls_dropout: float | None = None  # dropout before a sequence classifier, in training; None: hidden_dropout_prob

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probabilities(self, "pooler_dropout", *(["cls_dropout"] if self.cls_dropout is not None else []))
        check_activations(self, "pooler_hidden_act")
        if self.max_relative_positions < self.position_buckets // 2 + 2:
            raise UsageError(
                f"max_relative_positions={self.max_relative_positions}: expected more than half of position_buckets="
                f"{self.position_buckets}, beyond which distances are on a logarithmic scale"
            )

    @property
    def has_positions(self) -> bool:
        return False

    def layer(self, number: int) -> LayerConfig:
        scale = float(np.sqrt(np.float32(3 * self.head_dim)))  # the published code computes it in float32
        return replace(super().layer(number), positions=DisentangledPositions(scale))


class DebertaEncoder(Encoder):
    """BERT's encoder with disentangled attention and no absolute positions (He et al. 2021, section 3.1)."""

    def __init__(self, config: DebertaConfig, *, with_pooler: bool = False) -> None:
        super().__init__(config, with_pooler=with_pooler)
        self.relative_positions = table(2 * config.position_buckets, config.hidden_size)
        self.relative_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def distance_bias(self, longest: int) -> RelativePositions:
        """As `Encoder.distance_bias`: the rows of all distances up to ``longest``."""
        buckets, weight = self.config.position_buckets, self.relative_positions.weight
        if isinstance(weight, np.ndarray):
            distances: Any = np.arange(1 - longest, longest)
        else:
            distances = torch.arange(1 - longest, longest, device=weight.device)
        of_distance = bucket(distances, buckets, self.config.max_relative_positions) + buckets
        of_distance = of_distance.clip(0, 2 * buckets - 1)
        first, last = int(of_distance[0]), int(of_distance[-1])
        normed = like(normalize(weight[first : last + 1], self.relative_norm), weight)
        return RelativePositions(normed, of_distance - first)


def bucket(distances: Rows, num_buckets: int, longest: int) -> Rows:
    """Bucket of each distance: the distance up to half the buckets, logarithmic beyond.

    >>> bucket(torch.tensor([-131, -7, 128, 160, 511]), 256, 512).tolist()
    [-131, -7, 128, 149, 255]
    """
    library, middle = library_of(distances), num_buckets // 2
    far = library.asarray(abs(distances).clip(max(middle, 1)), dtype=library.float32)
    most = library.asarray((longest - 1) / middle, dtype=library.float32)
    steps = library.ceil(_log(far / middle) / _log(most) * (middle - 1)) + middle
    steps = library.asarray(steps, dtype=library.int64) * library.sign(distances)
    return library.where(abs(distances) <= middle, distances, steps)


def _log(numbers: Rows) -> Rows:
    """Logarithms of float32 numbers: of arrays in float64 and rounded once, as numpy's of float32 differ by a bit."""
    if isinstance(numbers, np.ndarray):
        return np.log(numbers.astype(np.float64)).astype(np.float32)
    return torch.log(numbers)
