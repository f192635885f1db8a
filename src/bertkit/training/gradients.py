"""Gradients of one optimizer step, and losses of an evaluation, computed by parts in parallel."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.errors import UsageError
from bertkit.executor import map_on_cores, on_one_core
from bertkit.tasks import Loss, Task
from bertkit.training.ranks import is_sharded
from bertkit.transformer.kernels import training_kernels
from bertkit.transformer.kernels.linear import has_fast_bfloat16

Part = TypeVar("Part")
Result = TypeVar("Result")


def outputs_of(network: nn.Module, part: Any) -> Any:
    """The network's output for a part of a batch."""
    return network(part.batch, **part.arguments)


def compute_gradients(
    parameters: Sequence[Tensor],
    parts: Sequence[Part],
    loss: Callable[[Part], Loss],
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    recorded: Callable[..., tuple[Loss, Sequence[Tensor | None]]] | None = None,
) -> list[Loss]:
    """Set ``.grad`` of every parameter to the sum of the gradients of ``loss(part).value`` over the parts.

    On the CPU every core computes separate parts, as in inference. Gradients are summed in the order of the parts, so
    they are bit-identical for any number of cores. The memory of ``.grad`` of the previous step may be overwritten:
    clone what you keep.

    Args:
        parts: parts of one step, ideally a multiple of the number of cores, of similar size.
        loss: loss of a part, weighted for the sum; called from several threads at once.
        dtype: of matrix products, float32 or bfloat16.
        seed: seed of the dropout masks; part i uses (seed, i).
        recorded: computes loss and gradients of a part instead, ``is_kept`` or not; see `RecordedGradients`.

    Returns:
        The loss of each part, without gradient.

    Raises:
        UsageError: the loss reads none of the parameters.
    """
    device = parameters[0].device

    def work(number: int) -> tuple[Loss, Sequence[Tensor | None]]:
        with _training(device, dtype, _seed_of_part(seed, number)):
            if recorded is not None:
                is_kept = number == 0 and len(parts) > 1  # those of later parts are added before the next replay
                return recorded(parts[number], is_kept=is_kept)
            of_part = loss(parts[number])
        return Loss(of_part.value.detach(), of_part.sums), gradients_of(of_part.value, parameters)

    return list(_set_sums(parameters, map_on_cores(work, range(len(parts)), device)))


