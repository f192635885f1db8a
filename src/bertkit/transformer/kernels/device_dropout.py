"""Dropout in a few operations of integers, for compiled training on a GPU.

torch's compiled dropout computes ten rounds of a random generator for every number, which takes longer than the norm
around it, and keeps the mask for the backward pass. Here a mask is a hash of its counters, as in `training_rows`, and
the backward pass computes it again from the key.
"""

import torch
from torch import Tensor, nn


def apply_dropout(x: Tensor, module: nn.Dropout) -> Tensor:
    """``module(x)``; while torch compiles, by `drop` with a new key."""
    if torch.compiler.is_compiling() and module.training and module.p:
        return drop(x, new_key(x.device), module.p)
    return module(x)


_STEP, _INVERSE = 0x9E3779B9, 0x144CBC89
"""Distance of the counters of one key, and its inverse modulo 2**32. Key times inverse is added before the product with
the distance: torch's compiler would compute that of the counter itself beyond 32 bits."""


def drop(x: Tensor, key: Tensor, probability: float) -> Tensor:
    """Dropout of any shape: the numbers that `training_rows.dropout_rows` keeps for the same key, scaled likewise.

    Args:
        key: int32, of no dimension; on the device, so that a recorded or compiled pass can have another each time.
    """
    counters = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    bits = _hash((counters + key * _signed(_INVERSE)) * _signed(_STEP))
    limit = min(int(probability * 2**32), 2**32 - 1)
    stays = (bits ^ _signed(1 << 31)) >= _signed(limit ^ (1 << 31))  # unsigned numbers compared as signed ones
    return torch.where(stays, x * (1 / (1 - probability)), 0.0)


def new_key(device: torch.device) -> Tensor:
    """A key by torch's random generator of the device."""
    return torch.randint(-(1 << 31), 1 << 31, (), dtype=torch.int32, device=device)


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
