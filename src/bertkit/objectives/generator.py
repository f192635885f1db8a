"""The network of replaced token detection, a generator and a discriminator, and its loss; see `ReplacedTokens`."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.architectures import Network, NetworkOutput
from bertkit.batch import Batch
from bertkit.objectives.loader import PretrainingBatch
from bertkit.objectives.pretraining_loss import cross_entropy_sums, masked_lm_metrics
from bertkit.tasks.loss import Loss, Task, exact, mean_of
from bertkit.transformer import Encoder


@dataclass(frozen=True, eq=False)
class DetectionOutput(NetworkOutput):
    """Logits of masked_lm (P, V), the generator's, and of replaced_tokens (T,), the discriminator's."""

    drawn: Tensor | None = None  # (P,) int64, the tokens that the discriminator saw at the masked positions


class GeneratorAndDiscriminator(nn.Module):
    """Both networks; the generator uses the discriminator's embeddings, which it may project to its width."""

    def __init__(self, generator: Network, discriminator: Network) -> None:
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        for name, shared in discriminator.encoder.embeddings.named_children():
            if name != "project":
                setattr(generator.encoder.embeddings, name, shared)

    @property
    def encoder(self) -> Encoder:
        """The discriminator's."""
        return self.discriminator.encoder

    def forward(self, batch: Batch, *, masked_positions: Tensor, draws: Tensor) -> DetectionOutput:
        """Logits of both, for a batch with masked tokens and (P,) random numbers from 0 to below 1.

        The tokens that masking left at their positions are replaced, too.
        """
        logits = self.generator(batch, masked_positions=masked_positions).logits["masked_lm"]
        drawn = draw_tokens(logits.detach(), draws)
        replaced = replace(batch, input_ids=batch.input_ids.index_copy(0, masked_positions, drawn))
        output = self.discriminator(replaced)
        return DetectionOutput(output.encoded, {"masked_lm": logits, **output.logits}, drawn=drawn)


def draw_tokens(logits: Tensor, draws: Tensor) -> Tensor:
    """(P,) int64 tokens: of each row of (P, V) logits the first whose cumulative probability exceeds the number.

    Sums are of float64, so that a row's result does not depend on the other rows nor, in practice, on the device.
    """
    cumulative = exact(logits).softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)
    targets = draws[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True).squeeze(1).clamp(max=logits.shape[1] - 1)


@dataclass(frozen=True)
class ReplacedTokensTask(Task):
    """The generator's mean loss over masked tokens, plus a multiple of the discriminator's over all tokens."""

    detection_weight: float

    def totals(self, batch: PretrainingBatch) -> Tensor:
        """(2,) masked tokens and tokens."""
        return torch.tensor([len(batch.labels), batch.num_tokens], dtype=torch.float64)

    def loss(self, outputs: DetectionOutput, part: PretrainingBatch, totals: Tensor) -> Loss:
        """Both losses of a part, in nats."""
        lm_loss, lm_sums = cross_entropy_sums(outputs.logits["masked_lm"], part.labels)
        logits = exact(outputs.logits["replaced_tokens"])
        assert outputs.drawn is not None
        is_replaced = torch.zeros_like(logits).index_copy(
            0, part.masked_positions, (outputs.drawn != part.labels).to(logits.dtype)
        )
        loss = F.binary_cross_entropy_with_logits(logits, is_replaced, reduction="sum")
        flagged = (logits.detach() > 0).to(logits.dtype)
        sums = [loss.detach(), (flagged == is_replaced).sum(), is_replaced.new_tensor(len(logits)),
                (flagged * is_replaced).sum(), flagged.sum(), is_replaced.sum()]  # fmt: skip
        value = mean_of(lm_loss, totals[0]) + self.detection_weight * mean_of(loss, totals[1])
        return Loss(value, torch.cat([lm_sums, torch.stack([one.to(lm_sums.dtype) for one in sums])]))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """The loss of training; the generator's metrics of masked tokens; the discriminator's loss in nats per token,
        its accuracy, and precision and recall of replaced tokens."""
        *lm_sums, loss, num_correct, number, num_found, num_flagged, num_replaced = sums.tolist()
        masked_lm = masked_lm_metrics(*lm_sums)
        detection = loss / max(1.0, number)
        return {
            "loss": masked_lm["masked_lm_loss"] + self.detection_weight * detection,
            **masked_lm,
            "replaced_tokens_loss": detection,
            "replaced_tokens_accuracy": num_correct / max(1.0, number),
            "replaced_tokens_precision": num_found / max(1.0, num_flagged),
            "replaced_tokens_recall": num_found / max(1.0, num_replaced),
        }
