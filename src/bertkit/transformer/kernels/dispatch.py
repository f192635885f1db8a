"""Kernel dispatch by precision, device, CPU features and torch build."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from bertkit.device import CPU_PRECISIONS
from bertkit.errors import UsageError
from bertkit.later import torch
from bertkit.transformer.kernels import inference_steps as steps
from bertkit.transformer.kernels.choices import is_batch_invariant, multiplies_pairs_fast, multiplies_panels_fast
from bertkit.transformer.kernels.key_value_cache import CompiledKeyValueCache, PlainKeyValueCache
from bertkit.transformer.kernels.linear import (
    CompiledBFloat16Linear,
    CompiledInt8Linear,
    CompiledLinear,
    OneDNNInt8Linear,
    OneDNNLinear,
    PlainInt8Linear,
    PlainLinear,
    has_fast_bfloat16,
    has_onednn,
)
from bertkit.transformer.kernels.llvm_vectors import has_fused_multiplication, has_wide_registers


class Kernels(NamedTuple):
    """A kernel for each step of a layer; all choices are equal up to rounding."""

    linear: Callable
    embeddings: type
    attention: Callable
    head_norms: type  # of queries and keys
    gate: Callable
    norm: type  # after a sum
    add_then_norm: type  # of a sum that is kept
    cache: type


def plain_kernels(precision: str) -> Kernels:
    """torch's own operations: the reference for every other choice, on any device."""
    linear = PlainInt8Linear if precision == "int8" else PlainLinear
    return Kernels(
        linear, steps.PlainEmbeddings, steps.plain_attention, steps.PlainHeadNorms, steps.plain_gate, steps.PlainNorm,
        steps.PlainAddThenNorm, PlainKeyValueCache,
    )  # fmt: skip


def kernels_for(precision: str, device: torch.device) -> Kernels:
    """The fastest kernels for a precision on a device.

    Raises:
        UsageError: int8 on a device that is not the CPU, or float16 on the CPU.
    """
    _check_device(precision, device)
    if device.type != "cpu" or precision == "float64":
        kernels = plain_kernels(precision)
        if precision == "float64" or not is_batch_invariant(device):
            return kernels
        from bertkit.transformer.kernels.triton_cache import InvariantKeyValueCache

        return kernels._replace(cache=InvariantKeyValueCache)
    return Kernels(
        linear_for(precision).linear, steps.CompiledEmbeddings, steps.tile_attention,
        steps.CompiledHeadNorms, steps.compiled_gate, steps.CompiledNorm, steps.CompiledAddThenNorm,
        CompiledKeyValueCache,
    )  # fmt: skip


def _check_device(precision: str, device: torch.device) -> None:
    """Check that a precision runs on a device.

    Raises:
        UsageError: it does not.
    """
    if precision == "int8" and device.type != "cpu":
        raise UsageError(f"precision='int8' runs on the CPU, not on {device}: choose bfloat16 there")
    if precision == "float16" and device.type == "cpu":
        raise UsageError("precision='float16' runs on a GPU, not on the CPU: choose bfloat16 or int8 there")


class KernelsHere(NamedTuple):
    """The kernels of a step on this machine's CPU, and why."""

    step: str  # "attention", or a precision: its products and norms
    is_fast: bool  # with instructions of this processor for this precision
    value: str


def kernels_here() -> list[KernelsHere]:
    """Kernels of inference on this machine, for each precision and step."""
    rows = []
    for precision in CPU_PRECISIONS:
        norm, choice = kernels_for(precision, torch.device("cpu")).norm, linear_for(precision)
        value = f"{choice.linear.__name__} and {norm.__name__}: {choice.reason}"
        rows.append(KernelsHere(precision, choice.is_fast, value))
    value = "attend_tiles: this processor does not add pairs of bfloat16 products at full rate"
    if multiplies_pairs_fast():
        value = "attend_pairs in bfloat16 and int8, where this processor adds two products at once; else attend_tiles"
    return [*rows, KernelsHere("attention", True, value)]


class LinearChoice(NamedTuple):
    """Matrix products for a precision on the CPU, and why they are chosen where they are the first."""

    linear: type
    is_fast: bool  # with instructions of this processor for this precision
    reason: str


def linear_for(precision: str) -> LinearChoice:
    """The fastest correct products on this CPU."""
    is_own = multiplies_panels_fast(precision)  # without torch
    return (_compiled_linears(precision) if is_own else offered_linears(precision))[0]


def offered_linears(precision: str) -> list[LinearChoice]:
    """All products that run and are correct with this build of torch on this CPU, fastest first; the reference last."""
    reference = PlainInt8Linear if precision == "int8" else PlainLinear
    if precision == "float64":
        return [LinearChoice(reference, True, "torch's own operations, the reference")]
    parts = _onednn_linears(precision), _compiled_linears(precision)
    onednn, compiled = reversed(parts) if multiplies_panels_fast(precision) else parts
    return [*onednn, *compiled, LinearChoice(reference, False, "torch's slower products, the reference")]


WITHOUT_BFLOAT16 = (
    "this processor lacks fast bfloat16 instructions (or its virtual machine hides AMX), "
    "so products run in float32 and take its time"
)


def _compiled_linears(precision: str) -> list[LinearChoice]:
    operation, reason = _onednn_operation(precision), "about as fast as oneDNN's here, and without torch"
    if multiplies_panels_fast(precision):
        pass
    elif not has_onednn(operation):
        reason = f"as this build of torch lacks {operation}"
    elif precision == "int8":
        reason = "as oneDNN does not multiply int8 exactly on this processor"
    elif precision == "bfloat16":
        reason = "as oneDNN has no instructions for bfloat16 here"
    reason = f"products of this package, {reason}"
    if precision == "int8":
        return [LinearChoice(CompiledInt8Linear, True, reason)] if has_wide_registers("avx2") else []
    if not has_fused_multiplication():
        return []
    if precision == "float32":
        return [LinearChoice(CompiledLinear, True, reason)]
    has_pairs = multiplies_pairs_fast()
    return [LinearChoice(CompiledBFloat16Linear, has_pairs, reason if has_pairs else f"{WITHOUT_BFLOAT16}: {reason}")]


def _onednn_operation(precision: str) -> str:
    return "onednn::qlinear_pointwise" if precision == "int8" else "mkldnn::_linear_pointwise"


def _onednn_linears(precision: str) -> list[LinearChoice]:
    operation = _onednn_operation(precision)
    if not has_onednn(operation):
        return []
    reason = f"torch has {operation}, and this processor its instructions"
    if precision == "int8":
        return [LinearChoice(OneDNNInt8Linear, True, reason)] if _has_exact_int8() else []
    return [LinearChoice(OneDNNLinear, True, reason)] if precision == "float32" or has_fast_bfloat16() else []


@cache
def _has_exact_int8() -> bool:
    """Whether oneDNN multiplies 8-bit numbers exactly on this CPU.

    Without dot products of them (VNNI, AMX) it adds pairs of products in 16 bits, where large ones are cut off.
    """
    with torch.inference_mode():
        largest = OneDNNInt8Linear(torch.ones(16, 64), torch.zeros(16))
        product = largest.multiply(torch.full((16, 64), 255, dtype=torch.uint8))
    return bool(torch.allclose(product, torch.full((16, 16), 127.0 * 64)))
