"""LambdaLoss of cross-encoders. Shape letters: n texts of one query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bertkit.later import F, torch
from bertkit.tasks.losses.loss import RowKind, ScoreLoss, lists

if TYPE_CHECKING:
    from torch import Tensor

_WEIGHT_OF_DISTANCE = 10.0
"""mu of NDCG-Loss2++ (Wang et al. 2018, section 4.3)."""


@dataclass(frozen=True)
class LambdaLoss(ScoreLoss):
    """NDCG-Loss2++ (Wang et al. 2018, "The LambdaLoss framework for ranking metric optimization"): for every two texts
    of a query with different targets, -log2 of the sigmoid of the score difference, weighted by the change of nDCG when
    they are swapped; averaged over these pairs."""

    tasks: ClassVar[tuple[str, ...]] = ("cross-encoder",)
    needs: ClassVar = "lists"
    default_for: ClassVar[tuple[RowKind, ...]] = ("pairs",)

    def __call__(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """As `ScoreLoss.__call__`."""
        losses = [_of_list(part, target) for part, target in lists(scores, targets, rows)]
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
