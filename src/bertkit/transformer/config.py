"""Config of a BERT encoder, with the keys of a published ``config.json``."""

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

from bertkit.errors import UsageError, check_above_zero
from bertkit.transformer.config_checks import check_activations, check_integers, check_probabilities
from bertkit.transformer.layer_config import LayerConfig
from bertkit.transformer.window import CAUSAL

SIZES = {  # (layers, hidden, heads): Turc et al. 2019, table 1; Devlin et al. 2018, section 3
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}


@dataclass(frozen=True)
class BertConfig:
    """Defaults are BERT base, uncased (Devlin et al. 2018, and its published ``config.json``)."""

    may_be_zero: ClassVar[tuple[str, ...]] = ("num_hidden_layers",)  # of the integers
    has_norm_biases: ClassVar[bool] = True
    may_be_decoder: ClassVar[bool] = True  # False in families whose attention has no causal mask

    vocab_size: int = 30_522  # rows of the word embedding
    hidden_size: int = 768  # width of every hidden state
    num_hidden_layers: int = 12  # encoder layers
    num_attention_heads: int = 12  # must divide hidden_size
    intermediate_size: int = 3_072  # width inside the feed-forward network
    hidden_act: str = "gelu"  # activation inside it: a key of ACTIVATIONS
    hidden_dropout_prob: float = 0.1  # dropout on embeddings and on each sub-layer's output, in training
    attention_probs_dropout_prob: float = 0.1  # dropout on attention probabilities, in training
    max_position_embeddings: int = 512  # longest sequence in tokens
    type_vocab_size: int = 2  # segments: 0 = text A, 1 = text B; a subclass without token types fixes it at 0
    initializer_range: float = 0.02  # standard deviation of initial weights
    layer_norm_eps: float = 1e-12  # added to the variance in layer normalization
    is_decoder: bool = False  # True: a token attends to itself and earlier ones, left to right

    def __post_init__(self) -> None:
        if self.is_decoder and not self.may_be_decoder:
            raise UsageError(f"is_decoder=True: {type(self).__name__} has no left-to-right attention; use BertConfig")
        counts = [field.name for field in fields(self) if field.type is int and field.init]
        check_integers(self, *(name for name in counts if name not in self.may_be_zero))
        for name in self.may_be_zero:
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise UsageError(f"{name}={value!r}: expected an integer of at least 0")
        if self.hidden_size % self.num_attention_heads:
            raise UsageError(
                f"hidden_size={self.hidden_size} is not a multiple of num_attention_heads={self.num_attention_heads}"
            )
        check_probabilities(self, "hidden_dropout_prob", "attention_probs_dropout_prob")
        check_above_zero(self, "initializer_range", "layer_norm_eps")
        check_activations(self, "hidden_act")

    @classmethod
    def of_size(cls, size: str, **changes: int | float | str) -> Self:
        """One of the named sizes, with changes: ``BertConfig.of_size("mini", vocab_size=8192)``."""
        if size not in SIZES:
            raise UsageError(f"size {size!r}: expected one of {', '.join(SIZES)}")
        layers, hidden, heads = SIZES[size]
        config = cls(
            num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden
        )
        return replace(config, **changes)

    def layer(self, number: int) -> LayerConfig:
        """The layer with an index from 0."""
        return LayerConfig(
            self.hidden_size,
            self.num_attention_heads,
            self.num_attention_heads,
            self.head_dim,
            self.intermediate_size,
            self.hidden_act,
            norm_eps=self.layer_norm_eps,
            has_norm_biases=self.has_norm_biases,
            window=CAUSAL if self.is_decoder else None,
            attention_probs_dropout_prob=self.attention_probs_dropout_prob,
            attention_output_dropout_prob=self.attention_output_dropout_prob,
            hidden_dropout_prob=self.hidden_dropout_prob,
        )

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.hidden_size

    @property
    def has_positions(self) -> bool:
        """True if the embeddings include absolute positions."""
        return True

    @property
    def normalizes_embeddings(self) -> bool:
        """True if layer normalization follows the sum of the embeddings."""
        return True

    @property
    def has_sinusoids(self) -> bool:
        """True if the embeddings include absolute positions that are not learned."""
        return False

    @property
    def embedding_scale(self) -> float:
        """Factor of the word embedding."""
        return 1.0

    @property
    def projects_embeddings(self) -> bool:
        """True if a linear layer projects the embeddings to ``hidden_size``."""
        return False

    @property
    def first_position(self) -> int:
        """Row of the position table for the first token of a sequence; earlier rows are unused."""
        return 0

    @property
    def attention_output_dropout_prob(self) -> float:
        """Dropout on the output of attention, in training."""
        return self.hidden_dropout_prob
