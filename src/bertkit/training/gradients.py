"""The gradients of one optimizer step: its batches side by side, one for each core at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from bertkit.transformer.kernels import training_kernels

Example = TypeVar("Example")


def compute_gradients(
    parameters: Sequence[Tensor],
    batches: Sequence[Example],
    loss: Callable[[Example], Tensor],
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> list[float]:
    """Set ``.grad`` of every parameter to the sum of the gradients of ``loss(batch)`` over the batches.

    On the CPU every core takes batches of its own, as in inference; the gradients are summed in the batches' order, so
    they are the same bits for any number of cores.

    Args:
        batches: the parts of one step, best as many as cores or a multiple, of like size.
        loss: a scalar for a batch, already weighted for the sum; called from several threads at once.
        dtype: of the products, float32 or bfloat16.
        seed: of the dropout masks; batch i draws those of (seed, i).

    Returns:
        The loss of each batch.
    """
    on_cpu = parameters[0].device.type == "cpu"
    sums: list[Tensor | None] = [None] * len(parameters)

    def work(position: int) -> tuple[Tensor, Sequence[Tensor | None]]:
        if on_cpu:
            with training_kernels(dtype, seed * 1_000_003 + position):
                value = loss(batches[position])
                return value.detach(), torch.autograd.grad(value, parameters, allow_unused=True)
        with torch.autocast(parameters[0].device.type, dtype, enabled=dtype != torch.float32):
            value = loss(batches[position])
        return value.detach(), torch.autograd.grad(value, parameters, allow_unused=True)

    losses = []
    num_threads = min(torch.get_num_threads(), len(batches)) if on_cpu else 1
    threads_before = torch.get_num_threads()
    with ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as executor:
        try:
            torch.set_num_threads(1)
            for value, gradients in executor.map(work, range(len(batches))):
                losses.append(value)
                for i, gradient in enumerate(gradients):
                    if gradient is not None:
                        total = sums[i]
                        sums[i] = gradient if total is None else total.add_(gradient)
        finally:
            torch.set_num_threads(threads_before)
    for parameter, gradient in zip(parameters, sums, strict=True):
        parameter.grad = gradient
    return [float(value) for value in losses]
