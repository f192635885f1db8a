"""The heads of ModernBERT (Warner et al. 2024).

Shape letters: N sequences or tokens, P positions, D hidden_size, V vocab_size.
"""

from bertkit.later import Tensor
from bertkit.transformer import ModernBertConfig
from bertkit.transformer.kernels import activate, apply_linear, dropout, like, linear, normalize, project
from bertkit.transformer.modules import nn, parameter


class PredictionHead(nn.Module):
    """``norm(activation(dense(h)))`` without biases: the first layers of every ModernBERT head."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.activation = config.classifier_activation
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)

    def transform(self, hidden_states: Tensor) -> Tensor:
        """(N, D) to the same."""
        transformed = activate(apply_linear(hidden_states, self.dense), self.activation)
        return normalize(like(transformed, hidden_states), self.norm)


class ModernBertMaskedLMHead(PredictionHead):
    """A score for every vocabulary entry: the output projection is the word embedding, with a bias from the head."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__(config)
        self.bias = parameter(config.vocab_size)

    def forward(self, hidden_states: Tensor, word_embedding: Tensor) -> Tensor:
        """(P, D) hidden states of the requested positions and (V, D) word embedding to (P, V) logits."""
        return like(linear(self.transform(hidden_states), word_embedding, self.bias), hidden_states)


class ModernBertClassificationHead(PredictionHead):
    """Logits of the labels, for pooled sequences or for tokens; one label is regression."""

    def __init__(self, config: ModernBertConfig, num_labels: int, dropout_prob: float) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels)

    def features(self, vectors: Tensor) -> Tensor:
        """(N, D) input of the last layer, without dropout."""
        return self.transform(vectors)

    def forward(self, vectors: Tensor) -> Tensor:
        """(N, D) to (N, num_labels)."""
        return project(dropout(self.features(vectors), self.dropout), self.classifier)
