"""Tasks whose head may use sentence vectors instead of the published class's input.

Shape letters: S sequences, N texts or pairs, D hidden_size, C labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bertkit.batch import Batch
from bertkit.tasks.task import TextTask

if TYPE_CHECKING:
    from torch import Tensor

    from bertkit.architectures import Network
    from bertkit.transformer import EncoderOutput

VECTOR_HEAD = "vector_classification"


@dataclass(frozen=True)
class OnSentenceVectors(TextTask):
    """A task with the published head, or, with ``num_vectors``, a head over sentence vectors.

    The two texts of a pair are then separate sequences, each encoded alone.
    """

    num_vectors: Literal[0, 1, 2] = 0  # sentence vectors in the head's input: 1 for texts, 2 for pairs; 0: the
    # published head

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_vectors:
            object.__setattr__(self, "head", VECTOR_HEAD)

    @property
    def sequence_form(self) -> Any:
        return self.num_vectors

    def read_out(self, network: Network, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """See `TextTask.read_out`; for pairs (S, D) vectors, whose texts may be in different batches."""
        if self.num_vectors == 2:
            return network.head_input(self.head, encoded, batch)
        return super().read_out(network, encoded, batch)

    def logits_of(self, network: Network, rows: Tensor) -> Tensor:
        """See `TextTask.logits_of`; for pairs the (N, C) logits of their vectors."""
        head: Any = network.heads[self.head]
        if self.num_vectors != 2:
            return rows
        return head(rows) if isinstance(rows, np.ndarray) else head(rows.to(head.classifier.weight)).cpu()
