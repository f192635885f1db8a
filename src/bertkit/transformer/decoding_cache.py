"""Key-value cache for generation.

Shape letters: R rows, H num_heads, K head_dim, C capacity in tokens, D hidden_size, S source tokens.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.cached_attention import append_keys_values, attend_cached
from bertkit.transformer.kernels.rows import whole_vectors
from bertkit.transformer.kernels.vectors import WIDTH

_FIRST_CAPACITY = 32


class LayerCache:
    """Keys and values of one layer; memory grows with the longest row."""

    def __init__(self, num_rows: int, num_heads: int, head_dim: int, capacity: int) -> None:
        self.keys = np.zeros((num_rows, num_heads, capacity // WIDTH, head_dim, WIDTH), np.float32)  # transposed
        self.values = np.zeros((num_rows, num_heads, capacity, whole_vectors(head_dim)), np.float32)

    def append(self, rows: Tensor, column: int, cu_new: np.ndarray, lengths: np.ndarray) -> None:
        """Append keys and values of new tokens to rows of ``lengths`` tokens; see `append_keys_values`."""
        longest = int((lengths + np.diff(cu_new)).max())
        capacity = self.values.shape[2]
        if longest > capacity:
            missing = whole_vectors(max(longest, 2 * capacity)) - capacity
            self.keys = np.pad(self.keys, ((0, 0), (0, 0), (0, missing // WIDTH), (0, 0), (0, 0)))
            self.values = np.pad(self.values, ((0, 0), (0, 0), (0, missing), (0, 0)))
        append_keys_values(array(rows), column, cu_new, lengths, self.keys, self.values)

    def attend(
        self, rows: Tensor, cu_new: np.ndarray, lengths: np.ndarray, cache_rows: np.ndarray, is_causal: bool
    ) -> Tensor:
        """The context (N, D) of new tokens; see `attend_cached`. Zeros after the last token."""
        context = rows.new_zeros(len(rows), self.keys.shape[1] * self.keys.shape[3])
        attend_cached(array(rows), cu_new, lengths, cache_rows, is_causal, self.keys, self.values, array(context))
        return context

    def take(self, rows: np.ndarray) -> None:
        """Keep the (n,) rows, in that order; rows may repeat."""
        self.keys, self.values = self.keys[rows], self.values[rows]


class DecodingCache:
    """State of a decoder between steps: keys and values of rows and sources.

    Args:
        source_layers: keys and values of the sources by layer; empty for a model without sources.
        source_lengths: (num_sources,) number of tokens of each source.
        source_rows: (R,) index of the source of each row.
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        head_dim: int,
        num_rows: int,
        source_layers: Sequence[LayerCache] = (),
        source_lengths: Sequence[int] = (),
        source_rows: Sequence[int] = (),
    ) -> None:
        self.lengths = np.zeros(num_rows, np.int64)  # number of tokens of each row
        self.layers = [LayerCache(num_rows, num_heads, head_dim, _FIRST_CAPACITY) for _ in range(num_layers)]
        self.source_layers = source_layers
        self.source_lengths, self.source_rows = np.array(source_lengths, np.int64), np.array(source_rows, np.int64)

    def take(self, rows: np.ndarray) -> None:
        """Keep the (n,) int64 rows, in that order; rows may repeat."""
        if len(rows) == len(self.lengths) and (rows == np.arange(len(rows))).all():
            return
        self.lengths = self.lengths[rows]
        if len(self.source_rows):
            self.source_rows = self.source_rows[rows]
        for layer in self.layers:
            layer.take(rows)
