"""Dropout and GELU for compiled training on a GPU, written so that torch's compiler makes fast kernels of them.

torch's dropout computes ten rounds of a random generator for every number, which takes longer than the norm around it,
and keeps the mask for the backward pass. Here a mask is a hash of counters, and the backward pass computes it again.
torch's GELU calls a function for erf that takes longer than reading and writing. Both are as on the CPU:
`training_rows`, `vector_functions.normal`.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import function

from bertkit.transformer.activations import ACTIVATIONS
from bertkit.transformer.kernels.training_rows import drop_limit

once_differentiable: Any = function.once_differentiable  # its annotation loses the arguments' names

_STEP, _INVERSE = 0x9E3779B9, 0x144CBC89
"""Distance of the counters of one key, and its inverse modulo 2**32. Key times inverse is added before the product with
the distance: torch's compiler would compute that of the counter itself beyond 32 bits."""


def apply_dropout(x: Tensor, module: nn.Dropout) -> Tensor:
    """``module(x)``; while torch compiles, by `drop` with a new key."""
    if torch.compiler.is_compiling() and module.training and module.p:
        return drop(x, new_key(x.device), module.p)
    return module(x)


def activate(x: Tensor, name: str) -> Tensor:
    """An activation, by its name in ACTIVATIONS; while torch compiles, GELU of 16-bit numbers by `gelu`."""
    if torch.compiler.is_compiling() and name == "gelu" and x.dtype in (torch.bfloat16, torch.float16):
        return gelu(x)
    return ACTIVATIONS[name](x)


def drop(x: Tensor, key: Tensor, probability: float) -> Tensor:
    """Dropout of any shape: the numbers that `training_rows.dropout_rows` keeps for the same key, scaled likewise.

    Args:
        key: int32, of no dimension; on the device, so that a recorded or compiled pass can have another each time.
    """
    counters = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    bits = _hash((counters + key * _signed(_INVERSE)) * _signed(_STEP))
    stays = (bits ^ _signed(1 << 31)) >= _signed(
        drop_limit(probability) ^ (1 << 31)
    )  # unsigned numbers compared as signed ones
    return torch.where(stays, x * (1 / (1 - probability)), 0.0)


def new_key(device: torch.device) -> Tensor:
    """A key by torch's random generator of the device."""
    return torch.randint(-(1 << 31), 1 << 31, (), dtype=torch.int32, device=device)


def gelu(x: Tensor) -> Tensor:
    """x times the standard normal distribution's cumulative probability at x, which is exact to 3e-7."""
    return _Gelu.apply(x)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        wide = x.float()
        return (wide * _normal(wide)[0]).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        wide = x.float()
        cdf, density = _normal(wide)
        return (grad * (cdf + wide * density)).to(x.dtype)


def _normal(x: Tensor) -> tuple[Tensor, Tensor]:
    """As `vector_functions.normal` (Abramowitz and Stegun 1964, formula 7.1.26)."""
    t = 1 / (1 + x.abs() * (0.3275911 / math.sqrt(2)))
    tail = 1.061405429 / 2 * t - 1.453152027 / 2
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        tail = tail * t + coefficient / 2
    power = torch.exp(-0.5 * x * x)
    tail = tail * t * power
    return torch.where(x > 0, 1 - tail, tail), power * (1 / math.sqrt(2 * math.pi))


def _hash(bits: Tensor) -> Tensor:
    """Wellons 2018, "Prospecting for hash functions", lowbias32; int32 multiplication wraps around."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = (bits ^ _shifted(bits, shift)) * _signed(factor)
    return bits ^ _shifted(bits, 16)


def _shifted(bits: Tensor, number: int) -> Tensor:
    """Shifted to the right, with zeros from the left."""
    return (bits >> number) & ((1 << (32 - number)) - 1)


def _signed(number: int) -> int:
    """The int32 with the bits of a uint32."""
    return number - (1 << 32) if number >= 1 << 31 else number
