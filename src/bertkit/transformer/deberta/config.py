"""Config of a DeBERTa encoder, with the keys of a published ``config.json``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bertkit.errors import UsageError
from bertkit.transformer.config import BertConfig, check_activations, check_probabilities


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

    @property
    def score_scale(self) -> float:
        """Divisor of attention scores: a square root that the published code computes in float32 at any precision."""
        return float(np.sqrt(np.float32(3 * self.head_dim)))
