"""Training of a head on a frozen encoder, as in tutorials and with stored vectors: one file for each, with the same
interface.

Each module here has a class ``Job(folder, setting, texts, label_ids, threads)``; an object called with the name of a
method calls that method:

    run        () -> figures of an epoch of the usual loop, or of the whole job
    accuracy   (texts, label_ids) -> accuracy of the head after NUM_EPOCHS
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

BATCH_SIZE = 32
NUM_EPOCHS = 10
LEARNING_RATE = 1e-3
NUM_LABELS = 3
MAX_LENGTH = 128  # tokens


@dataclass(frozen=True)
class System:
    """One row of the table."""

    name: str
    module: str  # file of this folder
    setting: str  # a precision, or to the longest of what the loop pads: "batch", "all"


LOOP = System("transformers, padded by batch", "transformers", "batch")
ALL_PADDED = System("transformers, padded at once", "transformers", "all")
OURS = tuple(
    System(f"bertkit {short}", "bertkit", precision)
    for short, precision in (("fp32", "float32"), ("bf16", "bfloat16"), ("int8", "int8"))
)


class Head:
    """A linear layer and its AdamW, the same for every system: initial values and order of the batches too."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        self.linear = nn.Linear(width, NUM_LABELS)
        self.optimizer = torch.optim.AdamW(self.linear.parameters(), LEARNING_RATE)

    def step(self, features: Tensor, label_ids: Tensor) -> float:
        """One optimizer step over (B, D) features; returns the loss before it."""
        loss = nn.functional.cross_entropy(self.linear(features), label_ids)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def accuracy(self, features: Tensor, label_ids: Tensor) -> float:
        return float((self.linear(features).argmax(1) == label_ids).float().mean())


def batches(num_texts: int, epoch: int) -> Iterator[np.ndarray]:
    """The texts of every batch of an epoch."""
    order = np.random.default_rng([0, epoch]).permutation(num_texts)
    return (order[start : start + BATCH_SIZE] for start in range(0, num_texts, BATCH_SIZE))
