"""Attention to cached keys and values on a GPU in Triton, in which a row has the same bits in any batch.

torch's attention reads all rows as long as the longest, and divides them by that length. Here one program adds up a
token and a head, from the first key to the last that it sees. Shape letters as in ``key_value_cache.py``.
Needs triton, which comes with torch for CUDA.
"""

import math

import numpy as np
import triton  # pyrefly: ignore  # comes with torch for CUDA
import triton.language as tl  # pyrefly: ignore
from torch import Tensor

from bertkit.transformer.kernels.key_value_cache import PlainKeyValueCache

_NUM_KEYS = 32
"""Keys that are added up at a time."""
_LOG2_E = 1.4426950408889634


@triton.jit(do_not_specialize=["capacity"])
def _attend(
    rows, keys, values, cache_rows, num_seen, context, row_stride, capacity, scale,
    num_heads: tl.constexpr, head_dim: tl.constexpr, num_columns: tl.constexpr, num_keys: tl.constexpr,
):  # fmt: skip
    """The context of a token and a head."""
    token, head = tl.program_id(0) // num_heads, tl.program_id(0) % num_heads
    columns = tl.arange(0, num_columns)
    are_columns = columns < head_dim
    of_head = head * head_dim + columns
    query = tl.load(rows + token.to(tl.int64) * row_stride + of_head, mask=are_columns, other=0.0).to(tl.float32)
    own = (tl.load(cache_rows + token).to(tl.int64) * num_heads + head) * capacity * head_dim
    length = tl.load(num_seen + token)
    largest, total = float("-inf"), 0.0
    summed = tl.zeros((num_columns,), tl.float32)
    for start in range(0, length, num_keys):
        positions = start + tl.arange(0, num_keys)
        are_keys = positions < length
        places = own + positions[:, None] * head_dim + columns[None, :]
        are_read = are_keys[:, None] & are_columns[None, :]
        key = tl.load(keys + places, mask=are_read, other=0.0).to(tl.float32)
        value = tl.load(values + places, mask=are_read, other=0.0).to(tl.float32)
        scores = tl.where(are_keys, tl.sum(query[None, :] * key, 1) * scale, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 0))
        probs = tl.exp2(scores - new_largest)
        factor = tl.exp2(largest - new_largest)
        total = total * factor + tl.sum(probs, 0)
        summed = summed * factor + tl.sum(probs[:, None] * value, 0)
        largest = new_largest
    places = token.to(tl.int64) * (num_heads * head_dim) + of_head
    tl.store(context + places, (summed / total).to(context.dtype.element_ty), mask=are_columns)


class InvariantKeyValueCache(PlainKeyValueCache):
    """`PlainKeyValueCache` of bfloat16, float16 or float32. A row is bit-identical regardless of the other rows."""

    def begin_attend(self, cu_new: np.ndarray, lengths: np.ndarray, cache_rows: np.ndarray, is_causal: bool) -> None:
        num_new = np.diff(cu_new)
        num_seen = np.repeat(lengths, num_new)
        if is_causal:
            num_seen = num_seen + np.arange(cu_new[-1]) - np.repeat(cu_new[:-1], num_new) + 1
        self._rows_of_tokens, self._seen = self._sent(np.repeat(cache_rows, num_new), num_seen)

    def attend(self, number: int, rows: Tensor) -> Tensor:
        keys, values = self.layers[number].unbind()  # (G, H, C, K) each
        context = rows.new_zeros(len(rows), self.num_heads * self.head_dim)
        num_columns = triton.next_power_of_2(self.head_dim)
        _attend[(len(self._seen) * self.num_heads,)](
            rows, keys, values, self._rows_of_tokens, self._seen, context, rows.stride(0), keys.shape[2],
            _LOG2_E / math.sqrt(self.head_dim), self.num_heads, self.head_dim, num_columns, _NUM_KEYS,
        )  # fmt: skip
        return context
