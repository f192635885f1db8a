"""Checks and figures of attention for `gpu.py`: each kernel against the plain one in float64 on the CPU."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bertkit import Batch
from bertkit.transformer.kernels.attention import packed_attention
from bertkit.transformer.kernels.device_attention import (
    block_attention,
    capability_of,
    kernel_for,
    short_attention,
    varlen_attention,
)
from bertkit.transformer.window import CAUSAL, REVERSED, Window

WINDOWS = {"all": None, "causal": CAUSAL, "reversed": REVERSED, "local": Window(64, 64)}
BOUNDS = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Maximum allowed differences of contexts and gradients of standard normal inputs."""
NUM_HEADS, HEAD_DIM = 12, 64


def checks(device: str, quick: bool) -> dict[str, Any]:
    """The largest difference of contexts and gradients by kernel and dtype, and milliseconds of each kernel."""
    lengths = torch.randint(1, 60 if quick else 512, (20,), generator=torch.Generator().manual_seed(0)).tolist()
    found: dict[str, Any] = {}
    for dtype, bound in BOUNDS.items():
        for name, kernel in _kernels(device, dtype):
            windows = [None] if kernel is _triton else WINDOWS.values()
            largest = max(_difference(kernel, lengths, device, dtype, window) for window in windows)
            found[f"{name} {dtype}".replace("torch.", "")] = largest
            found[f"{name} {dtype} holds".replace("torch.", "")] = largest <= bound
    with_bias = _difference(block_attention, lengths, device, torch.float32, None, with_bias=True)
    found |= {"blocks with a bias": with_bias, "blocks with a bias holds": with_bias <= BOUNDS[torch.float32]}
    for length in (64,) if quick else (128, 512):
        for name, kernel in (*_kernels(device, torch.bfloat16), ("runs", _runs)):
            found[f"{name}, up to {length} tokens, ms"] = _milliseconds(
                kernel, length, 256 if quick else 32_768, device
            )
    return found


def _runs(query: Tensor, key: Tensor, value: Tensor, batch: Batch, **options: Any) -> Tensor:
    return packed_attention(query, key, value, batch.seqlens, **options)


def _triton(query: Tensor, key: Tensor, value: Tensor, batch: Batch, *, window: None = None) -> Tensor:
    return short_attention(torch.stack((query, key, value), dim=1), batch, 0.0)


def _kernels(device: str, dtype: torch.dtype) -> Iterator[tuple[str, Callable[..., Tensor]]]:
    """Name and function of each kernel for a dtype: the fallback, and on some GPUs others."""
    yield "blocks", block_attention
    if kernel_for(device.split(":")[0], capability_of(torch.device(device)), dtype, HEAD_DIM) == "varlen":
        yield "varlen", varlen_attention
        if importlib.util.find_spec("triton") is not None:
            yield "triton", _triton


def _batch(lengths: list[int]) -> Batch:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Batch.from_padded(torch.zeros(mask.shape, dtype=torch.long), mask)


def _difference(
    kernel: Callable[..., Tensor], lengths: list[int], device: str, dtype: torch.dtype, window: Window | None,
    *, with_bias: bool = False,
) -> float:  # fmt: skip
    generator, batch = torch.Generator().manual_seed(1), _batch(lengths)
    given = [torch.randn(sum(lengths), NUM_HEADS, HEAD_DIM, generator=generator).to(dtype) for _ in range(4)]
    options: dict[str, Any] = {"window": window}
    if with_bias:
        options["bias"] = torch.randn(NUM_HEADS, 2 * max(lengths) - 1, generator=generator)
    results = []
    for function, where, kind in ((kernel, device, dtype), (_runs, "cpu", torch.float64)):
        *inputs, slope = (tensor.to(where, kind).requires_grad_() for tensor in given)
        moved = {
            name: option.to(where, kind) if isinstance(option, Tensor) else option for name, option in options.items()
        }
        context = function(*inputs, batch.to(where), **moved)
        gradients = torch.autograd.grad(context, inputs, slope.detach())
        results.append([tensor.detach().cpu().double() for tensor in (context, *gradients)])
    return max(float((ours - expected).abs().max()) for ours, expected in zip(*results, strict=True))


def _milliseconds(kernel: Callable[..., Tensor], longest: int, num_tokens: int, device: str) -> float:
    """Milliseconds of a forward and a backward pass in bfloat16 over sequences of different lengths, the fastest of
    five."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(longest // 4, longest + 1, (num_tokens // longest,), generator=generator).tolist()
    batch = _batch(lengths).to(device)
    given = torch.randn(3, sum(lengths), NUM_HEADS, HEAD_DIM, generator=generator)
    inputs = [tensor.to(device, torch.bfloat16).requires_grad_() for tensor in given]

    def work() -> None:
        torch.autograd.grad(kernel(*inputs, batch).sum(), inputs)

    wait = partial(torch.cuda.synchronize, device) if device.startswith("cuda") else lambda: None
    taken = []
    for _ in range(6):
        wait()
        started = time.perf_counter()
        work()
        wait()
        taken.append(1_000 * (time.perf_counter() - started))
    return min(taken[1:])
