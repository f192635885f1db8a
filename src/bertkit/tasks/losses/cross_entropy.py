"""Cross-entropy of the scores of cross-encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bertkit.later import F
from bertkit.tasks.losses.loss import RowKind, ScoreLoss

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CrossEntropy(ScoreLoss):
    """Binary cross-entropy of each score with its target from 0 to 1, averaged over texts; nats."""

    tasks: ClassVar[tuple[str, ...]] = ("cross-encoder",)
    needs: ClassVar = "any"
    default_for: ClassVar[tuple[RowKind, ...]] = ("scores", "binary")
    score_range: ClassVar[tuple[float, float]] = (0, 1)
    activation: ClassVar[str] = "Sigmoid"

    def __call__(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """As `ScoreLoss.__call__`."""
        return F.binary_cross_entropy_with_logits(scores, targets)
