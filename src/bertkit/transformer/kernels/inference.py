"""Heads and pooler in inference on the CPU: each row with the same bits regardless of the other rows of the batch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from bertkit.transformer.kernels.linear import multiply_in_place
from bertkit.transformer.kernels.row_invariance import multiply_rows

_this_thread = threading.local()


@contextmanager
def inference_kernels() -> Iterator[None]:
    """Let `linear` and `activate` of this thread compute so in this block, without gradients."""
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
    kind = ("linear", *weight.shape, weight.dtype, bias is None)
    return multiply_rows(kind, lambda rows: multiply_in_place(rows, weight, bias), x)
