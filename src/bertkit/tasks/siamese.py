"""Siamese classification of text pairs, the published training of sentence encoders on NLI.

Reimers & Gurevych 2019, section 3: each text is encoded alone, and a linear layer reads (u, v, |u - v|) of their
vectors. The trained encoder is then used alone: `Model.embed` returns its vectors.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bertkit.errors import UsageError
from bertkit.tasks.examples import TextExample
from bertkit.tasks.sequence_classification import SequenceClassification


@dataclass(frozen=True)
class SiameseClassification(SequenceClassification):
    """One label of C for a pair of texts, from the sentence vectors of both."""

    num_vectors: Literal[0, 1, 2] = 2

    name: ClassVar[str] = "siamese-classification"
    guess_rank = None
    is_siamese: ClassVar[bool] = True
    unit_vectors: ClassVar[bool | None] = None
    peft_type: ClassVar[str | None] = None
    training_defaults: ClassVar[dict[str, Any]] = {"learning_rate": 2e-5, "num_epochs": 1}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_vectors != 2:
            raise UsageError(f"num_vectors={self.num_vectors}: siamese classification takes 2")

    def over_vectors(self, example: TextExample) -> None:
        """As `TextTask.over_vectors`: its head is over sentence vectors already."""
        return None
