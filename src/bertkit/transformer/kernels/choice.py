"""Which kernel runs: by precision, device, and what this CPU and this build of torch offer."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch

from bertkit.errors import UsageError
from bertkit.transformer.kernels import steps
from bertkit.transformer.kernels.linear import OneDNNInt8Linear, OneDNNLinear, PlainInt8Linear, PlainLinear, has_onednn


class Kernels(NamedTuple):
    """A kernel for each step of a layer; all choices give the same numbers, to rounding."""

    linear: type
    embeddings: type
    attention: Callable
    norm: type


class ModernKernels(NamedTuple):
    """The same for the modern encoder."""

    linear: type
    attention: Callable
    gate: Callable
    add_then_norm: type


def plain_modern_kernels() -> ModernKernels:
    """torch's own operations."""
    return ModernKernels(PlainLinear, steps.plain_attention, steps.plain_gate, steps.PlainAddThenNorm)


def modern_kernels_for(precision: str, device: torch.device) -> ModernKernels:
    """The fastest kernels for float32, float64 or bfloat16 on a device."""
    if device.type != "cpu" or precision == "float64":
        return plain_modern_kernels()
    linear = _fastest_linear(precision)
    return ModernKernels(linear, steps.compiled_attention, steps.compiled_gate, steps.CompiledAddThenNorm)


def plain_kernels(precision: str) -> Kernels:
    """torch's own operations: the reference for every other choice, on any device."""
    linear = PlainInt8Linear if precision == "int8" else PlainLinear
    return Kernels(linear, steps.PlainEmbeddings, steps.plain_attention, steps.PlainNorm)


def kernels_for(precision: str, device: torch.device) -> Kernels:
    """The fastest kernels for a precision on a device.

    Raises:
        UsageError: int8 on a device that is not the CPU.
    """
    if precision == "int8" and device.type != "cpu":
        raise UsageError(f"precision='int8' runs on the CPU, not on {device}: choose bfloat16 there")
    if device.type != "cpu" or precision == "float64":
        return plain_kernels(precision)
    linear = _fastest_linear(precision)
    return Kernels(linear, steps.CompiledEmbeddings, steps.compiled_attention, steps.CompiledNorm)


def _fastest_linear(precision: str) -> type:
    return {
        "float32": OneDNNLinear if has_onednn("mkldnn::_linear_pointwise") else PlainLinear,
        "bfloat16": OneDNNLinear if has_onednn("mkldnn::_linear_pointwise") and _has_bfloat16() else PlainLinear,
        "int8": OneDNNInt8Linear if has_exact_int8() else PlainInt8Linear,
    }[precision]


@cache
def has_exact_int8() -> bool:
    """Whether oneDNN multiplies 8-bit numbers exactly on this CPU.

    Without dot products of them (VNNI, AMX) it adds pairs of products in 16 bits, where large ones are cut off.
    """
    if not has_onednn("onednn::qlinear_pointwise"):
        return False
    with torch.inference_mode():
        largest = OneDNNInt8Linear(torch.ones(16, 64), torch.zeros(16))
        product = largest.multiply(torch.full((16, 64), 255, dtype=torch.uint8))
    return bool(torch.allclose(product, torch.full((16, 16), 127.0 * 64)))


def _has_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 on this CPU: it does with AVX-512, and with some AVX2 processors."""
    return has_onednn("mkldnn::_is_mkldnn_bf16_supported") and torch.ops.mkldnn._is_mkldnn_bf16_supported()
