"""An objective, an optimizer and a schedule as a module of a user has them; `register` makes them known."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.corpus.shards import TokenShard
from bertkit.objectives import OBJECTIVES, Corruption, Objective, PretrainingBatch, Sequences, SpecialIds, TokenBlocks
from bertkit.objectives.masking import Masked
from bertkit.randomness import below, key_of, uniform
from bertkit.tasks import METRICS, Metric
from bertkit.tasks.field_types import Count, Share
from bertkit.tasks.loss import Loss, Task, exact, mean_of, sums_of
from bertkit.tokenizer import Tokenizer
from bertkit.training import OPTIMIZERS, SCHEDULES, OptimizerSettings, Schedule

# ---- the objective


@dataclass(frozen=True)
class RandomTokens(Objective):
    """Tell tokens that were replaced by random ones from the original ones."""

    share: float = 0.15

    name: ClassVar[str] = "random-tokens"
    heads: ClassVar[tuple[str, ...]] = ("replaced_tokens",)
    best_by: ClassVar[str] = "random_tokens_loss"

    @property
    def task(self) -> "RandomTokensTask":
        return RandomTokensTask()

    def source(self, shard: TokenShard, special: SpecialIds, max_seqlen: int, seed: int) -> TokenBlocks:
        return TokenBlocks(shard, special, max_seqlen, seed)

    def corruption(self, tokenizer: Tokenizer, seed: int) -> Corruption:
        return Replacement(SpecialIds.of(tokenizer), len(tokenizer.vocabulary), seed)

    def mask_rate_at(self, progress: float) -> float:
        return self.share


@dataclass(frozen=True)
class Replacement:
    """Random tokens at random positions; the labels of all tokens are 1 where they were replaced."""

    special: SpecialIds
    vocab_size: int
    seed: int

    def __call__(self, sequences: Sequences, rate: float, epoch: int, indices: np.ndarray) -> Masked:
        ids = sequences.input_ids.copy()
        for sequence, index in enumerate(indices.tolist()):
            key = np.uint64(key_of(self.seed, epoch, index))
            first, end = sequences.cu_seqlens[sequence : sequence + 2].tolist()
            for position in range(first + 1, end - 1):
                if uniform(key, 2 * (position - first)) < rate:
                    ids[position] = below(key, 2 * (position - first) + 1, self.vocab_size)
        is_replaced = (ids != sequences.input_ids).astype(np.int64)
        return Masked(ids, np.arange(len(ids)), is_replaced)


class RandomTokensTask(Task):
    is_recordable: ClassVar[bool] = True

    def totals(self, batch: PretrainingBatch) -> Tensor:
        return torch.tensor([len(batch.labels)], dtype=torch.float64)

    def loss(self, outputs: Any, part: PretrainingBatch, totals: Tensor) -> Loss:
        logits = exact(outputs.logits["replaced_tokens"])
        loss = F.binary_cross_entropy_with_logits(logits, part.labels.to(logits.dtype), reduction="sum")
        right = ((logits > 0) == part.labels.bool()).sum()
        return Loss(mean_of(loss, totals[0]), sums_of(loss, right, len(logits)))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        loss, right, number = sums.tolist()
        mean = loss / max(1.0, number)
        return {"loss": mean, "random_tokens_loss": mean, "random_tokens_accuracy": right / max(1.0, number)}


# ---- the optimizer and the schedule


@dataclass(frozen=True)
class LionSettings(OptimizerSettings):
    """Lion (Chen et al. 2023).

    Parameters
    ----------
    faster
        Decay rate of the average in the update.
    slower
        Decay rate of the average that is kept.
    """

    faster: Share = 0.9
    slower: Share = 0.99

    name: ClassVar[str] = "lion"

    def of_groups(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return Lion(groups, {"faster": self.faster, "slower": self.slower})


class Lion(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self) -> None:  # pyrefly: ignore[bad-override]
        for group in self.param_groups:
            faster, slower = group["faster"], group["slower"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                average = self.state[weight].setdefault("average", torch.zeros_like(weight))
                update = average.lerp(weight.grad, 1 - faster).sign()
                weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])
                average.lerp_(weight.grad, 1 - slower)


@dataclass(frozen=True)
class Waves(Schedule):
    """Down in waves.

    Parameters
    ----------
    num_waves
        Number of waves.
    """

    num_waves: Count = 3

    name: ClassVar[str] = "waves"

    def after_warmup(self, progress: float) -> float:
        return (1 - progress) * (0.75 + 0.25 * math.cos(2 * self.num_waves * math.pi * progress))


def register() -> None:
    OBJECTIVES[RandomTokens.name] = RandomTokens
    METRICS[RandomTokens.best_by] = Metric(higher_is_better=False, is_share=False)
    OPTIMIZERS[LionSettings.name] = LionSettings
    SCHEDULES[Waves.name] = Waves
