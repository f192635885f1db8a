"""Losses of scores of several texts of each query. Shape letters: n texts of one query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bertkit.later import F, torch
from bertkit.tasks.field_types import AboveZero
from bertkit.tasks.losses.loss import RowKind, ScoreLoss, loss_parameter

if TYPE_CHECKING:
    from torch import Tensor

_WEIGHT_OF_DISTANCE = 10.0
"""mu of NDCG-Loss2++ (Wang et al. 2018, section 4.3)."""


@dataclass(frozen=True)
class Margin(ScoreLoss):
    """MarginMSE (Hofstätter et al. 2020): squared difference between the margins of scores and of targets, for the
    first text of a query and each other text; averaged over margins."""

    tasks: ClassVar[tuple[str, ...]] = ("similarity", "cross-encoder")
    needs: ClassVar = "teacher"
    default_for: ClassVar[tuple[RowKind, ...]] = ("teacher",)
    similarity: ClassVar = "inner product"

    def of_scores(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        apart = [(part[0] - part[1:]) - (target[0] - target[1:]) for part, target in _lists(scores, targets, rows)]
        return torch.cat(apart).square().sum() / max(sum(map(len, apart)), 1)


@dataclass(frozen=True)
class Divergence(ScoreLoss):
    """Kullback-Leibler divergence, nats, between the softmax over the texts of a row of scores and of targets, both
    over a temperature; averaged over rows, times the squared temperature (Lin et al. 2020)."""

    temperature: AboveZero = loss_parameter(1.0, "divisor of scores and of those of the teacher")

    tasks: ClassVar[tuple[str, ...]] = ("similarity", "cross-encoder")
    needs: ClassVar = "teacher"
    similarity: ClassVar = "inner product"

    def of_scores(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        parts = [
            F.kl_div(
                (of_row / self.temperature).log_softmax(0), (of_teacher / self.temperature).log_softmax(0),
                reduction="sum", log_target=True,
            )
            for of_row, of_teacher in _lists(scores, targets, rows)
        ]  # fmt: skip
        return torch.stack(parts).mean() * self.temperature**2


@dataclass(frozen=True)
class LambdaLoss(ScoreLoss):
    """NDCG-Loss2++ (Wang et al. 2018, "The LambdaLoss framework for ranking metric optimization"): for every two texts
    of a query with different targets, -log2 of the sigmoid of the score difference, weighted by the change of nDCG when
    they are swapped; averaged over these pairs."""

    tasks: ClassVar[tuple[str, ...]] = ("cross-encoder",)
    needs: ClassVar = "lists"
    default_for: ClassVar[tuple[RowKind, ...]] = ("pairs",)

    def of_scores(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        losses = [_of_list(part, target) for part, target in _lists(scores, targets, rows)]
        return torch.cat(losses).sum() / max(sum(map(len, losses)), 1)


def _of_list(scores: Tensor, targets: Tensor) -> Tensor:
    """The weighted losses of the pairs of texts of one query."""
    order = scores.detach().argsort(descending=True)
    scores, targets = scores[order], targets[order]
    grades = targets.clamp(min=0)
    gains = (grades - grades.max()).exp2() - (-grades.max()).exp2()  # up to a factor: 2**128 would be infinite
    ranks = torch.arange(1, len(scores) + 1, device=scores.device)
    discounts = (1 + ranks).log2().reciprocal()  # (n,)
    gains = gains / (gains.sort(descending=True).values * discounts).sum().clamp(min=1e-10)
    distance = (ranks[:, None] - ranks).abs()  # (n, n)
    of_distance = (1 + distance.clamp(min=1)).log2().reciprocal() - (2 + distance).log2().reciprocal()
    by_rank = (discounts[:, None] - discounts).abs()
    weights = (_WEIGHT_OF_DISTANCE * of_distance + by_rank) * (gains[:, None] - gains).abs()
    losses = -weights * F.logsigmoid(scores[:, None] - scores) / math.log(2)
    return losses[targets[:, None] > targets]


def _lists(scores: Tensor, targets: Tensor, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Scores and targets of each row, whose texts are adjacent."""
    sizes = rows.unique_consecutive(return_counts=True)[1].tolist()
    return list(zip(scores.split(sizes), targets.split(sizes), strict=True))
