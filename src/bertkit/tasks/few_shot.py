"""Which label has a text, learned from few examples of each: vectors that tell the labels apart, then a linear layer.

Tunstall et al. 2022, "Efficient few-shot learning without prompts" (SetFit), with the supervised contrastive loss
(Khosla et al. 2020, equation 2) among groups of texts in place of one pair at a time. Shape letters: G groups, K texts
of a group, D hidden_size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bertkit.architectures import Network
from bertkit.batch import LabeledBatch
from bertkit.heads import VectorClassificationHead
from bertkit.tasks.sequence_classification import SequenceClassification
from bertkit.tasks.task import Loss
from bertkit.tasks.texts import TextExample, check_options

TEMPERATURE = 0.05
"""What cosines are divided by in the loss: that of SimCSE (Gao et al. 2021, section 3)."""


@dataclass(frozen=True)
class FewShotClassification(SequenceClassification):
    """One label of C for each text; the loss is that of the vectors, the linear layer is fitted to them afterwards."""

    name: ClassVar[str] = "few-shot-classification"
    head: ClassVar[str] = "vector_classification"

    @classmethod
    def of_examples(cls, examples: Sequence[TextExample], options: Mapping[str, Any]) -> Self:
        """As `TextTask.of_examples`; there are no options.

        Raises:
            DataError: fewer than two labels, or one that only one example has.
        """
        check_options(options, (), cls.name)
        return super().of_examples(examples, {})

    def totals(self, batch: LabeledBatch) -> Tensor:
        """(1,) texts that have another of their label in their group."""
        return torch.tensor([_same(batch.labels).any(dim=-1).sum()], dtype=torch.float64)

    def loss(self, network: nn.Module, part: LabeledBatch, totals: Tensor) -> Loss:
        """How unlikely each text finds the others of its label among those of its group, by their cosines: in nats, the
        mean over those others, then over the texts that have any."""
        assert isinstance(network, Network)
        head = network.heads[self.head]
        assert isinstance(head, VectorClassificationHead)
        vectors = head.vectors(network.encoder(part.batch, with_pooled=False), part.batch).float()
        loss, is_nearest = contrast(vectors.view(len(part), part.group_size, -1), part.labels)
        sums = torch.stack([loss.detach().double(), is_nearest.double()]).cpu()
        return Loss(loss / max(float(totals[0]), 1.0), torch.cat([sums, self.totals(part)]))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Loss, and the share of texts whose nearest one in their group has their label."""
        loss, nearest, number = sums.tolist()
        return {"loss": loss / max(number, 1), "nearest_accuracy": nearest / max(number, 1)}


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
