"""Cross-entropy of the next token, with label smoothing."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.sequence_training.batches import SequenceBatch
from bertkit.tasks.loss import Loss, LossFunction, mean_of, sums_of


@dataclass(frozen=True)
class SequenceLoss(LossFunction):
    """Mean cross-entropy over the tokens of a batch, for any number of parts.

    With label smoothing the target is ``1 - smoothing`` for the right token, with the rest distributed equally over the
    vocabulary (Szegedy et al. 2016; Vaswani et al. 2017, section 5.4); the reported loss is without smoothing.
    """

    label_smoothing: float = 0.0

    def loss(self, outputs: Any, part: SequenceBatch, totals: Tensor) -> Loss:
        """As `Task.loss`, from logits (T, V), or from the output of `Network`."""
        logits = (outputs if isinstance(outputs, Tensor) else outputs.logits["masked_lm"]).float()
        smoothed = F.cross_entropy(logits, part.labels, reduction="sum", label_smoothing=self.label_smoothing)
        with torch.no_grad():
            plain = F.cross_entropy(logits, part.labels, reduction="sum") if self.label_smoothing else smoothed.detach()
            correct = (logits.argmax(dim=-1) == part.labels).sum()
        return Loss(mean_of(smoothed, totals[0]), sums_of(plain, correct, len(part.labels)))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """The loss in nats, the perplexity, and the accuracy."""
        loss, correct, count = sums.tolist()
        loss /= max(1.0, count)
        perplexity = math.exp(min(loss, 700.0)) if loss == loss else loss
        return {"loss": loss, "perplexity": perplexity, "token_accuracy": correct / max(1.0, count)}
