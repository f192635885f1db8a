"""Tasks whose head may take sentence vectors instead of the input of the published class.

Shape letters: S sequences, N texts or pairs, D hidden_size, C labels.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bertkit.architectures import Network
from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.tasks.task import TextTask
from bertkit.transformer import EncoderOutput

VECTOR_HEAD = "vector_classification"


@dataclass(frozen=True)
class OnSentenceVectors(TextTask):
    """A task of the published class, or with ``num_vectors`` of the head over sentence vectors.

    The two texts of a pair are then separate sequences, each encoded alone.
    """

    num_vectors: int = 0  # sentence vectors that the head takes: 1 of a text, 2 of a pair; 0: the published head

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_vectors not in (0, 1, 2):
            raise UsageError(f"num_vectors={self.num_vectors}: expected 0, 1 or 2")
        if self.num_vectors:
            object.__setattr__(self, "head", VECTOR_HEAD)

    def read_out(self, network: Network, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """As `TextTask.read_out`; of pairs (S, D) vectors, whose texts may be in different batches."""
        if self.num_vectors == 2:
            return network.head_input(self.head, encoded, batch)
        return super().read_out(network, encoded, batch)

    def logits_of(self, network: Network, rows: Tensor) -> Tensor:
        """As `TextTask.logits_of`: of pairs the (N, C) logits of their vectors."""
        head: Any = network.heads[self.head]
        return head(rows.to(head.classifier.weight)).cpu() if self.num_vectors == 2 else rows
