"""Feed of whole rows, whose texts are adjacent sequences."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bertkit.batch import LabeledBatch
from bertkit.errors import UsageError
from bertkit.randomness import in_random_order
from bertkit.tasks.feed import LabeledFeed
from bertkit.tokenizer.ragged import ranges


@dataclass(frozen=True)
class RowFeed(LabeledFeed):
    """Every row once per epoch; see `LabeledFeed`. ``batch_size`` counts rows; ``labels.row`` is that of a sequence."""

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise UsageError(f"batch_size={self.batch_size}: expected at least 2, as the loss compares rows")

    @cached_property
    def _bounds(self) -> np.ndarray:
        """(R + 1,) first sequence of each row, and the number of sequences."""
        starts = np.flatnonzero(np.diff(self.data.labels.row, prepend=-1))
        return np.append(starts, len(self.data.labels))

    @property
    def _num_rows(self) -> int:
        return len(self._bounds) - 1

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches per epoch; the last one may be smaller, but has at least two rows."""
        full, rest = divmod(self._num_rows, self.batch_size)
        return full + (rest > 1) or 1

    def batch(self, position: int, progress: float) -> LabeledBatch:
        epoch, number = divmod(position, self.batches_per_epoch)
        start, end = number * self.batch_size, (number + 1) * self.batch_size
        if number == self.batches_per_epoch - 1:
            end = self._num_rows
        return self._taken(in_random_order(np.arange(start, end), self._num_rows, self.seed, epoch))

    def _taken(self, rows: np.ndarray) -> LabeledBatch:
        """This rank's share of rows, with all of their texts."""
        rows = self._share(rows)
        starts = self._bounds[rows]
        return self.data.take(ranges(starts, self._bounds[rows + 1] - starts))
