"""Feeds of several data sets, with each batch from one of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bertkit.batch import LabeledBatch
from bertkit.randomness import in_random_order
from bertkit.tasks.row_feed import RowFeed

_ORDER = 0xD57  # distinguishes the order of batches from that of rows


@dataclass(frozen=True)
class BySize(RowFeed):
    """Every batch of every data set once per epoch, in random order."""

    @cached_property
    def _sets(self) -> list[np.ndarray]:
        """The rows of each data set."""
        of_row = self.data.labels.dataset[self._bounds[:-1]]
        return [np.flatnonzero(of_row == number) for number in np.unique(of_row)]

    @cached_property
    def _num_batches(self) -> np.ndarray:
        """Number of batches of each data set; the last batch has at least two rows."""
        sizes = np.array([len(rows) for rows in self._sets])
        return np.maximum(sizes // self.batch_size + (sizes % self.batch_size > 1), 1)

    @property
    def batches_per_epoch(self) -> int:
        return int(self._num_batches.sum())

    def batch(self, position: int, progress: float) -> LabeledBatch:
        epoch, number = divmod(position, self.batches_per_epoch)
        which, number = self._choose(number, epoch)
        rows = self._sets[which]
        end = (number + 1) * self.batch_size if number < self._num_batches[which] - 1 else len(rows)
        seed = (self.seed + which) % 2**63
        return self._taken(rows[in_random_order(np.arange(number * self.batch_size, end), len(rows), seed, epoch)])

    def _choose(self, number: int, epoch: int) -> tuple[int, int]:
        """The data set of a batch of the epoch, and the index of the batch in it."""
        (drawn,) = in_random_order(np.array([number]), self.batches_per_epoch, self.seed ^ _ORDER, epoch).tolist()
        ends = self._num_batches.cumsum()
        which = int(np.searchsorted(ends, drawn, side="right"))
        return which, drawn - int(ends[which] - self._num_batches[which])


@dataclass(frozen=True)
class ByTurns(BySize):
    """A batch of each data set in turn, until one of them has no more batches in the epoch."""

    @property
    def batches_per_epoch(self) -> int:
        return int(self._num_batches.min()) * len(self._sets)

    def _choose(self, number: int, epoch: int) -> tuple[int, int]:
        return number % len(self._sets), number // len(self._sets)
