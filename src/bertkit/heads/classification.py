"""Classification: one decision for a sequence, for each token, or among several choices."""

import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.heads.pooling import sequence_vectors
from bertkit.transformer import AnyConfig, BertConfig, EncoderOutput
from bertkit.transformer.kernels import dropout, project


class ClassificationHead(nn.Module):
    """Dropout and one linear layer, over pooled vectors (sequences; one label is regression) or hidden states (tokens).

    Devlin et al. 2018, section 4.1 and 5.3.
    """

    def __init__(self, config: BertConfig, num_labels: int, dropout_prob: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels)

    def forward(self, vectors: Tensor) -> Tensor:
        """(N, D) to (N, num_labels) logits; N sequences or tokens."""
        return project(dropout(vectors, self.dropout), self.classifier)


class MultipleChoiceHead(nn.Module):
    """One score for each (question, choice) sequence; the choices of a question stand next to each other in the batch.

    Devlin et al. 2018, section 4.4 (SWAG).
    """

    def __init__(self, config: BertConfig, dropout_prob: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, 1)

    def forward(self, pooled: Tensor, num_choices: int) -> Tensor:
        """(B * num_choices, D) to (B, num_choices) logits.

        Raises:
            UsageError: the sequences do not divide into questions of ``num_choices``.
        """
        if num_choices < 1 or len(pooled) % num_choices:
            raise UsageError(f"{len(pooled)} sequences do not divide into questions of num_choices={num_choices}")
        return project(dropout(pooled, self.dropout), self.classifier).view(-1, num_choices)


class VectorClassificationHead(nn.Module):
    """One linear layer over the vectors of a sentence encoder, which are scaled to length 1.

    Tunstall et al. 2022, "Efficient few-shot learning without prompts".

    Args:
        pooling: how tokens become a vector, a name from POOLINGS but "pooler".
    """

    def __init__(self, config: AnyConfig, num_labels: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.classifier = nn.Linear(config.hidden_size, num_labels)

    def vectors(self, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """(B, D): what the layer reads, a vector of length 1 for each sequence."""
        return F.normalize(sequence_vectors(self.pooling, encoded, batch), dim=-1)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, D) to (B, num_labels) logits."""
        return project(vectors, self.classifier)
