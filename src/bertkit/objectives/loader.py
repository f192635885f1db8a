"""Loader of pre-training batches in random order; its whole state is one integer.

The examples at a position depend only on seed, epoch and index: a resumed run replays nothing, and examples are the
same for any number of workers and ranks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bertkit.batch.batch import Batch
from bertkit.batch.collate import packed
from bertkit.batch.token_budget import even_parts
from bertkit.device import send_together
from bertkit.errors import DataError
from bertkit.later import Tensor, torch
from bertkit.objectives.masking import Masked
from bertkit.objectives.sequences import Sequences, Source
from bertkit.randomness import in_random_order

_INDEX_BITS, _STAGE_BITS = 40, 20  # of a position, from the lowest; above is the epoch


@dataclass(frozen=True, eq=False)
class PretrainingBatch:
    """A batch with its prediction targets; P masked positions, B sequences."""

    batch: Batch
    masked_positions: Tensor  # (P,) int64, into the packed row
    labels: Tensor  # (P,) int64, the original tokens
    next_sentence_label: Tensor | None  # (B,) int64, 0 = B follows A, 1 = it does not; None: single texts
    draws: Tensor | None = None  # (P,) float64 from 0 to below 1, random: an input of networks that sample tokens

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.batch)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments that the network takes together with ``batch``."""
        draws = {} if self.draws is None else {"draws": self.draws}
        return {"masked_positions": self.masked_positions, **draws}

    @property
    def num_tokens(self) -> int:
        return len(self.batch.input_ids)

    def split(self, num_parts: int, most_tokens: float = math.inf) -> "list[PretrainingBatch]":
        """Split into batches of neighboring sequences with about equal numbers of tokens; see `even_parts`."""
        parts = even_parts(self.batch.cu_seqlens.numpy(), num_parts, most_tokens)
        return [self._between(start, end) for start, end in parts]

    def _between(self, start: int, end: int) -> "PretrainingBatch":
        first, last = self.batch.cu_seqlens[[start, end]]
        masked = slice(*torch.searchsorted(self.masked_positions, torch.stack([first, last])).tolist())
        return PretrainingBatch(
            self.batch.between(start, end),
            self.masked_positions[masked] - first,
            self.labels[masked],
            None if self.next_sentence_label is None else self.next_sentence_label[start:end],
            None if self.draws is None else self.draws[masked],
        )

    def to(self, device: "torch.device | str") -> "PretrainingBatch":
        """The same batch on a device."""
        targets = [self.masked_positions, self.labels]
        if self.next_sentence_label is not None:
            targets.append(self.next_sentence_label)
        positions, labels, *label = send_together(targets, device)
        draws = None if self.draws is None else self.draws.to(device)
        return PretrainingBatch(self.batch.to(device), positions, labels, label[0] if label else None, draws)


class Corruption(Protocol):
    """Model inputs and prediction targets of sequences, as a function of seed, epoch and indices."""

    def __call__(self, sequences: Sequences, rate: float, epoch: int, indices: np.ndarray) -> Masked:
        """Inputs and targets of the sequences with (B,) int64 ``indices`` in ``epoch``."""


class Loader:
    """Batches from one source per stage of a run; each stage begins with a new epoch.

    Args:
        corruption: hides the tokens to predict (`Masking`), or none (`EveryToken`).
        sources: the source of each stage of a run, for example short sequences and then long ones.
        rank, num_ranks: this process takes every ``num_ranks``-th example of a batch, from ``rank`` on.

    Raises:
        DataError: a source without examples.
    """

    def __init__(
        self, sources: Sequence[Source], corruption: Corruption, seed: int, *, rank: int = 0, num_ranks: int = 1
    ) -> None:
        self.sources, self.corruption, self.seed, self.rank, self.num_ranks = sources, corruption, seed, rank, num_ranks
        for source in sources:
            if not source.num_examples(0):
                raise DataError("the corpus has no examples: at least one sentence with tokens is required")

    def batch(self, position: int, batch_size: int, *, stage: int, mask_rate: float) -> PretrainingBatch:
        """This rank's share of the ``batch_size`` examples that start at a position."""
        (stage, epoch, index), parts = self._enter(position, stage), []
        source, offset = self.sources[stage], 0  # within the batch of all ranks
        while offset < batch_size:
            number = source.num_examples(epoch)
            end = min(batch_size, offset + number - index)
            first = offset + (self.rank - offset) % self.num_ranks
            at = index + np.arange(first - offset, end - offset, self.num_ranks)
            if len(at):
                indices = in_random_order(at, number, self.seed, epoch)
                sequences = source.take(epoch, indices)
                parts.append((sequences, self.corruption(sequences, mask_rate, epoch, indices)))
            epoch, index, offset = epoch + 1, 0, end
        return _together(parts)

    def next_position(self, position: int, batch_size: int, *, stage: int) -> int:
        """The position after ``batch_size`` more examples."""
        stage, epoch, index = self._enter(position, stage)
        index += batch_size
        while index >= (number := self.sources[stage].num_examples(epoch)):
            epoch, index = epoch + 1, index - number
        return (((epoch << _STAGE_BITS) + stage) << _INDEX_BITS) + index

    def epoch(self, position: int) -> float:
        """Epochs completed at a position, as a fraction."""
        stage, epoch, index = _stage_epoch_index(position)
        return epoch + index / self.sources[stage].num_examples(epoch)

    def _enter(self, position: int, stage: int) -> tuple[int, int, int]:
        """Position at which a stage starts: the beginning of the next epoch."""
        before, epoch, index = _stage_epoch_index(position)
        return (before, epoch, index) if stage == before else (stage, epoch + (index > 0), 0)


def _stage_epoch_index(position: int) -> tuple[int, int, int]:
    rest, index = divmod(position, 1 << _INDEX_BITS)
    epoch, stage = divmod(rest, 1 << _STAGE_BITS)
    return stage, epoch, index


def _together(parts: Sequence[tuple[Sequences, Masked]]) -> PretrainingBatch:
    firsts = np.cumsum([0, *(len(sequences.input_ids) for sequences, _ in parts[:-1])])
    positions = [masked.positions + first for (_, masked), first in zip(parts, firsts, strict=True)]
    labels = [sequences.next_sentence_label for sequences, _ in parts if sequences.next_sentence_label is not None]
    batch = packed(
        np.concatenate([masked.input_ids for _, masked in parts]),
        np.concatenate([sequences.token_type_ids for sequences, _ in parts]),
        np.concatenate([np.diff(sequences.cu_seqlens) for sequences, _ in parts]),
    ).as_tensors()
    draws = [masked.draws for _, masked in parts if masked.draws is not None]
    return PretrainingBatch(
        batch,
        _tensor(positions),
        _tensor([masked.labels for _, masked in parts]),
        _tensor(labels) if labels else None,
        torch.from_numpy(np.concatenate(draws)) if draws else None,
    )


def _tensor(arrays: Sequence[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(arrays).astype(np.int64))
