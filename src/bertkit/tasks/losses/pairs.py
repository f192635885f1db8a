"""Losses of scores of pairs. Shape letters: D documents, each with its query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bertkit.later import F, torch
from bertkit.tasks.field_types import AboveZero, NotNegative
from bertkit.tasks.losses.loss import RowKind, ScoreLoss, loss_parameter

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Cosent(ScoreLoss):
    """CoSENT (Su 2022; Huang et al. 2024): for every two pairs with different scores, the one with the higher score
    should have the higher cosine: log(1 + sum of exp((cosine of the lower - cosine of the higher) / temperature))."""

    temperature: AboveZero = loss_parameter(0.05, "divisor of cosines")

    needs: ClassVar = "scores"
    default_for: ClassVar[tuple[RowKind, ...]] = ("scores",)

    def of_scores(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        scores = scores / self.temperature
        is_lower = targets[:, None] < targets  # (D, D)
        differences = (scores[:, None] - scores)[is_lower]
        return torch.cat([differences, differences.new_zeros(1)]).logsumexp(dim=0)


@dataclass(frozen=True)
class Contrastive(ScoreLoss):
    """Contrastive loss (Hadsell et al. 2006): squared cosine distance of pairs with score 1, squared shortfall from a
    margin for 0, summed over the hard pairs: 1s farther than the nearest 0, 0s nearer than the farthest 1."""

    margin: NotNegative = loss_parameter(0.5, "cosine distance of pairs with 0")

    needs: ClassVar = "binary"
    default_for: ClassVar[tuple[RowKind, ...]] = ("binary",)

    def of_scores(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        distances = 1 - scores
        ones, zeros = distances[targets == 1], distances[targets == 0]
        hard_ones = ones[ones > (zeros.min() if len(zeros) else ones.mean())]
        hard_zeros = zeros[zeros < (ones.max() if len(ones) else zeros.mean())]
        return hard_ones.square().sum() + F.relu(self.margin - hard_zeros).square().sum()


@dataclass(frozen=True)
class SquaredError(ScoreLoss):
    """Squared difference of score and target, averaged over pairs."""

    tasks: ClassVar[tuple[str, ...]] = ("cross-encoder",)
    needs: ClassVar = "any"
    default_for: ClassVar[tuple[RowKind, ...]] = ("scores",)

    def of_scores(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        return (scores - targets).square().mean()


@dataclass(frozen=True)
class Cosine(SquaredError):
    """Squared difference of cosine and score, averaged over pairs (Reimers & Gurevych 2019, section 3)."""

    tasks: ClassVar[tuple[str, ...]] = ("similarity",)
    needs: ClassVar = "scores"
    default_for: ClassVar[tuple[RowKind, ...]] = ()
    score_range: ClassVar[tuple[float, float]] = (-1, 1)


@dataclass(frozen=True)
class CrossEntropy(ScoreLoss):
    """Binary cross-entropy of each score with its target from 0 to 1, averaged over pairs; nats."""

    tasks: ClassVar[tuple[str, ...]] = ("cross-encoder",)
    needs: ClassVar = "any"
    default_for: ClassVar[tuple[RowKind, ...]] = ("scores", "binary")
    score_range: ClassVar[tuple[float, float]] = (0, 1)
    activation: ClassVar[str] = "Sigmoid"

    def of_scores(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(scores, targets)
