"""Labeled examples as the training loop takes them: a batch for each position, a position for each step."""

from dataclasses import dataclass

import numpy as np

from bertkit.batch import LabeledBatch, LabeledEncodings
from bertkit.randomness import in_random_order


@dataclass(frozen=True)
class LabeledFeed:
    """Every example once in an epoch, in an order that is a function of seed and epoch alone."""

    data: LabeledEncodings
    batch_size: int
    seed: int

    @property
    def batches_per_epoch(self) -> int:
        """The last one may be smaller."""
        return -(-len(self.data) // self.batch_size)

    def batch(self, position: int, done: float) -> LabeledBatch:
        """The batch at a position, which counts batches from the start of the run."""
        epoch, number = divmod(position, self.batches_per_epoch)
        places = np.arange(number * self.batch_size, min((number + 1) * self.batch_size, len(self.data)))
        return self.data.take(in_random_order(places, len(self.data), self.seed, epoch))

    def next_position(self, position: int, done: float) -> int:
        """The position after it."""
        return position + 1

    def facts(self, position: int, done: float) -> dict[str, float]:
        """Epochs done."""
        return {"epoch": position / self.batches_per_epoch}
