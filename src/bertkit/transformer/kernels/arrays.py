"""Conversion of torch tensors to arrays for compiled kernels."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.transformer.kernels.rows import Norm, padded
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.rotary import Rotary
from bertkit.transformer.window import Window, window_of


def array(tensor: Tensor) -> np.ndarray:
    """The same memory as an array, bfloat16 as uint16."""
    tensor = tensor.detach()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def norm_arrays(norm: nn.LayerNorm | nn.RMSNorm) -> Norm:
    """The current weights of a normalization."""
    weight = padded(array(norm.weight))
    bias = np.zeros_like(weight)
    if isinstance(norm, nn.LayerNorm) and norm.bias is not None:
        bias = padded(array(norm.bias))
    return Norm(weight, bias, np.float32(norm.eps))


_BEYOND = 32
"""Columns beyond the largest distance on each side, for whole vectors."""


def bias_array(bias: Tensor | None, head_dim: int) -> np.ndarray | None:
    """A bias by distance, (H, 2 L - 1), in the layout of tile attention, divided by the scale of the scores."""
    if bias is None:
        return None
    return F.pad(bias.detach().float() * math.sqrt(head_dim), (_BEYOND, _BEYOND)).numpy()


def position_arrays(positions: PositionRows) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.float32]:
    """Keys and queries of relative positions, in the layout of disentangled tile attention."""
    keys, queries = (part.float().contiguous().numpy() for part in (positions.keys, positions.queries))
    return keys, queries, positions.row_of_distance.numpy(), np.float32(positions.scale)


def bias_gradient(grad: np.ndarray | None, head_dim: int) -> Tensor | None:
    """The gradient of a bias, from the gradient of its array."""
    return None if grad is None else torch.from_numpy(grad[:, _BEYOND:-_BEYOND] * np.float32(math.sqrt(head_dim)))


def rotary_and_window(
    rotary: Rotary | None, window: int | Window | None, longest: int
) -> tuple[tuple[np.ndarray, np.ndarray] | None, Window | None]:
    """Angles and window for tile attention; with angles there is always a window, so that one code serves both.

    Args:
        longest: number of tokens of the longest sequence.
    """
    seen = window_of(window)
    if rotary is None:
        return None, None if seen is None else seen.within(longest)
    return (array(rotary.cos), array(rotary.sin)), (seen or Window(longest, longest)).within(longest)
