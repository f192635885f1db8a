"""Rotary position embeddings (Su et al. 2021, "RoFormer", section 3.2).

The product of a query and a key, each rotated by its position, depends on the distance between them.
Shape letters: T total_tokens, H num_heads, K head_dim.
"""

from typing import Any, NamedTuple

import numpy as np

from bertkit.later import Tensor, torch

Rows = Any
"""A tensor or an array."""


class Rotary(NamedTuple):
    """The angles of every token, one for each pair of columns."""

    cos: Rows  # (T, K / 2) float32
    sin: Rows  # (T, K / 2) float32

    def at(self, rows: Tensor | slice) -> "Rotary":
        """Some of the rows, in any order."""
        return Rotary(self.cos[rows], self.sin[rows])


def rotary_of(position_ids: Tensor, theta: float, head_dim: int, factor: float = 1.0) -> Rotary:
    """The angles ``position * theta ** (-2 i / K)`` of pair i.

    Always float32, as in the published model: at position 8,000 the rounding of a frequency changes the angle by about
    1e-4.

    Args:
        position_ids: (T,).
        factor: divisor of the frequencies.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=position_ids.device) / head_dim
    angles = position_ids[:, None].float() * (1.0 / theta**exponents / factor)
    return Rotary(angles.cos(), angles.sin())


def rotary_rows(num_positions: int, theta: float, head_dim: int, factor: float = 1.0) -> Rotary:
    """`rotary_of` the first positions as arrays, with the functions of float32 numbers in float64, rounded once."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    powers = (np.float64(theta) ** exponents.astype(np.float64)).astype(np.float32)
    angles = np.arange(num_positions, dtype=np.float32)[:, None] * (np.float32(1) / powers / np.float32(factor))
    cos, sin = (function(angles.astype(np.float64)).astype(np.float32) for function in (np.cos, np.sin))
    return Rotary(cos, sin)


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Rotate queries or keys, (T, H, K) to the same, in float32 at least: columns i and i + K / 2 are a pair."""
    cos, sin = (part[:, None] for part in rotary)
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(x.dtype)
