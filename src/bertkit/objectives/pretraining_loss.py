"""The loss of pre-training: mean over masked tokens plus, with sentence pairs, mean over pairs.

Devlin et al. 2018, appendix A.2: the sum of the mean masked LM likelihood and the mean next sentence likelihood. The
means are over the whole batch, for any number of parts and ranks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from bertkit.batch import IGNORED
from bertkit.later import F, torch
from bertkit.objectives.loader import PretrainingBatch
from bertkit.tasks.loss import Loss, Task, exact, mean_of

if TYPE_CHECKING:
    from torch import Tensor

    from bertkit.architectures import NetworkOutput

_LM_LOSS, _LM_CORRECT, _LM_COUNT, _NSP_LOSS, _NSP_CORRECT, _NSP_COUNT = range(6)


class PretrainingTask(Task):
    """Masked language modeling, plus next sentence prediction if batches have labels for it."""

    is_recordable: ClassVar[bool] = True

    def totals(self, batch: PretrainingBatch) -> Tensor:
        """(2,) masked tokens and sentence pairs."""
        num_pairs = 0 if batch.next_sentence_label is None else len(batch)
        return torch.tensor([len(batch.labels), num_pairs], dtype=torch.float64)

    def loss(self, outputs: NetworkOutput, part: PretrainingBatch, totals: Tensor) -> Loss:
        """Both losses of a part, in nats."""
        logits = outputs.logits
        lm_loss, lm_sums = cross_entropy_sums(logits["masked_lm"], part.labels)
        value, nsp_sums = mean_of(lm_loss, totals[0]), torch.zeros_like(lm_sums)
        if part.next_sentence_label is not None:
            nsp_loss, nsp_sums = cross_entropy_sums(logits["next_sentence"], part.next_sentence_label)
            value = value + mean_of(nsp_loss, totals[1])
        return Loss(value, torch.cat([lm_sums, nsp_sums]))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Losses in nats, accuracies, and the perplexity of masked tokens, exp(loss)."""
        numbers = sums.tolist()
        metrics = masked_lm_metrics(*numbers[: _LM_COUNT + 1])
        metrics = {"loss": metrics["masked_lm_loss"], **metrics}
        if numbers[_NSP_COUNT]:
            metrics["next_sentence_loss"] = numbers[_NSP_LOSS] / numbers[_NSP_COUNT]
            metrics["next_sentence_accuracy"] = numbers[_NSP_CORRECT] / numbers[_NSP_COUNT]
            metrics["loss"] += metrics["next_sentence_loss"]
        return metrics


def masked_lm_metrics(loss: float, num_correct: float, number: float) -> dict[str, float]:
    """Metrics of masked tokens, from the sum of their losses, and the numbers of right and of all tokens."""
    mean = loss / max(1.0, number)
    return {
        "masked_lm_loss": mean,
        "masked_lm_accuracy": num_correct / max(1.0, number),
        "masked_lm_perplexity": math.exp(min(mean, 700.0)) if mean == mean else mean,
    }


def cross_entropy_sums(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy summed over rows; and (3,) the same sum, number of correct rows, number of rows; on the device."""
    loss = F.cross_entropy(exact(logits), labels, reduction="sum", ignore_index=IGNORED)
    correct, number = (logits.detach().argmax(dim=-1) == labels).sum(), (labels != IGNORED).sum()
    return loss, torch.stack([loss.detach(), correct.to(loss.dtype), number.to(loss.dtype)])
