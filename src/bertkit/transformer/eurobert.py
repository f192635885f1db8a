"""The config of a EuroBERT encoder (Boizard et al. 2025), with BERT's keys."""

from dataclasses import dataclass
from typing import ClassVar

from bertkit.transformer.config_checks import check_one_of
from bertkit.transformer.llama_layers import LlamaLayersConfig


@dataclass(frozen=True)
class EuroBertConfig(LlamaLayersConfig):
    """Defaults are EuroBERT-210m as published."""

    may_be_decoder: ClassVar[bool] = False

    vocab_size: int = 128_256  # rows of the word embedding
    max_position_embeddings: int = 8_192  # longest sequence in tokens
    rope_theta: float = 250_000.0  # base of the rotary frequencies
    classifier_pooling: str = "late"  # of a sequence classifier: the first token ("bos") or the "mean" of all tokens is
    # its input, or logits of all tokens are averaged ("late")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, "classifier_pooling", ("late", "mean", "bos"))
