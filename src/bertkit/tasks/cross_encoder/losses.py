"""Losses of cross-encoder scores. Shape letters: S pairs of a batch, n texts of one query.

Targets are 1 and 0 for positives and negatives, or the scores of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bertkit.later import F, torch

if TYPE_CHECKING:
    from torch import Tensor


_WEIGHT_OF_DISTANCE = 10.0
"""mu of NDCG-Loss2++ (Wang et al. 2018, section 4.3)."""


def cross_entropy(scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """Binary cross-entropy of each score with its target from 0 to 1, averaged over pairs; nats."""
    return F.binary_cross_entropy_with_logits(scores, targets)


def squared_error(scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """Squared difference of score and target, averaged over pairs."""
    return (scores - targets).square().mean()


def margins(scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """MarginMSE (Hofstätter et al. 2020): squared difference between the margins of scores and of targets, for the
    first text of a query and each other text; averaged over margins."""
    apart = [(part[0] - part[1:]) - (target[0] - target[1:]) for part, target in lists(scores, targets, rows)]
    return torch.cat(apart).square().sum() / max(sum(map(len, apart)), 1)


def lambda_loss(scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """NDCG-Loss2++ (Wang et al. 2018, "The LambdaLoss framework for ranking metric optimization"): for every two texts
    of a query with different targets, -log2 of the sigmoid of the score difference, weighted by the change of nDCG when
    they are swapped; averaged over these pairs."""
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


def lists(scores: Tensor, targets: Tensor, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Scores and targets of each row, whose texts are adjacent."""
    sizes = rows.unique_consecutive(return_counts=True)[1].tolist()
    return list(zip(scores.split(sizes), targets.split(sizes), strict=True))


OBJECTIVES: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "cross-entropy": cross_entropy,
    "squared-error": squared_error,
    "lambda": lambda_loss,
    "margin": margins,
}
