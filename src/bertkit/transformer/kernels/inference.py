"""Heads and pooler in inference on the CPU, with rows bit-identical regardless of the rest of the batch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from bertkit.transformer.kernels.linear import multiply_unpacked
from bertkit.transformer.kernels.row_invariance import Multiply, multiply_rows, probe_weight

_this_thread = threading.local()


@contextmanager
def inference_kernels() -> Iterator[None]:
    """Use row-invariant kernels for `linear` and `activate` in this block and thread, without gradients."""
    before = is_inference()
    _this_thread.is_inference = True
    try:
        yield
    finally:
        _this_thread.is_inference = before


def is_inference() -> bool:
    """Whether this thread is inside `inference_kernels`."""
    return getattr(_this_thread, "is_inference", False)


def invariant_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x W^T + b`` on the CPU: (M, K) to (M, N)."""

    def probe() -> Multiply:
        weights = probe_weight(weight.shape[0], weight.shape[1], weight.dtype)
        return lambda rows: multiply_unpacked(rows, weights, None if bias is None else torch.zeros_like(bias))

    kind = ("linear", *weight.shape, weight.dtype, bias is not None)
    return multiply_rows(kind, lambda rows: multiply_unpacked(rows, weight, bias), probe, x)
