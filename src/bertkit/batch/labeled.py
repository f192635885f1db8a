"""Encodings with labels, and batches of them.

A row of labels belongs to a sequence; to a token; or to a group of neighboring sequences, such as the choices of a
question. Shape letters: S sequences, T tokens, N rows of labels.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.batch.batch import Batch
from bertkit.batch.collate import collate
from bertkit.batch.token_budget import even_parts
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.ragged import ranges

IGNORED = -100
"""The label of a token that has none, such as [CLS]."""


@dataclass(frozen=True, eq=False)
class LabeledBatch:
    """A batch with its labels: integers of a class, 0.0 and 1.0 for each class, real numbers, or token
    positions in a sequence, counted from its [CLS]."""

    batch: Batch
    labels: Tensor  # (S / group_size, ...); of tokens (T, ...)
    group_size: int = 1  # neighboring sequences that have one row of labels together
    of_tokens: bool = False  # whether each token has a row of labels
    with_vectors: bool = False  # whether the network is to compute sentence vectors

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.batch) // self.group_size

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments that the network takes together with ``batch``."""
        return {"num_choices": self.group_size} | ({"with_vectors": True} if self.with_vectors else {})

    @property
    def num_tokens(self) -> int:
        return len(self.batch.input_ids)

    def split(self, num_parts: int, most_tokens: float = math.inf) -> "list[LabeledBatch]":
        """Batches of neighboring groups and about as many tokens each, as `even_parts` cuts them."""
        return [self._between(*part) for part in even_parts(self._cu_groups().numpy(), num_parts, most_tokens)]

    def _cu_groups(self) -> Tensor:
        return self.batch.cu_seqlens[:: self.group_size]

    def _between(self, start: int, end: int) -> "LabeledBatch":
        rows = slice(*self._cu_groups()[[start, end]].tolist()) if self.of_tokens else slice(start, end)
        batch = self.batch.between(start * self.group_size, end * self.group_size)
        return replace(self, batch=batch, labels=self.labels[rows])

    def to(self, device: torch.device | str) -> "LabeledBatch":
        """The same batch on a device."""
        return replace(self, batch=self.batch.to(device), labels=self.labels.to(device))


@dataclass(frozen=True, eq=False)
class LabeledEncodings:
    """A training set: all examples encoded, with their labels."""

    encodings: Encodings
    labels: np.ndarray  # (S / group_size, ...); of tokens (T, ...)
    group_size: int = 1
    of_tokens: bool = False
    with_vectors: bool = False

    def __post_init__(self) -> None:
        num_rows = len(self.encodings.input_ids) if self.of_tokens else len(self)
        if len(self.encodings) % self.group_size or len(self.labels) != num_rows:
            raise ValueError(f"{len(self.labels)} rows of labels for {len(self.encodings)} sequences, {self}")

    def __len__(self) -> int:
        """Number of groups: what a batch is counted in."""
        return len(self.encodings) // self.group_size

    def take(self, indices: np.ndarray) -> LabeledBatch:
        """The batch of the groups of (n,) ``indices``, in that order."""
        sequences = (indices[:, None] * self.group_size + np.arange(self.group_size)).ravel()
        encodings, rows = self.encodings.take(sequences), indices
        if self.of_tokens:
            rows = ranges(self.encodings.cu_seqlens[sequences], encodings.seqlens)
        labels = torch.from_numpy(self.labels[rows])
        return LabeledBatch(collate(encodings), labels, self.group_size, self.of_tokens, self.with_vectors)
