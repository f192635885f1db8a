"""Classification of sequences, tokens and sentence vectors by one linear layer."""

import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.heads.pooling import poolings_of, sequence_vectors
from bertkit.transformer import EncoderConfig, EncoderOutput
from bertkit.transformer.kernels import activate, dropout, project


class ClassificationHead(nn.Module):
    """Dropout and one linear layer, over one vector for each sequence or over the hidden state of every token.

    With one label it is regression, or the score of a choice (Devlin et al. 2018, section 4.4); with two over tokens,
    the logits that an answer starts and ends there (section 4.2).
    """

    def __init__(self, config: EncoderConfig, num_labels: int, dropout_prob: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels)

    def forward(self, vectors: Tensor) -> Tensor:
        """(N, D) to (N, num_labels) logits; N sequences or tokens."""
        return project(dropout(vectors, self.dropout), self.classifier)


class DenseClassificationHead(nn.Module):
    """``classifier(dropout(activation(dense(dropout(h)))))`` over one vector for each sequence.

    Args:
        activation: a key of ACTIVATIONS.
        input_dropout_prob: dropout before the first layer; ``dropout_prob`` is before the second.
    """

    def __init__(
        self,
        config: EncoderConfig,
        num_labels: int,
        dropout_prob: float,
        activation: str,
        input_dropout_prob: float = 0.0,
    ) -> None:
        super().__init__()
        self.input_dropout = nn.Dropout(input_dropout_prob)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = activation
        self.dropout = nn.Dropout(dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, D) to (B, num_labels) logits."""
        transformed = activate(project(dropout(vectors, self.input_dropout), self.dense), self.activation)
        return project(dropout(transformed, self.dropout), self.classifier)


class VectorClassificationHead(nn.Module):
    """One linear layer over the vectors of a sentence encoder, which are scaled to length 1.

    Tunstall et al. 2022, "Efficient few-shot learning without prompts".

    Args:
        pooling: how tokens become a vector, names from POOLINGS other than "pooler".
    """

    def __init__(self, config: EncoderConfig, num_labels: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.classifier = nn.Linear(config.hidden_size * len(poolings_of(pooling)), num_labels)

    def vectors(self, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """(B, D): the vector of length 1 of each sequence, which the layer takes."""
        return F.normalize(sequence_vectors(self.pooling, encoded, batch), dim=-1)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, D) to (B, num_labels) logits."""
        return project(vectors, self.classifier)
