"""Losses for several texts of a query with scores of a teacher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bertkit.later import F, torch
from bertkit.tasks.losses.loss import RowKind, ScoreLoss, lists, parameter

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Margin(ScoreLoss):
    """MarginMSE (Hofstätter et al. 2020): squared difference between the margins of scores and of targets, for the
    first text of a query and each other text; averaged over margins."""

    tasks: ClassVar[tuple[str, ...]] = ("similarity", "cross-encoder")
    needs: ClassVar = "teacher"
    default_for: ClassVar[tuple[RowKind, ...]] = ("teacher",)
    similarity: ClassVar[str] = "product"

    def __call__(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """As `ScoreLoss.__call__`."""
        apart = [(part[0] - part[1:]) - (target[0] - target[1:]) for part, target in lists(scores, targets, rows)]
        return torch.cat(apart).square().sum() / max(sum(map(len, apart)), 1)


@dataclass(frozen=True)
class Divergence(ScoreLoss):
    """Kullback-Leibler divergence, nats, between the softmax over the texts of a row of scores and of targets, both
    over a temperature; averaged over rows, times the squared temperature (Lin et al. 2020)."""

    temperature: float = parameter(1.0, "divisor of scores and of those of the teacher", above=0)

    tasks: ClassVar[tuple[str, ...]] = ("similarity", "cross-encoder")
    needs: ClassVar = "teacher"
    similarity: ClassVar[str] = "product"

    def __call__(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """As `ScoreLoss.__call__`."""
        parts = [
            F.kl_div(
                (of_row / self.temperature).log_softmax(0), (of_teacher / self.temperature).log_softmax(0),
                reduction="sum", log_target=True,
            )
            for of_row, of_teacher in lists(scores, targets, rows)
        ]  # fmt: skip
        return torch.stack(parts).mean() * self.temperature**2
