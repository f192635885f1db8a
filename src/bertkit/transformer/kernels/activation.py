"""Activations for inference on the CPU, elementwise bit-identical at any position in a tensor.

torch computes most elements of a tensor with vector instructions and the last few one by one, with different last bits;
which ones are last depends on the numbers of rows and threads.
"""

import math

import numpy as np

from bertkit.compiled import compiled
from bertkit.transformer.activations import ACTIVATIONS
from bertkit.transformer.kernels.arrays import Rows, array, as_given, empty, floats
from bertkit.transformer.kernels.rows import activate_rows
from bertkit.transformer.kernels.vector_functions import CODES, SHORT_GELU


def apply_activation(x: Rows, name: str, *, in_place: bool = False) -> Rows:
    """An activation by its name in ACTIVATIONS: (M, N) to the same, without gradient.

    Args:
        in_place: ``x`` is contiguous, and may become the result.
    """
    if not isinstance(x, np.ndarray) and (x.device.type != "cpu" or name == "relu"):  # without rounding
        return ACTIVATIONS[name](x)
    if name == "relu":
        is_short = x.dtype == np.uint16
        return as_given(np.maximum(floats(x), 0), x) if is_short else np.maximum(x, 0, out=x if in_place else None)
    x = np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x.contiguous()
    out = x if in_place else empty(x, *x.shape)
    if name in CODES and (dtype := array(x).dtype) in (np.float32, np.uint16):
        code = SHORT_GELU if name == "gelu" and dtype == np.uint16 else CODES[name]
        activate_rows(array(x), np.intp(code), array(out))
        return out
    numbers = array(x) if array(x).dtype == np.float64 else floats(x)
    result = np.empty_like(numbers)
    _FORWARD[name](numbers.ravel(), result.ravel())
    return as_given(result, x)


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


_FORWARD = {  # of float64 and float16, and others of float32
    "gelu": _gelu,
    "gelu_new": _gelu_tanh,
    "silu": _silu,
    "tanh": _tanh,
}
