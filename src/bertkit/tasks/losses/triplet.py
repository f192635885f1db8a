"""Triplet loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bertkit.later import F, torch
from bertkit.tasks.field_types import NotNegative
from bertkit.tasks.losses.loss import BatchLoss, SentenceLoss, loss_parameter

if TYPE_CHECKING:
    from torch import Tensor

    from bertkit.tasks.similarity.rows import Roles


@dataclass(frozen=True)
class Triplet(SentenceLoss):
    """Euclidean distance to the positive - distance to the negative + margin, at least 0, averaged over triplets
    (Reimers & Gurevych 2019, section 3)."""

    margin: NotNegative = loss_parameter(1.0, "Euclidean distance between positive and negative")

    needs: ClassVar = "triplets"

    def __call__(self, vectors: Tensor, roles: Roles) -> BatchLoss:
        query, positive, negative = (vectors[indices] for indices in roles.triplets())
        nearer, farther = _distances(query, positive), _distances(query, negative)
        return BatchLoss(F.relu(nearer - farther + self.margin).mean())


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """(N,) Euclidean, with a gradient of 0 where two vectors are the same."""
    squares = (a - b).square().sum(dim=-1)
    return torch.where(squares > 0, squares, 1.0).sqrt() * (squares > 0)
