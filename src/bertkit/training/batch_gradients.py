"""The gradients of a batch: of all its parts, one per core, and of all ranks.

Shape letters: P parts, K sums of a part.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.batch import change_labels
from bertkit.device import send
from bertkit.tasks import Loss, Task
from bertkit.training.gradients import (
    backward_sharded,
    compute_gradients,
    compute_gradients_of_vectors,
    outputs_of,
    sums_of_parts,
    vectors_of_parts,
)
from bertkit.training.ranks import Ranks, gather_full_tensor, is_sharded
from bertkit.training.recorded_gradients import RecordedGradients, recorder_of
from bertkit.training.settings import TrainingSettings


@dataclass
class BatchGradients:
    """Computes the gradients of the batches of a run."""

    network: nn.Module
    task: Task  # computes the loss
    settings: TrainingSettings
    ranks: Ranks
    compile: bool = False  # the loss, by torch, for batches with parts of one shape

    def compute(self, batch: Any, step: int) -> tuple[Tensor, Tensor, int]:
        """Set the gradients of the weights: summed over the parts of this rank's batch and over ranks, and clipped.

        Returns:
            (P, K) sums of the parts of this rank for the task's metrics, the norm of all gradients before they were
            clipped, and the number of tokens of all ranks. Nothing waits for a CUDA device.
        """
        settings = self.settings
        parameters = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        device = parameters[0].device
        counts = self.ranks.add(torch.cat([torch.tensor([float(batch.num_tokens)]), self.task.totals(batch)]))
        dtype = getattr(torch, settings.precision)
        seed = (settings.seed * 1_000_003 + step) * self.ranks.num_ranks + self.ranks.rank

        if is_sharded(self.network):
            loss = partial(self._loss_of, totals=counts[1:])
            losses = backward_sharded(self.network, batch.to(device), loss, dtype=dtype, seed=seed)
        else:
            parts = self._split(batch, device)
            if self._recorded is not None:
                parts = map(self._recorded.filled, parts)
            parts = [part.to(device) for part in parts]
            if self.task.of_vectors:
                losses = [self._of_vectors(batch, parts, parameters, dtype=dtype, seed=seed)]
            else:
                totals, recorded = send(counts[1:], device), None
                loss = partial(self._loss_of, totals=totals)
                if self._recorded is not None:
                    recorded = partial(self._recorded, totals=totals)
                losses = compute_gradients(parameters, parts, loss, dtype=dtype, seed=seed, recorded=recorded)
            self.ranks.add_gradients(parameters)
        norm = self._clip(parameters)
        return torch.stack([loss.sums for loss in losses]), norm, int(counts[0])

    def loss(self, batch: Any) -> float:
        """The loss of a batch of all ranks, by the current weights without dropout."""
        device, dtype = next(self.network.parameters()).device, getattr(torch, self.settings.precision)
        parts = [part.to(device) for part in ([batch] if is_sharded(self.network) else self._split(batch, device))]
        if self.task.of_vectors:
            everything, _ = self.ranks.gather(vectors_of_parts(self.network, self.task, parts, dtype=dtype))
            sums = self._loss_of_vectors(batch)(everything).sums.cpu().double() * self.ranks.is_first
        else:
            sums = sums_of_parts(self.network, self.task, parts, dtype=dtype)
        return self.task.metrics(self.ranks.add(sums))["loss"]

    @cached_property
    def _loss_of(self) -> Any:
        """The loss of a part, given the totals of its batch; compiled, if it is to be."""
        network, task = self.network, self.task

        def loss_of(part: Any, totals: Tensor) -> Loss:
            return task.loss(outputs_of(network, part), part, totals)

        return torch.compile(loss_of, dynamic=False) if self.compile else loss_of

    @cached_property
    def _recorded(self) -> RecordedGradients | None:
        return recorder_of(self.network, self._loss_of, self.task, self.settings.precision)

    def _split(self, batch: Any, device: torch.device) -> list[Any]:
        """The parts of a batch: one for each core, or more if they have too many tokens."""
        return batch.split(torch.get_num_threads() if device.type == "cpu" else 1, self.settings.most_tokens(device))

    def _of_vectors(
        self, batch: Any, parts: list[Any], parameters: list[nn.Parameter], *, dtype: torch.dtype, seed: int
    ) -> Loss:
        """Set the gradients of this rank's parts, for a loss of the vectors of all ranks."""
        of_vectors = self._loss_of_vectors(batch)

        def loss(vectors: Tensor) -> tuple[Loss, Tensor]:
            everything, own = self.ranks.gather(vectors)
            of_batch = of_vectors(everything.requires_grad_())
            (slopes,) = torch.autograd.grad(of_batch.value, everything)
            return Loss(of_batch.value.detach(), of_batch.sums * self.ranks.is_first), slopes[own]

        def vectors(part: Any) -> Tensor:
            return self.task.vectors(outputs_of(self.network, part))

        return compute_gradients_of_vectors(parameters, parts, vectors, loss, dtype=dtype, seed=seed)

    def _loss_of_vectors(self, batch: Any) -> Callable[[Tensor], Loss]:
        """The loss as a function of the vectors of all ranks, given this rank's share of the batch."""
        labels = change_labels(batch.labels, lambda column: self.ranks.gather(column)[0])
        whole_batch = replace(batch, labels=labels)
        return lambda vectors: self.task.loss(vectors, whole_batch.to(vectors.device), self.task.totals(whole_batch))

    def _clip(self, parameters: list[nn.Parameter]) -> Tensor:
        """Total norm of the gradients, before they are scaled down to the limit; nothing waits for a CUDA device."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        limit = self.settings.clip_norm
        if gradients[0].device.type == "cuda" and not is_sharded(self.network):  # less work for the CPU
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            if limit is not None:
                torch._foreach_mul_(gradients, (limit / norm).clamp(max=1.0))
            return norm
        norm = gather_full_tensor(nn.utils.get_total_norm(gradients))
        if limit is not None and (size := float(norm)) > limit:
            torch._foreach_mul_(gradients, limit / size)
        return norm
