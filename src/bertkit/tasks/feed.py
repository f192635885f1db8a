"""Labeled examples as the training loop takes them: a batch for each position, a position for each step."""

from dataclasses import dataclass

import numpy as np

from bertkit.batch import LabeledBatch, LabeledEncodings
from bertkit.randomness import in_random_order


@dataclass(frozen=True)
class LabeledFeed:
    """Every example once in an epoch, in an order that is a function of seed and epoch alone."""

    data: LabeledEncodings
    batch_size: int  # examples, all ranks together
    seed: int
    rank: int = 0
    num_ranks: int = 1

    @property
    def batches_per_epoch(self) -> int:
        """The last one may be smaller."""
        return -(-len(self.data) // self.batch_size)

    def batch(self, position: int, done: float) -> LabeledBatch:
        """This rank's share of the batch at a position, which counts batches from the start of the run."""
        epoch, number = divmod(position, self.batches_per_epoch)
        indices = np.arange(number * self.batch_size, min((number + 1) * self.batch_size, len(self.data)))
        return self.data.take(self._share(in_random_order(indices, len(self.data), self.seed, epoch)))

    def next_position(self, position: int, done: float) -> int:
        """The position after it."""
        return position + 1

    def facts(self, position: int, done: float) -> dict[str, float]:
        """Epochs done."""
        return {"epoch": position / self.batches_per_epoch}

    def _share(self, indices: np.ndarray) -> np.ndarray:
        """Every ``num_ranks``-th index; a batch smaller than that is computed by every rank, which gives its mean."""
        return indices[self.rank :: self.num_ranks] if len(indices) >= self.num_ranks else indices
