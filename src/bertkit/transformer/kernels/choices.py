"""Conditions by which kernels are chosen: the first page to read.

Each step of a layer has a reference in torch's operations and faster kernels with the same signature:

| step | where | kernels, the first that fits |
|---|---|---|
| products | CPU, inference | `panel_product`, without torch, where `multiplies_panels_fast` |
| | other CPUs | `dispatch.offered_linears`: oneDNN's, 8 bits where they are exact; else `panel_product` |
| | a few rows | `few_rows`: all layers in one compiled function, where it gives the bits of those products |
| | CPU, training | `TrainedLinear` of `trained_steps`, inside `training_kernels` |
| attention | CPU, inference | `attend_pairs` where `multiplies_pairs_fast`, else `attend_tiles` |
| | CPU, training | `TiledAttention` of `trained_steps`, inside `training_kernels` |
| | GPU, or torch | `kernel_for`; `short_attention` where `is_for_triton` |
| both, cache | GPU, inference | `triton_products`, `triton_attention`, `triton_cache`, where `has_invariant_kernels` |
| norms, gates, embeddings | CPU | compiled: `inference_steps`, `trained_steps`; int8: `prepared/int8_steps` |
| a whole encoder | GPU, small batches | `cuda_graphs`, where attention is "varlen" |

`dispatch.kernels_for` gives the kernels of inference for a precision and a device, `steps` those of the thread's mode;
`bertkit doctor` prints what holds on a machine (`dispatch.kernels_here`).
"""

from __future__ import annotations

import importlib.util
import os
from typing import Literal

from bertkit.errors import UsageError
from bertkit.later import Tensor, has_torch, torch
from bertkit.transformer.kernels.instruction_sets import instruction_sets
from bertkit.transformer.kernels.llvm_vectors import compiles_for, has_fused_multiplication, has_wide_registers
from bertkit.transformer.relative import PositionRows


def multiplies_panels_fast(precision: str = "float32") -> bool:
    """Whether products of this package are about as fast as oneDNN's, or there is no torch, so that inference needs
    none: on x86 without AMX (measured on AMD Zen 3 and 4)."""
    has_avx2 = has_wide_registers("avx2")
    has_vectors = has_avx2 and has_wide_registers("fma")
    is_float = precision in ("float32", "bfloat16")
    if not has_torch():
        return has_fused_multiplication() if is_float else has_avx2 and precision == "int8"
    return has_vectors and (is_float or precision == "int8") and "amx-tile" not in instruction_sets()


_SLOW_PAIRS = ("cooperlake", "sapphirerapids", "emeraldrapids", "graniterapids")
"""Intel processors, which add pairs of bfloat16 products at half the rate of single float32 products (measured on an
Emerald Rapids)."""


def multiplies_pairs_fast() -> bool:
    """Whether pairs of bfloat16 products are faster than float32 products here, also in attention."""
    return has_wide_registers("avx512bf16") and not compiles_for(*_SLOW_PAIRS)


Kernel = Literal["varlen", "blocks", "runs"]
"""Functions of `device_attention`: `varlen_attention`, `block_attention`, and `packed_attention`, the reference."""

_FIRST_CAPABILITY, _LARGEST_HEAD = (8, 0), 256
"""Limits of FlashAttention 2: Ampere and later; also a multiple of 8 columns."""
_FIRST_OF_TRITON, _LONGEST_OF_TRITON, _HEADS_OF_TRITON = (9, 0), 512, (16, 32, 64)
"""Where `short_attention` was measured to be faster: Hopper."""
_HAS_TRITON = importlib.util.find_spec("triton") is not None


def kernel_for(
    device_type: str,
    capability: tuple[int, int],
    dtype: torch.dtype,
    head_dim: int,
    bias: Tensor | PositionRows | None = None,
) -> Kernel:
    """The kernel of self-attention in torch's operations; every kernel computes every window, and dropout. "varlen"
    has no bias, and only "runs" relative positions."""
    if device_type == "cpu" or isinstance(bias, PositionRows):
        return "runs"
    is_offered = device_type == "cuda" and capability >= _FIRST_CAPABILITY
    fits = dtype in (torch.bfloat16, torch.float16) and head_dim % 8 == 0 and head_dim <= _LARGEST_HEAD
    return "varlen" if is_offered and fits and bias is None else "blocks"


def capability_of(device: torch.device) -> tuple[int, int]:
    """The compute capability of a CUDA device, (0, 0) of others; torch's compiler reads it as a constant."""
    if device.type != "cuda" or torch.version.hip is not None:
        return 0, 0
    properties = torch.cuda.get_device_properties(device)
    return properties.major, properties.minor


def is_for_triton(query: Tensor, longest: int) -> bool:
    """True where `short_attention` is faster than `varlen_attention`: while torch compiles, so in training."""
    is_short = longest <= _LONGEST_OF_TRITON and query.shape[-1] in _HEADS_OF_TRITON
    is_offered = _HAS_TRITON and capability_of(query.device) >= _FIRST_OF_TRITON
    return torch.compiler.is_compiling() and is_short and is_offered


BATCH_INVARIANT = "BERTKIT_BATCH_INVARIANT"
"""The environment variable that asks for the same bits in any batch on GPUs."""


def is_batch_invariant(device: torch.device) -> bool:
    """Whether inference on a device gives a text the same bits in any batch: on a CPU, and on a CUDA device if
    BATCH_INVARIANT is 1. There it is an option, as the price of its kernels is not measured.

    Raises:
        UsageError: another value than 0 or 1, or no triton.
    """
    if device.type != "cuda":
        return device.type == "cpu"
    asked = os.environ.get(BATCH_INVARIANT) or "0"
    if asked not in ("0", "1"):
        raise UsageError(f"{BATCH_INVARIANT}={asked!r}: expected 1, the same bits in any batch, or 0")
    if asked == "1" and not _HAS_TRITON:
        raise UsageError(f"{BATCH_INVARIANT}=1 needs triton, which comes with torch for CUDA: pip install triton")
    return asked == "1"


def has_invariant_kernels(x: Tensor) -> bool:
    """Whether a step of inference on a GPU takes the kernels of `is_batch_invariant`; in float64 there are none."""
    is_on_gpu = x.device.type == "cuda" and not torch.is_grad_enabled()
    return is_on_gpu and x.dtype != torch.float64 and is_batch_invariant(x.device)
