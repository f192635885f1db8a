"""Base of the configs of encoders with the layer of Llama (Touvron et al. 2023), with BERT's keys."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from bertkit.errors import check_above_zero
from bertkit.transformer.config import BertConfig
from bertkit.transformer.layer_config import LayerConfig, RotaryPositions


@dataclass(frozen=True)
class LlamaLayersConfig(BertConfig):
    """Norms before sub-layers, without means and biases; rotary positions; a gated feed-forward network."""

    may_be_zero: ClassVar[tuple[str, ...]] = ("num_hidden_layers", "type_vocab_size")
    has_norm_biases: ClassVar[bool] = False
    normalizes_embeddings: ClassVar[bool] = False  # pyrefly: ignore
    has_positions: ClassVar[bool] = False  # pyrefly: ignore

    num_key_value_heads: int | None = None  # must divide num_attention_heads; None: as many
    hidden_act: str = "silu"  # activation of the gate: a key of ACTIVATIONS
    hidden_dropout_prob: float = field(default=0.0, init=False)
    attention_probs_dropout_prob: float = 0.0  # dropout on attention probabilities, in training
    type_vocab_size: int = field(default=0, init=False)
    layer_norm_eps: float = 1e-5  # added to the mean square in normalization
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    rope_factor: float = 1.0  # divisor of these frequencies

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above_zero(self, "rope_theta", "rope_factor")
        self.layer(0)

    def layer(self, number: int) -> LayerConfig:
        return replace(
            super().layer(number),
            num_key_value_heads=self.num_attention_heads
            if self.num_key_value_heads is None
            else self.num_key_value_heads,
            norm_order="pre",
            norm="rms",
            positions=RotaryPositions(self.rope_theta, self.rope_factor),
            gate="separate",
            has_attention_biases=False,
            has_expand_bias=False,
            has_project_bias=False,
        )
