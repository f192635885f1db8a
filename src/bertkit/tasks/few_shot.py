"""Few-shot classification (SetFit): vectors that separate the labels, learned from few examples, then a linear layer.

Tunstall et al. 2022, "Efficient few-shot learning without prompts" (SetFit), with the supervised contrastive loss
(Khosla et al. 2020, equation 2) among groups of texts in place of one pair at a time. Shape letters: N texts, C labels,
G groups, K texts of a group, D hidden_size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from bertkit.architectures import Network, NetworkOutput
from bertkit.batch import LabeledBatch, LabeledEncodings
from bertkit.compiled import compiled
from bertkit.errors import UsageError
from bertkit.randomness import below, in_random_order, key_of
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.logistic_regression import logistic_regression
from bertkit.tasks.sequence_classification import SequenceClassification
from bertkit.tasks.task import Encode, Loss, Option

TEMPERATURE = 0.05
"""What cosines are divided by in the loss: that of SimCSE (Gao et al. 2021, section 3)."""


@dataclass(frozen=True)
class FewShotClassification(SequenceClassification):
    """One label of C for each text; the loss is that of the vectors, the linear layer is fitted to them afterwards."""

    name: ClassVar[str] = "few-shot-classification"
    head: ClassVar[str] = "vector_classification"

    options: ClassVar[Mapping[str, Option]] = {}
    training_defaults: ClassVar[Mapping[str, Any]] = {"learning_rate": 2e-5, "num_epochs": 3}
    peft_type: ClassVar[str | None] = None
    trains_vectors: ClassVar[bool] = True

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> None:
        """As `TextTask.of_published`: no published model has this head."""
        return None

    def feed(self, data: LabeledEncodings, batch_size: int, seed: int) -> "ContrastFeed":
        """As `TextTask.feed`: groups of pairs."""
        return ContrastFeed(data, batch_size, seed)

    def fit_head(self, network: Network, encode: Encode, labels: np.ndarray) -> None:
        """As `TextTask.fit_head`: logistic regression over the vectors that the encoder computes now."""
        head: Any = network.heads[self.head]
        weight, bias = logistic_regression(encode(head.vectors), torch.from_numpy(labels), len(self.label_names))
        with torch.no_grad():
            head.classifier.weight.copy_(weight)
            head.classifier.bias.copy_(bias)

    def totals(self, batch: LabeledBatch) -> Tensor:
        """(1,) texts that have another of their label in their group."""
        return torch.tensor([_same(batch.labels).any(dim=-1).sum()], dtype=torch.float64)

    def loss(self, outputs: NetworkOutput, part: LabeledBatch, totals: Tensor) -> Loss:
        """How unlikely each text finds the others of its label among those of its group, by their cosines: in nats, the
        mean over those others, then over the texts that have any."""
        assert outputs.vectors is not None  # the head of this task reads them
        loss, is_nearest = contrast(outputs.vectors.float().view(len(part), part.group_size, -1), part.labels)
        sums = torch.stack([loss.detach().double(), is_nearest.double()]).cpu()
        return Loss(loss / max(float(totals[0]), 1.0), torch.cat([sums, self.totals(part)]))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Loss, and the share of texts whose nearest one in their group has their label."""
        loss, nearest, number = sums.tolist()
        return {"loss": loss / max(number, 1), "nearest_accuracy": nearest / max(number, 1)}


PAIRS_PER_GROUP = 16
"""At most; a group is what is told apart, and each core takes groups of its own."""
ROUNDS = 4
"""How often a text is drawn in an epoch, each time with another partner."""
_PARTNER = 0xFA12  # tells the key of a partner from those of other draws


@dataclass(frozen=True)
class ContrastFeed(LabeledFeed):
    """Groups of pairs of one label: in an epoch every text ROUNDS times, each time with a partner drawn among the
    others of its label. Which they are is a function of seed, epoch and place alone."""

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise UsageError(f"batch_size={self.batch_size}: telling texts apart takes 2 pairs or more")

    @property
    def num_groups(self) -> int:
        """Of a batch."""
        return -(-self.batch_size // PAIRS_PER_GROUP)

    @property
    def num_pairs(self) -> int:
        """Of a batch, as many in each group: ``batch_size``, or a little less."""
        return self.batch_size // self.num_groups * self.num_groups

    @property
    def batches_per_epoch(self) -> int:
        """The last one is filled up from the beginning of the epoch."""
        return -(-len(self.data) * ROUNDS // self.num_pairs)

    def batch(self, position: int, done: float) -> LabeledBatch:
        """As `LabeledFeed.batch`; a row of labels is that of a group."""
        epoch, number = divmod(position, self.batches_per_epoch)
        total = len(self.data) * ROUNDS
        places = np.arange(number * self.num_pairs, (number + 1) * self.num_pairs) % total
        draws = in_random_order(places, total, self.seed, epoch)
        texts = draws % len(self.data)
        partners = _partners(self.data.labels, *self._by_label, texts, draws, self.seed, epoch)
        flat = self.data.take(np.stack([texts, partners], axis=1).ravel())
        labels = flat.labels.view(self.num_groups, -1)
        return replace(flat, labels=labels, group_size=labels.shape[1])

    @cached_property
    def _by_label(self) -> tuple[np.ndarray, np.ndarray]:
        """(N,) the texts in order of their labels, and (C + 1,) where those of each label begin."""
        labels = self.data.labels
        order = np.argsort(labels, kind="stable")
        return order, np.searchsorted(labels[order], np.arange(labels.max() + 2))


@compiled
def _partners(labels, order, starts, texts, draws, seed, epoch):
    """(n,) int64: for each of (n,) ``texts`` another one of its label, by the number of its draw."""
    found = np.empty(len(texts), np.int64)
    for i in range(len(texts)):
        label = labels[texts[i]]
        num_others = starts[label + 1] - starts[label] - 1
        place = starts[label] + below(key_of(seed ^ _PARTNER, epoch, draws[i]), 0, num_others)
        found[i] = order[place + 1] if order[place] >= texts[i] else order[place]
    return found


def contrast(vectors: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of (G, K, D) vectors of length 1 with (G, K) labels, summed over texts; and how many of them have one of
    their label nearest."""
    same = _same(labels)
    itself = torch.eye(labels.shape[1], dtype=torch.bool, device=labels.device)
    scores = (vectors @ vectors.transpose(1, 2) / TEMPERATURE).masked_fill(itself, float("-inf"))  # (G, K, K)
    log_shares = scores.log_softmax(dim=-1).masked_fill(~same, 0.0)
    loss = -(log_shares.sum(dim=-1) / same.sum(dim=-1).clamp(min=1)).sum()
    nearest = scores.detach().argmax(dim=-1, keepdim=True)
    return loss, same.gather(-1, nearest).sum()


def _same(labels: Tensor) -> Tensor:
    """(G, K, K) bool: which texts are others of a text's label."""
    itself = torch.eye(labels.shape[1], dtype=torch.bool, device=labels.device)
    return (labels[:, :, None] == labels[:, None, :]) & ~itself
