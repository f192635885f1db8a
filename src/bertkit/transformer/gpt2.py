"""GPT-2's stack: a causal encoder with layer normalization before each sub-layer (Radford et al. 2019, section 2.3)."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from bertkit.transformer.attention import JoinedAttention
from bertkit.transformer.config import BertConfig
from bertkit.transformer.encoder import BertEncoder
from bertkit.transformer.layer import PreNormLayer


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


class Gpt2Encoder(BertEncoder):
    """Pre-norm layers and a final layer normalization; causal attention."""

    attention = JoinedAttention
    layer = PreNormLayer

    def __init__(self, config: Gpt2Config, *, with_pooler: bool = False) -> None:
        super().__init__(config, with_pooler=with_pooler)
        self.final_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def as_last(self, hidden_states: Tensor) -> Tensor:
        """The final norm of (T, D) states of the residual stream."""
        return self.final_norm(hidden_states)
