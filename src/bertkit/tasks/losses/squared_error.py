"""Squared error of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bertkit.tasks.losses.loss import RowKind, ScoreLoss

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SquaredError(ScoreLoss):
    """Squared difference of score and target, averaged over texts."""

    tasks: ClassVar[tuple[str, ...]] = ("cross-encoder",)
    needs: ClassVar = "any"
    default_for: ClassVar[tuple[RowKind, ...]] = ("scores",)

    def __call__(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """As `ScoreLoss.__call__`."""
        return (scores - targets).square().mean()


@dataclass(frozen=True)
class Cosine(SquaredError):
    """Squared difference of cosine and score, averaged over pairs (Reimers & Gurevych 2019, section 3)."""

    tasks: ClassVar[tuple[str, ...]] = ("similarity",)
    needs: ClassVar = "scores"
    default_for: ClassVar[tuple[RowKind, ...]] = ()
    score_range: ClassVar[tuple[float, float]] = (-1, 1)
