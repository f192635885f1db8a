"""Classification of sequences, tokens and sentence vectors by one linear layer."""

from typing import Any

from bertkit.batch import Batch
from bertkit.heads.pooling import poolings_of, sequence_vectors
from bertkit.heads.projection import unit_length
from bertkit.later import Tensor
from bertkit.transformer import EncoderConfig, EncoderOutput
from bertkit.transformer.kernels import activate, dropout, project
from bertkit.transformer.kernels.arrays import as_given, floats, library_of
from bertkit.transformer.kernels.inference import is_for_arrays, sums_of_rows
from bertkit.transformer.modules import nn


class ClassificationHead(nn.Module):
    """Dropout and one linear layer, over one vector for each sequence or over the hidden state of every token.

    With one label it is regression, or the score of a choice (Devlin et al. 2018, section 4.4); with two over tokens,
    the logits of answer starts and ends (section 4.2).
    """

    def __init__(self, config: EncoderConfig, num_labels: int, dropout_prob: float, *, has_bias: bool = True) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels, bias=has_bias)

    def features(self, vectors: Tensor) -> Tensor:
        """(N, D) input of the linear layer, without dropout: ``vectors`` themselves."""
        return vectors

    def forward(self, vectors: Tensor) -> Tensor:
        """(N, D) to (N, num_labels) logits; N sequences or tokens."""
        return project(dropout(self.features(vectors), self.dropout), self.classifier)


class DenseClassificationHead(nn.Module):
    """``classifier(dropout(activation(dense(dropout(h)))))`` over one vector for each sequence.

    Args:
        activation: a key of ACTIVATIONS.
        input_dropout_prob: dropout before the first layer; ``dropout_prob`` is that before the second.
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

    def features(self, vectors: Tensor) -> Tensor:
        """(B, D) input of the last layer, without dropout."""
        return activate(project(vectors, self.dense), self.activation)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, D) to (B, num_labels) logits."""
        transformed = self.features(dropout(vectors, self.input_dropout))
        return project(dropout(transformed, self.dropout), self.classifier)


class LateClassificationHead(DenseClassificationHead):
    """`DenseClassificationHead` with the first layer over the hidden state of every token, and the second over the mean
    of its outputs, as in EuroBERT: that is the mean of the logits of all tokens."""

    def vectors(self, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """(B, D) input of the last layer."""
        states = super().features(encoded.last_hidden_state)
        return sequence_vectors("mean", EncoderOutput(states, None), batch)

    def features(self, vectors: Tensor) -> Tensor:
        """``vectors`` themselves."""
        return vectors


class VectorClassificationHead(nn.Module):
    """One linear layer over sentence vectors of length 1.

    For one text its input is the text's vector (Tunstall et al. 2022, "Efficient few-shot learning without prompts").
    For a pair, whose texts u and v are neighboring sequences, it is |u - v|, u * v and their cosine (Conneau et al.
    2017, section 3.1; Reimers & Gurevych 2019, section 3).

    Args:
        pooling: how tokens become a vector, names from POOLINGS other than "pooler".
        num_vectors: 1 for texts, 2 for pairs.
    """

    def __init__(self, config: EncoderConfig, num_labels: int, pooling: str, num_vectors: int = 1) -> None:
        super().__init__()
        self.pooling, self.num_vectors = pooling, num_vectors
        width = config.hidden_size * len(poolings_of(pooling))
        self.classifier = nn.Linear(width if num_vectors == 1 else 2 * width + 1, num_labels)

    def vectors(self, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """(B, D): the vector of length 1 of each sequence."""
        return unit_length(sequence_vectors(self.pooling, encoded, batch))

    def features(self, vectors: Tensor) -> Tensor:
        """(B, D) vectors to the input of the linear layer: the same, or (B / 2, 2 D + 1) for pairs."""
        if self.num_vectors == 1:
            return vectors
        if is_for_arrays(vectors):
            rows: Any = floats(vectors)
            return as_given(self.features(rows), vectors)
        u, v = vectors[::2], vectors[1::2]
        return library_of(vectors).concatenate([abs(u - v), u * v, sums_of_rows(u * v)[:, None]], -1)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, D) to (B, num_labels) logits, or (B / 2, num_labels) for pairs."""
        return project(self.features(vectors), self.classifier)


class SiameseClassificationHead(nn.Module):
    """One linear layer over (u, v, |u - v|), the sentence vectors of the two texts of a pair, which are neighboring
    sequences (Reimers & Gurevych 2019, section 3).

    Args:
        width: width of a sentence vector.
    """

    num_vectors = 2

    def __init__(self, width: int, num_labels: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(3 * width, num_labels)

    def features(self, vectors: Tensor) -> Tensor:
        """(B, E) vectors to the (B / 2, 3 E) input of the linear layer."""
        u, v = vectors[::2], vectors[1::2]
        return library_of(vectors).concatenate([u, v, abs(u - v)], -1)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, E) to (B / 2, num_labels) logits."""
        return project(self.features(vectors), self.classifier)
