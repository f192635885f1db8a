"""Config of the original Transformer, with BERT's keys."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from bertkit.transformer.config import BertConfig


@dataclass(frozen=True)
class TransformerConfig(BertConfig):
    """One stack, encoder or decoder; defaults are the base model of Vaswani et al. 2017, table 3."""

    may_be_zero: ClassVar[tuple[str, ...]] = ("num_hidden_layers", "type_vocab_size")

    vocab_size: int = 37_000  # rows of the word embedding
    hidden_size: int = 512  # width of every hidden state
    num_hidden_layers: int = 6  # layers
    num_attention_heads: int = 8  # must divide hidden_size
    intermediate_size: int = 2_048  # width inside the feed-forward network
    hidden_act: str = "relu"  # activation inside it: a key of ACTIVATIONS
    attention_probs_dropout_prob: float = 0.0  # dropout on attention probabilities, in training
    max_position_embeddings: int = 512  # longest sequence in tokens; the positions are sinusoids, not weights
    type_vocab_size: int = field(default=0, init=False)
    layer_norm_eps: float = 1e-5  # added to the variance in layer normalization
    scale_embedding: bool = True  # multiply the word embedding by the root of hidden_size

    @property
    def has_positions(self) -> bool:
        return False

    @property
    def has_sinusoids(self) -> bool:
        return True

    @property
    def normalizes_embeddings(self) -> bool:
        return False

    @property
    def embedding_scale(self) -> float:
        return math.sqrt(self.hidden_size) if self.scale_embedding else 1.0
