"""Replaced token detection: ELECTRA's objective (Clark et al. 2020, section 2).

A generator, a smaller masked LM, predicts masked tokens. Each is replaced by a token drawn from its prediction, and the
model, the discriminator, learns for every token of the sequence whether it was replaced; a drawn token that is the
original one was not. Both share their embeddings, and their losses are added: the mean over masked tokens, and 50 times
the mean over all tokens. The generator learns from its own loss alone, and is not needed afterwards.

The number that draws a token depends only on the seed, the epoch, the index of the sequence and the position in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.architectures import Network, NetworkOutput
from bertkit.batch import Batch
from bertkit.compiled import compiled
from bertkit.objectives.loader import Corruption, PretrainingBatch
from bertkit.objectives.masked_lm import MaskedLM
from bertkit.objectives.masking import Masked
from bertkit.objectives.objective import Companion
from bertkit.objectives.pretraining_loss import cross_entropy_sums, masked_lm_metrics
from bertkit.objectives.sequences import Sequences
from bertkit.randomness import key_of, uniform
from bertkit.tasks.field_types import AboveZero, Range
from bertkit.tasks.loss import Loss, Task, exact, mean_of
from bertkit.tokenizer import Tokenizer
from bertkit.transformer import Encoder

GENERATOR = "generator"
"""Name of the generator among the companions, and of its folder."""
_DRAWS = 2  # the random stream of a sequence; those of `Masking` are 0 and 1


_ShareOfWidth = Annotated[
    float, Range("a share of the discriminator's width, above 0 and at most 1", lambda value: 0 < value <= 1)
]


@dataclass(frozen=True)
class ReplacedTokens(MaskedLM):
    """Tell tokens that a generator replaced from the original ones."""

    generator_size: _ShareOfWidth = (
        0.25  # width of the generator's layers as a share of the model's; their number is equal
    )
    detection_weight: AboveZero = 50.0  # factor of the discriminator's loss (Clark et al. 2020, appendix A)

    name: ClassVar[str] = "replaced-tokens"
    heads: ClassVar[tuple[str, ...]] = ("replaced_tokens",)
    best_by: ClassVar[str] = "loss"
    compiles: ClassVar[bool] = False  # filler would count as tokens
    replacement: ClassVar[tuple[float, float]] = (0.85, 1.0)  # google-research/electra, pretrain_helpers.py, mask

    @property
    def task(self) -> "ReplacedTokensTask":
        return ReplacedTokensTask(self.detection_weight)

    def corruption(self, tokenizer: Tokenizer, seed: int) -> Corruption:
        return WithDraws(super().corruption(tokenizer, seed), seed)

    def companions(self, config: Any) -> dict[str, Companion]:
        num_heads = max(1, round(config.num_attention_heads * self.generator_size))
        width = num_heads * max(1, round(config.hidden_size * self.generator_size / num_heads))
        changes = {  # of the config of an architecture with a replaced_tokens head
            "hidden_size": width,
            "num_attention_heads": num_heads,
            "intermediate_size": max(1, round(config.intermediate_size * self.generator_size)),
            "embedding_size": config.embedding_width,
        }
        return {GENERATOR: Companion(replace(config, **changes), ("masked_lm",))}

    def network(self, network: Network, companions: Mapping[str, Network]) -> "GeneratorAndDiscriminator":
        return GeneratorAndDiscriminator(companions[GENERATOR], network)


@dataclass(frozen=True)
class WithDraws:
    """A corruption, with a random number for each position to predict."""

    corruption: Corruption
    seed: int

    def __call__(self, sequences: Sequences, rate: float, epoch: int, indices: np.ndarray) -> Masked:
        masked = self.corruption(sequences, rate, epoch, indices)
        draws = _draws(masked.positions, sequences.cu_seqlens, self.seed, epoch, indices)
        return masked._replace(draws=draws)


@compiled
def _draws(positions, cu_seqlens, seed, epoch, indices):
    draws, sequence = np.empty(len(positions)), 0
    for i in range(len(positions)):
        while positions[i] >= cu_seqlens[sequence + 1]:
            sequence += 1
        key = key_of(key_of(seed, epoch, indices[sequence]), _DRAWS, 0)
        draws[i] = uniform(key, positions[i] - cu_seqlens[sequence])
    return draws


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
