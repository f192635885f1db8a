"""The config of a NeoBERT encoder (Le Breton et al. 2025), with BERT's keys."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from bertkit.transformer.layer_config import LayerConfig, RotaryPositions
from bertkit.transformer.llama_layers import LlamaLayersConfig


@dataclass(frozen=True)
class NeoBertConfig(LlamaLayersConfig):
    """Defaults are NeoBERT as published."""

    may_be_decoder: ClassVar[bool] = False

    num_hidden_layers: int = 28  # encoder layers
    num_key_value_heads: None = field(default=None, init=False)
    intermediate_size: int = 3_072  # of a network without a gate: with it, two thirds, in eights
    hidden_act: str = field(default="silu", init=False)
    attention_probs_dropout_prob: float = field(default=0.0, init=False)
    max_position_embeddings: int = 4_096  # longest sequence in tokens
    rope_theta: float = field(default=10_000.0, init=False)
    rope_factor: float = field(default=1.0, init=False)

    def layer(self, number: int) -> LayerConfig:
        return replace(
            super().layer(number),
            intermediate_size=-(-(2 * self.intermediate_size // 3) // 8) * 8,
            positions=RotaryPositions(self.rope_theta, self.rope_factor, has_neighboring_pairs=True),
            gate="first",
            has_joint_inputs=True,
            has_inputs_by_head=True,
        )
