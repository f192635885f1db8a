"""Configs of Nomic BERT and GTE, with BERT's keys: post-norm as BERT, with rotary positions and gates."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from bertkit.errors import UsageError, check_above_zero
from bertkit.transformer.config import BertConfig
from bertkit.transformer.layer_config import LayerConfig, RotaryPositions


@dataclass(frozen=True)
class NomicBertConfig(BertConfig):
    """Defaults are nomic-embed-text-v1.5 (Nussbaum et al. 2024, and its published ``config.json``)."""

    may_be_decoder: ClassVar[bool] = False
    gate: ClassVar[Literal["separate", "last"]] = "separate"  # as in `LayerConfig`
    has_biases: ClassVar[bool] = False  # of attention, and of the second layer of the feed-forward network

    vocab_size: int = 30_528  # rows of the word embedding
    hidden_act: str = "silu"  # activation of the gate: a key of ACTIVATIONS
    hidden_dropout_prob: float = 0.0  # dropout on embeddings and on each sub-layer's output, in training
    attention_probs_dropout_prob: float = 0.0  # dropout on attention probabilities, in training
    max_position_embeddings: int = 2_048  # longest sequence in tokens
    rope_theta: float = 1_000.0  # base of the rotary frequencies
    rope_factor: float = 1.0  # divisor of these frequencies

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_dim % 2:
            raise UsageError(
                f"hidden_size={self.hidden_size} with {self.num_attention_heads} heads: rotary positions need an even "
                "number of columns in a head"
            )
        check_above_zero(self, "rope_theta", "rope_factor")

    @property
    def has_positions(self) -> bool:
        return False

    def layer(self, number: int) -> LayerConfig:
        return replace(
            super().layer(number),
            positions=RotaryPositions(self.rope_theta, self.rope_factor),
            gate=self.gate,
            has_joint_inputs=True,
            has_attention_biases=self.has_biases,
            has_expand_bias=False,
            has_project_bias=self.has_biases,
        )


@dataclass(frozen=True)
class GteConfig(NomicBertConfig):
    """Defaults are transformers' ``GteConfig`` (Zhang et al. 2024)."""

    may_be_zero: ClassVar[tuple[str, ...]] = ("num_hidden_layers", "type_vocab_size")
    gate: ClassVar[Literal["separate", "last"]] = "last"
    has_biases: ClassVar[bool] = True

    vocab_size: int = 250_048  # rows of the word embedding
    hidden_act: str = "gelu"  # activation of the gate: a key of ACTIVATIONS
    hidden_dropout_prob: float = 0.1  # dropout on embeddings and on each sub-layer's output, in training
    max_position_embeddings: int = 8_192  # longest sequence in tokens
    type_vocab_size: int = 1  # segments; with 1 every token has type 0
    rope_theta: float = 160_000.0  # base of the rotary frequencies
