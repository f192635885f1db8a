"""Activations for inference on the CPU, elementwise bit-identical at any position in a tensor.

torch computes most elements of a tensor with vector instructions and the last few one by one, with different last bits;
which ones are last depends on the numbers of rows and threads.
"""

import math

import numpy as np
import torch
from torch import Tensor

from bertkit.compiled import compiled
from bertkit.transformer.activations import ACTIVATIONS
from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.training_rows import gelu_forward


def apply_activation(x: Tensor, name: str) -> Tensor:
    """An activation by its name in ACTIVATIONS: (M, N) to the same, without gradient."""
    if x.device.type != "cpu" or name == "relu":  # without rounding
        return ACTIVATIONS[name](x)
    x = x.contiguous()
    if name == "gelu" and x.dtype != torch.float64:
        out = torch.empty_like(x)
        gelu_forward(array(x), array(out))
        return out
    numbers = x.float() if x.dtype == torch.bfloat16 else x
    out = torch.empty_like(numbers)
    _FORWARD[name](numbers.numpy().ravel(), out.numpy().ravel())
    return out.to(x.dtype)


@compiled
def _gelu(x, out):
    for i in range(len(x)):
        out[i] = x[i] / 2 * (1 + math.erf(x[i] / math.sqrt(2)))


@compiled
def _gelu_tanh(x, out):
    for i in range(len(x)):
        inner = math.sqrt(2 / np.pi) * (x[i] + 0.044715 * x[i] ** 3)
        out[i] = x[i] / 2 * (1 + math.tanh(inner))


@compiled
def _silu(x, out):
    for i in range(len(x)):
        out[i] = x[i] / (1 + math.exp(-x[i]))


@compiled
def _tanh(x, out):
    for i in range(len(x)):
        out[i] = math.tanh(x[i])


_FORWARD = {  # of float32 and float64
    "gelu": _gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "silu": _silu,
    "swish": _silu,
    "tanh": _tanh,
}
