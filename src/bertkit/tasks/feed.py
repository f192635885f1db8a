"""Feed of labeled examples for the training loop: a batch for each position."""

from dataclasses import dataclass

import numpy as np

from bertkit.batch import LabeledBatch, LabeledEncodings
from bertkit.randomness import in_random_order


@dataclass(frozen=True)
class LabeledFeed:
    """Every example once per epoch, in an order that depends only on seed and epoch."""

    data: LabeledEncodings
    batch_size: int  # examples, over all ranks
    seed: int
    rank: int = 0
    num_ranks: int = 1

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches per epoch; the last one may be smaller."""
        return -(-len(self.data) // self.batch_size)

    def batch(self, position: int, progress: float) -> LabeledBatch:
        """This rank's share of the batch at a position, which counts batches from the start of the run."""
        epoch, number = divmod(position, self.batches_per_epoch)
        indices = np.arange(number * self.batch_size, min((number + 1) * self.batch_size, len(self.data)))
        return self.data.take(self._share(in_random_order(indices, len(self.data), self.seed, epoch)))

    def next_position(self, position: int, progress: float) -> int:
        """The next position."""
        return position + 1

    def facts(self, position: int, progress: float) -> dict[str, float]:
        """Number of epochs."""
        return {"epoch": position / self.batches_per_epoch}

    def _share(self, indices: np.ndarray) -> np.ndarray:
        """Every ``num_ranks``-th index; every rank computes the whole of a batch smaller than that, and their mean is
        the same."""
        return indices[self.rank :: self.num_ranks] if len(indices) >= self.num_ranks else indices
