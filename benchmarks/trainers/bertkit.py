"""bertkit: packed batches, one for each core; only the masked positions are projected to the vocabulary."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from masked_text import NOT_PREDICTED, Example, num_masked, num_tokens
from torch import Tensor

import bertkit
from bertkit import Batch
from bertkit.architectures import Network
from bertkit.tasks import Loss
from bertkit.training import compute_gradients
from trainers import LEARNING_RATE, ByName


class Trainer(ByName):
    def __init__(self, precision: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.dtype, self.num_parts = getattr(torch, precision), threads

    def prepare(self, folder: Path, dropout: float) -> None:
        published = bertkit.load(folder, device="cpu").network
        config = replace(published.config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        self.network = Network(config, ("masked_lm",))
        self.network.load_state_dict(published.state_dict())
        self.parameters = list(self.network.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, LEARNING_RATE, fused=True)

    def step(self, examples: Sequence[Example], seed: int) -> float:
        self.network.train()
        batches = [_pack(part) for part in _parts_of_like_size(examples, self.num_parts)]
        share = 1 / num_masked(examples)

        def loss(packed: tuple[Batch, Tensor]) -> Loss:
            value = share * self._sum_of_losses(packed)
            return Loss(value, value.detach())

        losses = compute_gradients(self.parameters, batches, loss, dtype=self.dtype, seed=seed)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(sum(loss.sums for loss in losses))

    @torch.no_grad()
    def evaluate(self, examples: Sequence[Example]) -> float:
        self.network.eval()
        return float(self._sum_of_losses(_pack(examples))) / num_masked(examples)

    def _sum_of_losses(self, packed: tuple[Batch, Tensor]) -> Tensor:
        batch, labels = packed
        (positions,) = torch.nonzero(labels != NOT_PREDICTED, as_tuple=True)
        logits = self.network(batch, masked_positions=positions).logits["masked_lm"]
        return torch.nn.functional.cross_entropy(logits, labels[positions], reduction="sum")


def _pack(examples: Sequence[Example]) -> tuple[Batch, Tensor]:
    """A Batch and its labels, (T,)."""
    lengths = np.array([len(example.input_ids) for example in examples])
    cu_seqlens = np.cumsum([0, *lengths], dtype=np.int32)
    input_ids = torch.from_numpy(np.concatenate([example.input_ids for example in examples]))
    batch = Batch(
        input_ids=input_ids,
        token_type_ids=torch.zeros_like(input_ids),
        position_ids=torch.from_numpy(np.arange(cu_seqlens[-1]) - np.repeat(cu_seqlens[:-1], lengths)),
        cu_seqlens=torch.from_numpy(cu_seqlens),
        max_seqlen=int(lengths.max()),
        num_positions=int(lengths.max()),
    )
    return batch, torch.from_numpy(np.concatenate([example.labels for example in examples]))


def _parts_of_like_size(examples: Sequence[Example], count: int) -> list[list[Example]]:
    parts = [[] for _ in range(min(count, len(examples)))]
    for example in sorted(examples, key=lambda example: -len(example.input_ids)):
        min(parts, key=num_tokens).append(example)
    return parts
