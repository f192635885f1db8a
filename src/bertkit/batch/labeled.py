"""Encodings with labels, and batches of them.

A row of labels belongs to a sequence, to a token, or to a group of neighboring sequences, such as the choices of a
question. Shape letters: S sequences, T tokens, N rows of labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.batch.batch import Batch
from bertkit.batch.collate import collate
from bertkit.batch.label_columns import change_labels
from bertkit.batch.token_budget import even_parts
from bertkit.device import send
from bertkit.later import torch
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.ragged import ranges

if TYPE_CHECKING:
    from torch import Tensor

IGNORED = -100
"""The label of tokens without one, such as [CLS]."""


@dataclass(frozen=True, eq=False)
class LabeledBatch:
    """A batch with its labels: class indices, 0.0 or 1.0 for each class, real numbers, or token
    positions in a sequence, counted from [CLS]; or several labels by name."""

    batch: Batch
    labels: Any  # Tensor or LabelColumns (S / group_size, ...), or (T, ...) with ``of_tokens``
    group_size: int = 1  # number of neighboring sequences that share a row of labels
    of_tokens: bool = False  # each token has a row of labels
    with_vectors: bool = False  # the network computes sentence vectors

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.batch) // self.group_size

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the network in addition to ``batch``."""
        return {"num_choices": self.group_size} | ({"with_vectors": True} if self.with_vectors else {})

    @property
    def num_tokens(self) -> int:
        return len(self.batch.input_ids)

    def split(self, num_parts: int, most_tokens: float = math.inf) -> list[LabeledBatch]:
        """Split into batches of neighboring groups with about equal numbers of tokens; see `even_parts`."""
        return [self._between(*part) for part in even_parts(self._cu_groups().numpy(), num_parts, most_tokens)]

    def _cu_groups(self) -> Tensor:
        return self.batch.cu_seqlens[:: self.group_size]

    def _between(self, start: int, end: int) -> LabeledBatch:
        rows = slice(*self._cu_groups()[[start, end]].tolist()) if self.of_tokens else slice(start, end)
        batch = self.batch.between(start * self.group_size, end * self.group_size)
        return replace(self, batch=batch, labels=self.labels[rows])

    def to(self, device: torch.device | str) -> LabeledBatch:
        """The same batch on a device."""
        return replace(
            self, batch=self.batch.to(device), labels=change_labels(self.labels, lambda column: send(column, device))
        )


@dataclass(frozen=True, eq=False)
class LabeledEncodings:
    """A training set: all examples encoded, with their labels."""

    encodings: Encodings
    labels: Any  # np.ndarray or LabelColumns (S / group_size, ...), or (T, ...) with ``of_tokens``
    group_size: int = 1
    of_tokens: bool = False
    with_vectors: bool = False

    def __post_init__(self) -> None:
        num_rows = len(self.encodings.input_ids) if self.of_tokens else len(self)
        if len(self.encodings) % self.group_size or len(self.labels) != num_rows:
            raise ValueError(f"{len(self.labels)} rows of labels for {len(self.encodings)} sequences, {self}")

    def __len__(self) -> int:
        """Number of groups, the unit of the batch size."""
        return len(self.encodings) // self.group_size

    def take(self, indices: np.ndarray) -> LabeledBatch:
        """The batch of the groups at (n,) ``indices``, in that order."""
        sequences = (indices[:, None] * self.group_size + np.arange(self.group_size)).ravel()
        encodings, rows = self.encodings.take(sequences), indices
        if self.of_tokens:
            rows = ranges(self.encodings.cu_seqlens[sequences], encodings.seqlens)
        labels = change_labels(self.labels[rows], torch.from_numpy)
        return LabeledBatch(collate(encodings), labels, self.group_size, self.of_tokens, self.with_vectors)
