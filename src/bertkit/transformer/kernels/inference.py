"""Heads and pooler in inference, on the CPU with rows bit-identical regardless of the rest of the batch."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from bertkit.device import device_of
from bertkit.later import Tensor, is_torch_loaded, torch
from bertkit.transformer.kernels.arrays import Rows, as_given, floats, norm_arrays
from bertkit.transformer.kernels.choices import has_invariant_kernels, multiplies_panels_fast
from bertkit.transformer.kernels.linear import CompiledLinear, multiply_on_device, multiply_unpacked
from bertkit.transformer.kernels.row_invariance import Multiply, multiply_rows, probe_weight
from bertkit.transformer.kernels.rows import norm_rows

_this_thread = threading.local()

_MOST_PACKED = 2**21
"""More weights, as those of a vocabulary, are not packed for each product."""


@contextmanager
def inference_kernels() -> Iterator[None]:
    """Use row-invariant kernels for `linear` and `activate` in this block and thread, without gradients."""
    before = is_inference()
    _this_thread.is_inference = True
    try:
        yield
    finally:
        _this_thread.is_inference = before


def without_gradients() -> AbstractContextManager:
    """torch's inference mode, where torch is used."""
    return torch.inference_mode() if is_torch_loaded() else nullcontext()


def is_inference() -> bool:
    """Whether this thread is inside `inference_kernels`."""
    return getattr(_this_thread, "is_inference", False)


def is_for_arrays(x: Rows) -> bool:
    """True for a tensor whose numbers inference computes as an array, so that they have the bits of one."""
    if isinstance(x, np.ndarray) or not is_inference():
        return False
    return x.device.type == "cpu" and x.dtype == torch.float32


def invariant_linear(x: Rows, weight: Rows, bias: Rows | None) -> Rows:
    """``x W^T + b``, on other devices than the CPU by `multiply_on_device`: (M, K) to (M, N)."""
    if device_of(x).type != "cpu":
        return multiply_on_device(x, weight, bias)
    if isinstance(x, np.ndarray) or _is_packed(x, weight):
        return _packed_linear(weight, bias)(x)

    def probe() -> Multiply:
        weights = probe_weight(weight.shape[0], weight.shape[1], weight.dtype)
        return lambda rows: multiply_unpacked(rows, weights, None if bias is None else torch.zeros_like(bias))

    kind = ("linear", *weight.shape, weight.dtype, bias is not None)
    return multiply_rows(kind, lambda rows: multiply_unpacked(rows, weight, bias), probe, x)


def _is_packed(x: Tensor, weight: Tensor) -> bool:
    is_kept = not weight.is_inference() or weight.numel() < _MOST_PACKED
    return is_kept and multiplies_panels_fast() and x.dtype == weight.dtype == torch.float32


def invariant_norm(x: Rows, norm: Any) -> Rows:
    """A normalization on the CPU: (N, D) to the same."""
    rows = floats(x)
    normed = np.empty_like(rows)
    norm_rows(rows, None, norm_arrays(norm), normed, None)
    return as_given(normed, x)


def sums_of_rows(x: Rows) -> Rows:
    """The sum of each row: (N, D) to (N,)."""
    if isinstance(x, np.ndarray) or not has_invariant_kernels(x):
        return x.sum(-1)
    from bertkit.transformer.kernels import triton_products

    return triton_products.sums_of_rows(x).to(x.dtype)


def _packed_linear(weight: Rows, bias: Rows | None) -> CompiledLinear:
    """The packed product, of an earlier call if weight and bias have not changed since."""
    if any(hasattr(part, "is_inference") and part.is_inference() for part in (weight, bias)):
        return CompiledLinear(weight, bias)  # torch does not count their changes
    versions = tuple(getattr(part, "_version", 0) for part in (weight, bias))
    cached = _packed.get(id(weight))
    if cached is None or cached[0]() is not weight or cached[1] is not bias or cached[2] != versions:
        drop = partial(_packed.pop, id(weight), None)
        cached = weakref.ref(weight, lambda _: drop()), bias, versions, CompiledLinear(weight, bias)
        _packed[id(weight)] = cached
    return cached[3]


_packed: dict[int, Any] = {}
"""id of a weight -> a reference to it, its bias, the versions of both, and their product."""
