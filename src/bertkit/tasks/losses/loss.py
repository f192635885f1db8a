"""Base classes of the losses of sentence encoders and cross-encoders. A loss uses a whole batch.

Shape letters: S sequences, E width of the vectors, D documents: the positives and negatives of queries.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from bertkit.later import F
from bertkit.tasks.field_types import check_field_types

if TYPE_CHECKING:
    from torch import Tensor

    from bertkit.tasks.similarity.rows import Roles

RowKind = Literal["pairs", "scores", "binary", "teacher"]
"""Kinds of rows: without scores; pairs with scores; these with 0 and 1 only; texts with scores of a teacher."""


class BatchLoss(NamedTuple):
    """The loss of a batch, and sums for the metrics of its loss."""

    value: Tensor  # scalar
    sums: Mapping[str, float] = MappingProxyType({})  # over rows, by name of the metric


def loss_parameter(default: Any, help: str) -> Any:
    """A field of a loss: an option of the command line and of estimators, whose type may have a `Range`.

    Args:
        help: noun phrase for the help of the option.
    """
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class SentenceLoss(ABC):
    """A loss of a whole batch of rows of texts. Its fields are its parameters, each a `loss_parameter`.

    A subclass in a file and a line in `OBJECTIVES` add a loss: options, their help, defaults and checks follow.

    Raises:
        UsageError: a parameter of another type or out of its range.
    """

    tasks: ClassVar[tuple[str, ...]] = ("similarity",)  # names of the tasks that train with it
    # Rows that it needs: "pairs", without scores; "triplets", with a negative in every row; "lists", several texts for
    # a query; "teacher", these with scores; "scores" and "binary", pairs with scores; "any".
    needs: ClassVar[Literal["pairs", "triplets", "lists", "teacher", "scores", "binary", "any"]]
    default_for: ClassVar[tuple[RowKind, ...]] = ()  # kinds of rows whose default loss it is
    score_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    uses_guide: ClassVar[bool] = False  # it masks texts by the vectors of a guide model
    metrics: ClassVar[tuple[str, ...]] = ()  # names of the sums of a `BatchLoss`, which are shown per row

    def __post_init__(self) -> None:
        check_field_types(self)

    @classmethod
    def fits(cls, scores: Sequence[float]) -> bool:
        """Whether it can learn these scores."""
        low, high = cls.score_range
        return all((score in (0, 1)) if cls.needs == "binary" else low <= score <= high for score in scores)

    @abstractmethod
    def __call__(self, vectors: Tensor, roles: Roles) -> BatchLoss:
        """The loss of (S, E) sentence vectors."""


class ScoreLoss(SentenceLoss):
    """A loss of the scores of documents: those of a cross-encoder, or similarities of sentence vectors."""

    similarity: ClassVar[Literal["cosine", "inner product"]] = "cosine"  # the score for sentence encoders
    activation: ClassVar[str] = "Identity"  # of a cross-encoder's scores, a name from OUTPUT_ACTIVATIONS

    @abstractmethod
    def of_scores(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """The loss of (D,) scores.

        Args:
            targets: (D,) scores of the data; without any, 1 for positives and 0 for negatives.
            rows: (D,) row of each document; those of a row are adjacent.
        """

    def __call__(self, vectors: Tensor, roles: Roles) -> BatchLoss:
        """As `SentenceLoss.__call__`: of the similarities of documents and their queries."""
        vectors = F.normalize(vectors, dim=-1) if self.similarity == "cosine" else vectors
        scores = (vectors[roles.document_queries] * vectors[roles.documents]).sum(dim=-1)
        return BatchLoss(self.of_scores(scores, roles.document_scores, roles.rows[roles.documents]))