def compute_gradients_of_vectors(
    parameters: Sequence[Tensor],
    parts: Sequence[Part],
    vectors: Callable[[Part], Tensor],
    loss: Callable[[Tensor], tuple[Loss, Tensor]],
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Loss:
    """`compute_gradients` for a loss of the vectors of the whole batch, which is not a sum over parts.

    The vectors of all parts are computed first, then the loss with its gradient for the vectors, then the gradients of
    the parts. If all parts are computed at the same time, each core keeps the activations of its part in between;
    otherwise parts are computed a second time, with the same dropout masks (Gao et al. 2021, "Scaling
    deep contrastive learning batch size under memory limited setup").

    Args:
        vectors: (n, D) vectors of a part; called from several threads at once.
        loss: (N, D) vectors of all parts -> loss and its (N, D) gradient.

    Raises:
        UsageError: the vectors depend on none of the parameters.
    """
    device = parameters[0].device
    is_kept = len(parts) <= (torch.get_num_threads() if device.type == "cpu" else 1)

    def encode(number: int) -> Tensor:
        with torch.set_grad_enabled(is_kept), _training(device, dtype, _seed_of_part(seed, number)):
            return vectors(parts[number])

    encoded = list(map_on_cores(encode, range(len(parts)), device))
    ((total, slopes),) = map_on_cores(loss, [torch.cat([part.detach() for part in encoded])], device)
    of_parts = slopes.split([len(part) for part in encoded])

    def work(number: int) -> tuple[None, Sequence[Tensor | None]]:
        if is_kept:
            return None, gradients_of(encoded[number], parameters, of_parts[number])
        with _training(device, dtype, _seed_of_part(seed, number)):
            again = vectors(parts[number])
        return None, gradients_of(again, parameters, of_parts[number])

    for _ in _set_sums(parameters, map_on_cores(work, range(len(parts)), device)):
        pass
    return total


def _seed_of_part(seed: int, number: int) -> int:
    return seed * 1_000_003 + number


@contextmanager
def _training(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[None]:
    """Training mode with products of this dtype and dropout masks of this seed."""
    if device.type == "cpu":
        with training_kernels(dtype, seed):
            yield
    else:
        with _seeded(device, seed), _autocast(device, dtype):
            yield


def _autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """torch's own products in this dtype; in float32 on a CPU that would emulate bfloat16."""
    is_emulated = device.type == "cpu" and not has_fast_bfloat16()
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32 and not is_emulated)


def gradients_of(values: Tensor, parameters: Sequence[Tensor], slopes: Tensor | None = None) -> Sequence[Tensor | None]:
    """The gradient of each parameter, None of one that the values do not depend on; raises as `compute_gradients`."""
    if not values.requires_grad:
        raise UsageError("every weight that the loss reads is frozen: expected some that train, so lower frozen_layers")
    return torch.autograd.grad(values, parameters, slopes, allow_unused=True)


def _set_sums(
    parameters: Sequence[Tensor], results: Iterable[tuple[Result, Sequence[Tensor | None]]]
) -> Iterator[Result]:
    """Set ``.grad`` of every parameter to the sum of the gradients of the parts, and return the other results."""
    totals: list[Tensor | None] = [None] * len(parameters)
    add = _add_on_cpu if parameters[0].device.type == "cpu" else _add_on_device
    for result, gradients in results:
        add(totals, gradients, parameters)
        yield result
    for parameter, total in zip(parameters, totals, strict=True):
        parameter.grad = total


def _add_on_cpu(totals: list[Tensor | None], gradients: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> None:
    """Add to dense totals; a sparse gradient reuses memory of the previous step, which is faster to clear than to
    allocate. On one core: further threads would wait for the cores that compute other parts."""
    with on_one_core():
        for i, (gradient, total, parameter) in enumerate(zip(gradients, totals, parameters, strict=True)):
            if gradient is None:
                continue
            if gradient.is_sparse:
                if total is None:
                    total = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.zero_()
                totals[i] = total.index_add_(0, gradient._indices()[0], gradient._values())
            else:
                totals[i] = gradient if total is None else total.add_(gradient)


def _add_on_device(
    totals: list[Tensor | None], gradients: Sequence[Tensor | None], parameters: Sequence[Tensor]
) -> None:
    """Add to totals with few kernels. Gradients of later parts may be overwritten afterwards."""
    is_first = all(total is None for total in totals)
    pairs = [(total, gradient) for total, gradient in zip(totals, gradients, strict=True) if gradient is not None]
    if sums := [(total, gradient) for total, gradient in pairs if total is not None]:
        torch._foreach_add_(*map(list, zip(*sums, strict=True)))
    totals[:] = [
        (gradient if is_first or gradient is None else gradient.clone()) if total is None else total
        for total, gradient in zip(totals, gradients, strict=True)
    ]


@contextmanager
def _seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seed torch's random generators in this block; restores their state afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]))
        yield


def backward_sharded(
    network: nn.Module, batch: Part, loss: Callable[[Part], Loss], *, dtype: torch.dtype, seed: int
) -> list[Loss]:
    """Set ``.grad`` of a sharded network's parameters to the gradient of ``loss(batch).value``, summed over ranks.

    Layers are gathered and sharded again in the same order on every rank, so a rank's share of a batch is one part.
    torch's own operations compute: gathered parameters cannot be passed to the compiled kernels.

    Args:
        dtype: of matrix products, float32 or bfloat16.
        seed: seed of the dropout masks, different for each rank.
    """
    device = next(network.parameters()).device
    network.zero_grad()
    with _seeded(device, seed), _autocast(device, dtype):
        of_batch = loss(batch)
    of_batch.value.backward()
    return [Loss(of_batch.value.detach(), of_batch.sums)]


@contextmanager
def without_dropout(network: nn.Module) -> Iterator[None]:
    """Evaluation mode in this block; restores the previous mode afterwards."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


def evaluate(network: nn.Module, task: Task, parts: Sequence[Part], *, dtype: torch.dtype) -> dict[str, float]:
    """Metrics of a task over held-out parts, in evaluation mode.

    Args:
        dtype: of matrix products, float32 or bfloat16.
    """
    return task.metrics(sums_of_parts(network, task, parts, dtype=dtype))


@torch.no_grad()
def sums_of_parts(network: nn.Module, task: Task, parts: Sequence[Part], *, dtype: torch.dtype) -> Tensor:
    """(k,) float64 on the CPU: the sums of the task's loss over all parts, in evaluation mode; see `evaluate`."""
    device = next(network.parameters()).device
    try:
        with without_dropout(network):
            work = partial(_sums_of, network, task, dtype)
            sums = list(map(work, parts) if is_sharded(network) else map_on_cores(work, parts, device))
    finally:
        if is_sharded(network):
            network.reshard()  # pyrefly: ignore  # otherwise done by the backward pass
    return torch.stack(sums).cpu().double().sum(dim=0)


@torch.no_grad()  # torch keeps this for each thread
def _sums_of(network: nn.Module, task: Task, dtype: torch.dtype, part: Part) -> Tensor:
    device, totals = next(network.parameters()).device, task.totals(part)
    if device.type == "cpu" and not is_sharded(network):
        with training_kernels(dtype, seed=0):
            return task.loss(outputs_of(network, part), part, totals).sums
    with _autocast(device, dtype):
        return task.loss(outputs_of(network, part), part, totals).sums


def vectors_of_parts(network: nn.Module, task: Task, parts: Sequence[Part], *, dtype: torch.dtype) -> Tensor:
    """The vectors of all parts one below the other, in evaluation mode; see `evaluate`."""
    device = next(network.parameters()).device

    @torch.no_grad()  # torch keeps this for each thread
    def vectors(part: Part) -> Tensor:
        with _training(device, dtype, seed=0):
            return task.vectors(outputs_of(network, part))

    with without_dropout(network):
        return torch.cat(list(map_on_cores(vectors, parts, device)))
