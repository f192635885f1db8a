"""The config of a Qwen3 encoder (Zhang et al. 2025, "Qwen3 Embedding"), with BERT's keys."""

from dataclasses import dataclass, field, replace

from bertkit.transformer.layer_config import LayerConfig
from bertkit.transformer.llama_layers import LlamaLayersConfig


@dataclass(frozen=True)
class Qwen3Config(LlamaLayersConfig):
    """Defaults are Qwen3-Embedding-0.6B as published, apart from the sizes of its layers: a token attends to itself and
    earlier ones, and queries and keys have norms."""

    vocab_size: int = 151_669  # rows of the word embedding
    head_dim: int = 128  # width of a head  # pyrefly: ignore
    max_position_embeddings: int = 32_768  # longest sequence in tokens
    layer_norm_eps: float = 1e-6  # added to the mean square in normalization
    is_decoder: bool = field(default=True, init=False)
    rope_theta: float = 1_000_000.0  # base of the rotary frequencies

    def layer(self, number: int) -> LayerConfig:
        return replace(super().layer(number), has_head_norms=True)
