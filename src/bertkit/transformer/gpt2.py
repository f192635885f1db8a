"""Config of GPT-2: causal, with layer normalization before each sub-layer (Radford et al. 2019, section 2.3)."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from bertkit.transformer.config import BertConfig
from bertkit.transformer.layer_config import LayerConfig


@dataclass(frozen=True)
class Gpt2Config(BertConfig):
    """Defaults are the smallest GPT-2 as published (Radford et al. 2019)."""

    may_be_zero: ClassVar[tuple[str, ...]] = ("num_hidden_layers", "type_vocab_size")

    vocab_size: int = 50_257  # rows of the word embedding
    hidden_act: str = "gelu_new"  # activation inside the feed-forward network: a key of ACTIVATIONS
    max_position_embeddings: int = 1_024  # longest sequence in tokens
    type_vocab_size: int = field(default=0, init=False)
    layer_norm_eps: float = 1e-5  # added to the variance in layer normalization
    is_decoder: bool = field(default=True, init=False)

    @property
    def normalizes_embeddings(self) -> bool:
        return False

    def layer(self, number: int) -> LayerConfig:
        return replace(super().layer(number), norm_order="pre", has_joint_inputs=True)
