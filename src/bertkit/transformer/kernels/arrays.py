"""Tensors of torch as arrays for compiled kernels, which take either and give what they took.

Networks without torch have arrays throughout; with torch, a tensor of the CPU is an array of the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertkit.device import send
from bertkit.later import Tensor, torch
from bertkit.transformer.kernels.rows import Norm, UnscaledProduct, padded, read_rows
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.rotary import Rotary
from bertkit.transformer.window import Window, window_of

Rows = Any
"""Rows of numbers: an array, or a tensor of torch."""


def array(tensor: Rows) -> Any:
    """The same memory as an array, bfloat16 as uint16; of another device a copy; an UnscaledProduct as it is."""
    if isinstance(tensor, np.ndarray | UnscaledProduct):
        return tensor
    tensor = tensor.detach().cpu()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def floats(tensor: Rows) -> np.ndarray:
    """The numbers in float32, row by row; a copy only of another dtype or layout."""
    numbers = tensor if isinstance(tensor, np.ndarray) else tensor.detach().float().cpu().numpy()
    return np.ascontiguousarray(converted(numbers, np.float32) if numbers.dtype == np.uint16 else numbers, np.float32)


def converted(rows: Rows, dtype: Any) -> Rows:
    """The numbers in another dtype: of an array float32, or uint16 that holds bfloat16."""
    if not isinstance(rows, np.ndarray):
        return rows.to(dtype)
    if rows.dtype == dtype:
        return rows
    result, lines = np.empty(rows.shape, dtype), np.ascontiguousarray(rows).reshape(-1, rows.shape[-1])
    read_rows(lines, result.reshape(lines.shape))
    return result


def as_given(rows: Rows, given: Rows) -> Rows:
    """Rows in float32 as an array, or as a tensor, of the dtype of another."""
    if isinstance(given, np.ndarray):
        return converted(rows, np.uint16) if given.dtype == np.uint16 else rows
    return torch.from_numpy(rows).to(given.dtype)


def rows_as_given(numbers: np.ndarray, given: Rows) -> Rows:
    """The same memory as a tensor of the dtype of another, the opposite of `array`; or as an array."""
    return numbers if isinstance(given, np.ndarray) else torch.from_numpy(numbers).view(given.dtype)


def rows_beside(numbers: np.ndarray, given: Rows) -> Rows:
    """An array of any dtype; beside a tensor, as a tensor on its device."""
    return numbers if isinstance(given, np.ndarray) else send(torch.from_numpy(numbers), given.device)


def library_of(rows: Rows) -> Any:
    """numpy for an array, torch for a tensor: functions that both have."""
    return np if isinstance(rows, np.ndarray) else torch


def are_equal(one: Rows | None, other: Rows | None) -> bool:
    """True for rows of the same shape and numbers, or in the same memory, or without any."""
    if one is None or other is None:
        return one is other
    return _memory(one) == _memory(other) or bool(
        np.array_equal(one, other) if isinstance(one, np.ndarray) else torch.equal(one, other)
    )


def _memory(rows: Rows) -> tuple[Any, ...]:
    if isinstance(rows, np.ndarray):
        return rows.ctypes.data, rows.dtype, rows.shape, rows.strides
    return rows.data_ptr(), rows.dtype, rows.shape, rows.stride()


def split(rows: Rows, counts: list[int]) -> Sequence[Rows]:
    """Rows in parts of these numbers of rows."""
    if not isinstance(rows, np.ndarray):
        return rows.split(counts)
    ends = np.cumsum(counts).tolist()
    return [rows[end - count : end] for end, count in zip(ends, counts, strict=True)]


def empty(given: Rows, *shape: int) -> Rows:
    """Uninitialized rows of the kind and dtype of others."""
    return np.empty(shape, given.dtype) if isinstance(given, np.ndarray) else given.new_empty(shape)


def copied(rows: Rows) -> Rows:
    """The same numbers in other memory."""
    return rows.copy() if isinstance(rows, np.ndarray) else rows.clone()


def is_rms(norm: Any) -> bool:
    """Whether a normalization is by the root of the mean square alone: it has no mean and no bias."""
    return not hasattr(norm, "bias")


def norm_arrays(norm: Any) -> Norm:
    """The current weights of a normalization."""
    weight = padded(array(norm.weight))
    bias = None if is_rms(norm) else norm.bias
    return Norm(weight, np.zeros_like(weight) if bias is None else padded(array(bias)), np.float32(norm.eps))


_BEYOND = 32
"""Columns beyond the largest distance on each side, for whole vectors."""


def bias_array(bias: Tensor | None, head_dim: int) -> np.ndarray | None:
    """A bias by distance, (H, 2 L - 1), in the layout of tile attention, divided by the scale of the scores."""
    if bias is None:
        return None
    return np.pad(floats(bias) * np.float32(math.sqrt(head_dim)), [(0, 0), (_BEYOND, _BEYOND)])


def position_arrays(positions: PositionRows) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.float32]:
    """Keys and queries of relative positions, in the layout of disentangled tile attention."""
    keys, queries = floats(positions.keys), floats(positions.queries)
    return keys, queries, array(positions.row_of_distance), np.float32(positions.scale)


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
