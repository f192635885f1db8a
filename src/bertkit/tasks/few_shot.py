"""Few-shot classification (SetFit): vectors that separate the labels, learned from few examples, then a linear layer.

Tunstall et al. 2022, "Efficient few-shot learning without prompts" (SetFit), with the supervised contrastive loss
(Khosla et al. 2020, equation 2) over all texts of a batch instead of single pairs. Shape letters: N texts, C
labels, D hidden_size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bertkit.batch import LabeledBatch
from bertkit.compiled import compiled
from bertkit.errors import UsageError
from bertkit.later import torch
from bertkit.randomness import below, in_random_order, key_of
from bertkit.tasks.cross_entropy import ClassLoss
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.loss import Loss, LossFunction, mean_of, sums_of
from bertkit.tasks.sequence_classification import SequenceClassification
from bertkit.tasks.task import Option

if TYPE_CHECKING:
    from torch import Tensor

TEMPERATURE = 0.05
"""Temperature of the loss, as in SimCSE (Gao et al. 2021, section 3)."""


ROUNDS = 4
"""Number of times that a text is drawn per epoch, each time with a random partner."""
_PARTNER = 0xFA12  # distinguishes the key of a partner from those of other draws


@dataclass(frozen=True)
class ContrastFeed(LabeledFeed):
    """Pairs with the same label: in an epoch every text is drawn ROUNDS times, in random order, each time with a
    random partner among the others with its label. The pairs depend only on seed, epoch and index."""

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise UsageError(f"batch_size={self.batch_size}: expected at least 2, as the loss compares pairs")

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches per epoch; the last one is filled from the beginning of the epoch."""
        return -(-len(self.data) * ROUNDS // self.batch_size)

    def batch(self, position: int, progress: float) -> LabeledBatch:
        """As `LabeledFeed.batch`: each text is followed by its partner."""
        epoch, number = divmod(position, self.batches_per_epoch)
        total = len(self.data) * ROUNDS
        indices = np.arange(number * self.batch_size, (number + 1) * self.batch_size) % total
        draws = self._share(in_random_order(indices, total, self.seed, epoch))
        texts = draws % len(self.data)
        partners = _partners(self.data.labels, *self._by_label, texts, draws, self.seed, epoch)
        return self.data.take(np.stack([texts, partners], axis=1).ravel())

    @cached_property
    def _by_label(self) -> tuple[np.ndarray, np.ndarray]:
        """(N,) texts in order of their labels, and (C + 1,) the start of each label."""
        labels = self.data.labels
        order = np.argsort(labels, kind="stable")
        return order, np.searchsorted(labels[order], np.arange(labels.max() + 2))


@compiled
def _partners(labels, order, starts, texts, draws, seed, epoch):
    """(n,) int64: a partner with the same label for each of (n,) ``texts``, by draw number."""
    partners = np.empty(len(texts), np.int64)
    for i in range(len(texts)):
        label = labels[texts[i]]
        num_others = starts[label + 1] - starts[label] - 1
        index = starts[label] + below(key_of(seed ^ _PARTNER, epoch, draws[i]), 0, num_others)
        partners[i] = order[index + 1] if order[index] >= texts[i] else order[index]
    return partners


@dataclass(frozen=True)
class FewShotClassification(SequenceClassification):
    """One label of C for each text; vectors are trained by a contrastive loss, and a linear layer is fitted to them
    afterwards."""

    name: ClassVar[str] = "few-shot-classification"
    guess_rank = None
    head: ClassVar[str] = "vector_classification"

    options: ClassVar[Mapping[str, Option]] = {}
    training_defaults: ClassVar[Mapping[str, Any]] = {"learning_rate": 2e-5, "num_epochs": 3}
    peft_type: ClassVar[str | None] = None
    of_vectors: ClassVar[bool] = True
    feed: ClassVar[type[LabeledFeed]] = ContrastFeed

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> None:
        """See `TextTask.of_published`: no published model has this head."""
        return None

    @property
    def loss_function(self) -> ContrastLoss:  # pyrefly: ignore
        return ContrastLoss()

    @property
    def fitting_loss(self) -> ClassLoss:
        """As `TextTask.fitting_loss`: logistic regression."""
        return ClassLoss()


class ContrastLoss(LossFunction):
    """Supervised contrastive loss of (N, D) vectors of length 1, in nats: negative log-likelihood of the other texts
    with the same label among the batch, by cosine; the mean over those, then over the texts that have any.

    ``nearest_accuracy`` is the share of texts whose nearest text in the batch has the same label.
    """

    of_vectors: ClassVar[bool] = True
    shares: ClassVar[tuple[str, ...]] = ("nearest_accuracy",)

    def totals(self, batch: LabeledBatch) -> Tensor:
        """(1,) number of texts with another text of the same label in the batch."""
        return torch.tensor([_same(batch.labels).any(dim=-1).sum()], dtype=torch.float64)

    def loss(self, outputs: Tensor, part: LabeledBatch, totals: Tensor) -> Loss:
        same = _same(part.labels)
        itself = torch.eye(len(same), dtype=torch.bool, device=same.device)
        scores = (outputs @ outputs.T / TEMPERATURE).masked_fill(itself, float("-inf"))  # (N, N)
        log_shares = scores.log_softmax(dim=-1).masked_fill(~same, 0.0)
        loss = -(log_shares.sum(dim=-1) / same.sum(dim=-1).clamp(min=1)).sum()
        nearest = same.gather(-1, scores.detach().argmax(dim=-1, keepdim=True)).sum()
        return Loss(mean_of(loss, totals[0]), sums_of(loss, nearest, totals[0]))


def _same(labels: Tensor) -> Tensor:
    """(N, N) bool: True for other texts with the same label."""
    return (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
