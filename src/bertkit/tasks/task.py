"""What the training loop knows of a task."""

from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class Loss(NamedTuple):
    """The loss of one part of a batch, and what its metrics are made of."""

    value: Tensor  # scalar; added over the parts it is the loss of the batch
    sums: Tensor  # (n,) float64 without gradient; added over parts, ranks and batches


class Task(Protocol):
    """A loss that adds up: over the parts of a batch, and over the ranks that share it."""

    def totals(self, batch: Any) -> Tensor:
        """(k,) float64: what the losses of a batch are divided by, added over ranks before it is used."""
        ...

    def loss(self, network: nn.Module, part: Any, totals: Tensor) -> Loss:
        """The share of one part in the loss of a batch with these totals."""
        ...

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """The metrics that sums stand for, "loss" among them."""
        ...
