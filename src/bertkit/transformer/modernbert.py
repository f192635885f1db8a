"""The config of a ModernBERT encoder, with the keys of a published ``config.json``."""

from dataclasses import dataclass, replace
from typing import ClassVar

from bertkit.errors import UsageError, check_above_zero
from bertkit.transformer.config import SIZES
from bertkit.transformer.config_checks import check_activations, check_integers, check_one_of, check_probabilities
from bertkit.transformer.layer_config import LayerConfig, RotaryPositions

_PUBLISHED_SIZES = {  # (layers, hidden, heads, intermediate): Warner et al. 2024, section 2.1
    "base": (22, 768, 12, 1_152),
    "large": (28, 1_024, 16, 2_624),
}


@dataclass(frozen=True)
class ModernBertConfig:
    """Defaults are ModernBERT base (Warner et al. 2024, section 2.1, and transformers' ``ModernBertConfig``).

    Linear layers and normalizations have no bias, except the output of masked language modeling and the
    classifier.
    """

    is_decoder: ClassVar[bool] = False
    type_vocab_size: ClassVar[int] = 0
    first_position: ClassVar[int] = 0
    has_positions: ClassVar[bool] = False  # positions are rotations in every layer
    projects_embeddings: ClassVar[bool] = False
    normalizes_embeddings: ClassVar[bool] = True
    has_norm_biases: ClassVar[bool] = False

    vocab_size: int = 50_368  # rows of the word embedding
    hidden_size: int = 768  # width of every hidden state
    num_hidden_layers: int = 22  # encoder layers
    num_attention_heads: int = 12  # must divide hidden_size into an even head_dim
    intermediate_size: int = 1_152  # width inside the feed-forward network, after the gate
    hidden_activation: str = "gelu"  # activation inside it, before the gate: a key of ACTIVATIONS
    max_position_embeddings: int = 8_192  # longest sequence in tokens
    global_attn_every_n_layers: int = 3  # layers 0, n, 2 n, ... attend to the whole sequence, the others locally
    local_attention: int = 128  # window of local attention in tokens, half of it to each side
    global_rope_theta: float = 160_000.0  # base of the rotary frequencies in global layers
    local_rope_theta: float = 10_000.0  # the same in local layers
    norm_eps: float = 1e-5  # added to the variance in layer normalization
    embedding_dropout: float = 0.0  # dropout on the embeddings, in training
    attention_dropout: float = 0.0  # dropout on attention probabilities and on attention's output, in training
    mlp_dropout: float = 0.0  # dropout inside the feed-forward network, after the gate, in training
    initializer_range: float = 0.02  # standard deviation of initial weights
    initializer_cutoff_factor: float = 2.0  # initial weights beyond this number of standard deviations are redrawn
    classifier_pooling: str = "cls"  # input of a sequence classifier: "cls" or the "mean" of all tokens
    classifier_activation: str = "gelu"  # activation in every head: a key of ACTIVATIONS

    def __post_init__(self) -> None:
        check_integers(self, "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                       "intermediate_size", "max_position_embeddings", "global_attn_every_n_layers",
                       "local_attention")  # fmt: skip
        if self.hidden_size % (2 * self.num_attention_heads):
            raise UsageError(
                f"hidden_size={self.hidden_size} is not a multiple of twice num_attention_heads="
                f"{self.num_attention_heads}: rotary positions need an even number of columns in a head"
            )
        check_probabilities(self, "embedding_dropout", "attention_dropout", "mlp_dropout")
        check_above_zero(self, "global_rope_theta", "local_rope_theta", "norm_eps", "initializer_range",
                         "initializer_cutoff_factor")  # fmt: skip
        check_one_of(self, "classifier_pooling", ("cls", "mean"))
        check_activations(self, "hidden_activation", "classifier_activation")

    @classmethod
    def of_size(cls, size: str, **changes: int | float | str) -> "ModernBertConfig":
        """One of the names of SIZES, with changes: base and large as published, deeper and narrower inside than BERT's;
        the others as BERT's, with a feed-forward network with the same number of weights.

        Two thirds of the width compensate for the second matrix of the gate (Shazeer 2020, section 2).
        """
        if size not in SIZES:
            raise UsageError(f"size {size!r}: expected one of {', '.join(SIZES)}")
        layers, hidden, heads = SIZES[size]
        inside = round(8 * hidden / 3 / 16) * 16  # whole vectors
        layers, hidden, heads, inside = _PUBLISHED_SIZES.get(size, (layers, hidden, heads, inside))
        config = cls(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=inside)
        return replace(config, **changes)

    def layer(self, number: int) -> LayerConfig:
        """As `BertConfig.layer`."""
        is_global = self.is_global(number)
        return LayerConfig(
            self.hidden_size,
            self.num_attention_heads,
            self.num_attention_heads,
            self.head_dim,
            self.intermediate_size,
            self.hidden_activation,
            norm_order="pre",
            norm_eps=self.norm_eps,
            has_norm_biases=self.has_norm_biases,
            has_attention_norm=number > 0,
            positions=RotaryPositions(self.global_rope_theta if is_global else self.local_rope_theta),
            window=None if is_global else self.local_attention // 2,
            gate="first",
            has_joint_inputs=True,
            has_attention_biases=False,
            has_expand_bias=False,
            has_project_bias=False,
            attention_probs_dropout_prob=self.attention_dropout,
            attention_output_dropout_prob=self.attention_dropout,
            inner_dropout_prob=self.mlp_dropout,
            stores_norms_first=True,
        )

    @property
    def embedding_width(self) -> int:
        return self.hidden_size

    @property
    def layer_norm_eps(self) -> float:
        return self.norm_eps

    @property
    def hidden_dropout_prob(self) -> float:
        return self.embedding_dropout

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def is_global(self, layer: int) -> bool:
        """Whether a layer, counted from 0, attends to the whole sequence."""
        return layer % self.global_attn_every_n_layers == 0
