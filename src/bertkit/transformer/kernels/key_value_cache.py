"""Keys and values of earlier tokens, for all layers of a decoder.

Two versions with one signature: torch's own operations, on any device; and compiled, in float32 or bfloat16 on the CPU.
What all layers of a step share is prepared once, from lengths that the CPU knows. Shape letters:
N new tokens of all rows, R rows, D hidden_size, H num_heads, K head_dim, C capacity in tokens; G cache rows, M the most
new tokens that attend to one of them, S tokens of the longest.
"""

from __future__ import annotations

import numpy as np

from bertkit.device import send_together
from bertkit.later import F, Tensor, torch
from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.cached_attention import CachedAttention, append_keys_values, attend_cached
from bertkit.transformer.kernels.rows import whole_vectors
from bertkit.transformer.kernels.vectors import WIDTH

_FIRST_CAPACITY = 32
"""Capacity of short rows; it doubles when a row outgrows it."""


class PlainKeyValueCache:
    """Keys and values of layers; memory grows with the longest row. On a GPU nothing waits for it.

    Args:
        dtype, device: of the keys and values, and of the products.
    """

    def __init__(
        self, num_layers: int, num_rows: int, num_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = 2, num_rows, num_heads, 0, head_dim  # keys and values, G, H, C, K
        self.layers = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self.num_rows, self.num_heads, self.head_dim = num_rows, num_heads, head_dim
        self.dtype, self.device = dtype, device

    def begin_append(self, cu_new: np.ndarray, lengths: np.ndarray) -> None:
        """Prepare `append` for a step.

        Args:
            cu_new: (R + 1,) int64, cumulative number of new tokens.
            lengths: (R,) int64, number of cached tokens of each row.
        """
        num_new = np.diff(cu_new)
        missing = _missing(self.layers[0].shape[3], lengths + num_new) if self.layers else 0
        if missing:
            self.layers = [F.pad(layer, (0, 0, 0, missing)) for layer in self.layers]
        rows = np.repeat(np.arange(len(lengths)), num_new)
        self._new_rows, self._new_columns = self._sent(rows, np.arange(len(rows)) + (lengths - cu_new[:-1])[rows])

    def append(self, number: int, rows: Tensor, column: int) -> None:
        """Append keys and values of new tokens to a layer.

        Args:
            number: index of the layer.
            rows: (N or more, ...) with the keys of all heads of each new token from ``column`` on, then the values.
        """
        new = rows[: len(self._new_rows), column:].unflatten(1, (2, self.num_heads, self.head_dim))  # (N, 2, H, K)
        self.layers[number][:, self._new_rows, :, self._new_columns] = new

    def begin_attend(self, cu_new: np.ndarray, lengths: np.ndarray, cache_rows: np.ndarray, is_causal: bool) -> None:
        """Prepare `attend` for a step, after `begin_append`.

        Args:
            cu_new: (R + 1,) int64, cumulative number of new tokens.
            lengths: (R,) int64, number of tokens of each row before the new ones; without ``is_causal`` all visible
                keys.
            cache_rows: (R,) int64, cache row that each row attends to.
            is_causal: a new token attends to itself and earlier ones.
        """
        num_new = np.diff(cu_new)
        tokens, of_token = np.arange(cu_new[-1]), np.repeat(cache_rows, num_new)
        num_seen = np.repeat(lengths - cu_new[:-1], num_new) + tokens + 1 if is_causal else np.repeat(lengths, num_new)
        # The tokens of a cache row are a row of the (G, M) queries, filled up with copies of a token that are dropped.
        order, counts = np.argsort(of_token, kind="stable"), np.bincount(of_token, minlength=self.num_rows)
        self._width, number_in_row = int(counts.max()), np.empty_like(tokens)
        number_in_row[order] = tokens - np.repeat(np.cumsum(counts) - counts, counts)
        positions = of_token * self._width + number_in_row
        queries, seen = np.zeros(self.num_rows * self._width, np.int64), np.ones(self.num_rows * self._width, np.int64)
        queries[positions], seen[positions] = tokens, num_seen
        self._queries, self._positions, sent = self._sent(queries, positions, seen)
        self._num_seen = whole_vectors(int(num_seen.max()))  # kernels read masks in sixteens
        is_hidden = torch.arange(self._num_seen, device=self.device) >= sent.view(self.num_rows, 1, self._width, 1)
        self._mask = torch.zeros(is_hidden.shape, dtype=self.dtype, device=self.device)
        self._mask.masked_fill_(is_hidden, -torch.inf)  # (G, 1, M, S)

    def attend(self, number: int, rows: Tensor) -> Tensor:
        """``softmax(Q K^T / sqrt(K)) V`` of new tokens whose keys and values are already cached.

        Args:
            number: index of the layer.
            rows: (N or more, ...) with the queries of all heads in its first D columns.

        Returns:
            (N or more, D), zeros after the last new token.
        """
        width = self.num_heads * self.head_dim
        keys, values = self.layers[number][..., : self._num_seen, :].unbind()  # (G, H, S, K) each
        queries = rows[self._queries, :width].view(self.num_rows, self._width, self.num_heads, self.head_dim)
        attended = F.scaled_dot_product_attention(queries.transpose(1, 2), keys, values, self._mask)  # (G, H, M, K)
        context = attended.transpose(1, 2).reshape(-1, width)[self._positions]
        return context if len(context) == len(rows) else F.pad(context, (0, 0, 0, len(rows) - len(context)))

    def take(self, rows: np.ndarray) -> None:
        """Keep the (n,) int64 rows, in that order; rows may repeat."""
        (sent,) = self._sent(rows)
        self.num_rows, self.layers = len(rows), [layer.index_select(1, sent) for layer in self.layers]

    def _sent(self, *numbers: np.ndarray) -> list[Tensor]:
        return send_together([torch.from_numpy(each) for each in numbers], self.device)


class CompiledKeyValueCache:
    """The same, compiled. A row is bit-identical regardless of the other rows.

    Args:
        dtype: of the keys and values, float32 or bfloat16; those of products in another dtype are rounded to it.
    """

    def __init__(
        self, num_layers: int, num_rows: int, num_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = num_layers, num_rows, num_heads, 0
        element = array(torch.empty(0, dtype=dtype)).dtype
        self.keys = np.zeros((*shape, head_dim, WIDTH), element)  # transposed, in blocks
        self.values = np.zeros((*shape, whole_vectors(head_dim)), element)
        self.width = num_heads * head_dim

    def begin_append(self, cu_new: np.ndarray, lengths: np.ndarray) -> None:
        """As `PlainKeyValueCache.begin_append`."""
        self._appended = cu_new, lengths
        if missing := _missing(self.values.shape[3], lengths + np.diff(cu_new)):
            before, after = ((0, 0),) * 3, (0, 0)
            self.keys = np.pad(self.keys, (*before, (0, missing // WIDTH), after, after))
            self.values = np.pad(self.values, (*before, (0, missing), after))

    def append(self, number: int, rows: Tensor, column: int) -> None:
        """As `PlainKeyValueCache.append`."""
        append_keys_values(array(rows), column, *self._appended, self.keys[number], self.values[number])

    def begin_attend(self, cu_new: np.ndarray, lengths: np.ndarray, cache_rows: np.ndarray, is_causal: bool) -> None:
        """As `PlainKeyValueCache.begin_attend`."""
        self._attending = cu_new, lengths, cache_rows, is_causal

    def attend(self, number: int, rows: Tensor) -> Tensor:
        """As `PlainKeyValueCache.attend`."""
        context = rows.new_zeros(len(rows), self.width)
        attention = CachedAttention(*self._attending, self.keys[number], self.values[number])
        attend_cached(array(rows), attention, array(context))
        return context

    def of_all_layers(self) -> CachedAttention:
        """The step that has begun, with keys (L, G, H, C / 16, K, 16) and values (L, G, H, C, ...) of L layers."""
        return CachedAttention(*self._attending, self.keys, self.values)

    def take(self, rows: np.ndarray) -> None:
        """As `PlainKeyValueCache.take`."""
        self.keys, self.values = (np.take(each, rows, axis=1) for each in (self.keys, self.values))  # C-contiguous


KeyValueCache = PlainKeyValueCache | CompiledKeyValueCache


def _missing(capacity: int, lengths: np.ndarray) -> int:
    """The number of tokens, in whole vectors, by which rows of these lengths need a larger capacity; 0 if they fit."""
    longest = int(lengths.max())
    return 0 if longest <= capacity else whole_vectors(max(longest, 2 * capacity, _FIRST_CAPACITY)) - capacity
