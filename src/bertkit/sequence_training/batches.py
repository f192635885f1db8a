"""Batches for next-token prediction; T target tokens, S sources."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch, batch_of_ids, even_parts


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """Sources with their targets, or texts alone."""

    batch: Batch  # input of the network: the sources, or the texts without their last tokens
    target: Batch | None  # targets without their last tokens; None: texts alone
    labels: Tensor  # (T,) int64, the next token of each

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.batch)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments that the network takes together with ``batch``."""
        return {} if self.target is None else {"target": self.target}

    @property
    def num_tokens(self) -> int:
        return len(self.batch.input_ids) + (0 if self.target is None else len(self.target.input_ids))

    def split(self, num_parts: int, most_tokens: float = math.inf) -> "list[SequenceBatch]":
        """Split into batches of neighboring sequences with about equal numbers of tokens; see `even_parts`."""
        lengths = self.batch.cu_seqlens.numpy().astype(np.int64)
        if self.target is not None:
            lengths = lengths + self.target.cu_seqlens.numpy()
        return [self._between(start, end) for start, end in even_parts(lengths, num_parts, most_tokens)]

    def _between(self, start: int, end: int) -> "SequenceBatch":
        predicting = self.batch if self.target is None else self.target
        labels = self.labels[slice(*predicting.cu_seqlens[[start, end]].tolist())]
        target = None if self.target is None else self.target.between(start, end)
        return SequenceBatch(self.batch.between(start, end), target, labels)

    def to(self, device: torch.device | str) -> "SequenceBatch":
        """The same batch on a device."""
        target = None if self.target is None else self.target.to(device)
        return SequenceBatch(self.batch.to(device), target, self.labels.to(device))


@dataclass(frozen=True, eq=False)
class SequenceData:
    """A training set as token ids."""

    targets: Sequence[np.ndarray]  # (n,) int64 each, from the start token to the end token
    sources: Sequence[np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, indices: np.ndarray) -> SequenceBatch:
        """The batch of (n,) ``indices``, in that order."""
        targets = [self.targets[index] for index in indices]
        before = batch_of_ids([target[:-1] for target in targets])
        labels = torch.from_numpy(np.concatenate([target[1:] for target in targets]))
        if self.sources is None:
            return SequenceBatch(before, None, labels)
        return SequenceBatch(batch_of_ids([self.sources[index] for index in indices]), before, labels)
