"""Losses for the training loop, and the loss functions of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from bertkit.later import torch

if TYPE_CHECKING:
    from torch import Tensor


class Loss(NamedTuple):
    """The loss of one part of a batch, and the sums for its metrics."""

    value: Tensor  # scalar; the sum over parts is the loss of the batch
    sums: Tensor  # (n,) without gradient, on any device; summed in float64 over parts, ranks and batches


def exact(logits: Tensor) -> Tensor:
    """Logits in the precision of losses: float32, or float64 if they have it."""
    return logits if logits.dtype == torch.float64 else logits.float()


def sums_of(loss: Tensor, *counts: Tensor | float) -> Tensor:
    """A loss and counts as (1 + counts,) float64 on the device of the loss, float32 on MPS, which lacks it."""
    device, dtype = loss.device, torch.float32 if loss.device.type == "mps" else torch.float64
    return torch.stack(
        [
            one.detach().to(device, dtype)
            if isinstance(one, torch.Tensor)
            else torch.full((), one, dtype=dtype, device=device)
            for one in (loss, *counts)
        ]
    )


def mean_of(loss: Tensor, total: Tensor) -> Tensor:
    """A summed loss divided by a total, on the CPU or the loss's device, that is a number of rows or of their weights;
    0 counts as 1."""
    return loss / torch.where(total == 0, torch.ones_like(total), total).to(loss.dtype)


class Task(Protocol):
    """A loss that is a sum over the parts of a batch and over the ranks that share it; or a loss of vectors, which uses
    those of the whole batch."""

    of_vectors: ClassVar[bool] = False  # `loss` receives the vectors of a whole batch, (N, D), as outputs
    is_recordable: ClassVar[bool] = False  # `loss` reads no number of a device, so that a CUDA graph can record it

    def vectors(self, outputs: Any) -> Tensor:
        """(n, D) float32: input of a loss of vectors, from the network's output for a part."""
        raise NotImplementedError

    def totals(self, batch: Any) -> Tensor:
        """(k,) float64: denominators of the losses of a batch on the CPU, summed over ranks before use."""

    def loss(self, outputs: Any, part: Any, totals: Tensor) -> Loss:
        """The share of one part in the loss of a batch with these totals, which may be on the CPU or the part's device,
        from the output of the network for it."""

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Metrics from sums, including "loss"."""


class LossFunction(Task):
    """A loss that is a sum over rows, divided by their number in the whole batch.

    As the loss of a `TextTask` it receives the logits of its head, or vectors.
    """

    shares: ClassVar[tuple[str, ...]] = ()  # metrics: `Loss.sums` are the loss, the rows with each, and the rows

    def totals(self, batch: Any) -> Tensor:
        """(1,) number of rows of labels."""
        return torch.tensor([len(batch.labels)], dtype=torch.float64)

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """The loss, and each share, per row."""
        *values, number = sums.tolist()
        return {name: value / max(number, 1) for name, value in zip(("loss", *self.shares), values, strict=True)}
