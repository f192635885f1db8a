"""Language modeling heads: hidden states to a score for every entry of the vocabulary."""

from bertkit.later import Tensor
from bertkit.transformer import BertConfig
from bertkit.transformer.kernels import activate, apply_linear, like, linear, normalize
from bertkit.transformer.modules import nn, parameter


class MaskedLMHead(nn.Module):
    """``norm(activation(dense(h))) @ word_embedding^T + bias``.

    The output projection is the word embedding itself (weight tying; Devlin et al. 2018, appendix A.1, and
    google-research/bert ``run_pretraining.py``), so the head holds only its bias.

    Args:
        activation: a key of ACTIVATIONS; None: that of the encoder.
    """

    def __init__(self, config: BertConfig, activation: str | None = None) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_width)
        self.activation = activation or config.hidden_act
        self.norm = nn.LayerNorm(config.embedding_width, eps=config.layer_norm_eps)
        self.bias = parameter(config.vocab_size)

    def forward(self, hidden_states: Tensor, word_embedding: Tensor) -> Tensor:
        """(P, D) hidden states of the requested positions and (V, E) word embedding to (P, V) logits; usually E = D."""
        return like(linear(self.transform(hidden_states), word_embedding, self.bias), hidden_states)

    def transform(self, hidden_states: Tensor) -> Tensor:
        """(P, D) to the (P, E) input of the output projection."""
        transformed = activate(apply_linear(hidden_states, self.dense), self.activation)
        return normalize(like(transformed, hidden_states), self.norm)


class VocabularyHead(nn.Module):
    """``h @ word_embedding^T``, optionally with a bias: the head of the original Transformer and of GPT-2.

    Args:
        has_weight: with a weight in place of the word embedding.
    """

    def __init__(self, config: BertConfig, *, has_bias: bool, has_weight: bool = False) -> None:
        super().__init__()
        self.weight = parameter(config.vocab_size, config.hidden_size) if has_weight else None
        self.bias = parameter(config.vocab_size) if has_bias else None

    def forward(self, hidden_states: Tensor, word_embedding: Tensor) -> Tensor:
        """(P, D) hidden states and (V, D) word embedding to (P, V) logits."""
        weight = word_embedding if self.weight is None else self.weight
        return like(linear(hidden_states, weight, self.bias), hidden_states)

    def transform(self, hidden_states: Tensor) -> Tensor:
        """(P, D) to the input of the output projection: unchanged."""
        return hidden_states
