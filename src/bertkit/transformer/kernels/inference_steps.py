"""Inference steps between matrix products: embedding, attention, gate, layer norm.

Each has two versions with one signature: torch's own operations, the reference, for any device and dtype; and compiled,
for float32 and bfloat16 on the CPU, computed in float32 and rounded once when stored. Shape letters: T total_tokens, D
hidden_size, F intermediate_size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.later import F, Tensor, nn, torch
from bertkit.transformer.embeddings import Embeddings, SummedEmbeddings
from bertkit.transformer.kernels import rows as row_kernels
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import (
    Rows,
    array,
    as_given,
    bias_array,
    converted,
    empty,
    floats,
    is_rms,
    library_of,
    norm_arrays,
    position_arrays,
    rotary_and_window,
)
from bertkit.transformer.kernels.attention import norm_heads, packed_self_attention, repeated_heads
from bertkit.transformer.kernels.choices import has_invariant_kernels
from bertkit.transformer.kernels.disentangled_attention import attend_disentangled
from bertkit.transformer.kernels.rows import Quantized, UnscaledProduct, activate_rows, embed_rows, norm_rows
from bertkit.transformer.kernels.tile_attention import attend
from bertkit.transformer.kernels.training_rows import add_then_norm_forward
from bertkit.transformer.kernels.vector_functions import CODES
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.rotary import Rotary
from bertkit.transformer.window import Window


class PlainEmbeddings:
    """A batch to its first hidden states."""

    def __init__(self, embeddings: Embeddings | SummedEmbeddings, dtype: torch.dtype) -> None:
        self.embeddings, self.dtype = embeddings, dtype

    def __call__(self, batch: Batch) -> Tensor:
        """Returns (T, D), in the width of the tables."""
        embedded = self.embeddings.look_up(batch)
        return converted(embedded, self.dtype)


class CompiledEmbeddings:
    """The same, compiled."""

    def __init__(self, embeddings: Embeddings, dtype: torch.dtype | None = None) -> None:
        self.embeddings, self.dtype = embeddings, dtype
        self.tables = [_rows(embeddings.word)]
        none = np.zeros_like(self.tables[0][:1])
        position, types = embeddings.position, embeddings.token_type
        self.tables.append(none if position is None else _rows(position)[embeddings.first_position :])
        self.tables.append(none if types is None else _rows(types))
        self.norm = norm_arrays(embeddings.norm)

    def __call__(self, batch: Batch, quantized: Quantized | None = None) -> Rows:
        """Returns (T, D); when asked, also in 8 bits."""
        self.embeddings.check(batch)
        shape = len(batch.input_ids), self.tables[0].shape[1]
        library = library_of(batch.input_ids)
        hidden: Any = library.empty(shape, dtype=self.dtype or library.float32)
        positions = batch.position_ids if self.embeddings.position is not None else 0 * batch.position_ids
        ids = (array(batch.input_ids), array(positions), array(self.embeddings.types(batch)))
        embed_rows(*self.tables, *ids, self.norm, array(hidden), quantized)  # pyrefly: ignore
        return hidden


def _rows(table: nn.Embedding) -> np.ndarray:
    """The rows of a table one after another, as kernels read them; a copy only of another layout."""
    return np.ascontiguousarray(array(table.weight))


def plain_attention(
    query_key_value: Tensor,
    batch: Batch,
    num_heads: int,
    head_dim: int,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | PositionRows | None = None,
) -> Tensor:
    """(T, (H + 2 G) K) queries of H heads, and keys and values of G heads, to the context (T, H K).

    Rows after the last sequence of the batch have a context of zeros.

    Args:
        rotary: angles for rotating queries and keys first; None: no rotation.
        window: number of tokens visible on each side, or before and after; None: the whole sequence.
        bias: as for `packed_attention`.
    """
    bias = bias.to(query_key_value.dtype) if isinstance(bias, Tensor) else bias
    is_invariant = has_invariant_kernels(query_key_value)
    if is_invariant and not isinstance(bias, PositionRows):
        from bertkit.transformer.kernels.device_attention import sequence_attention

        return sequence_attention(query_key_value, batch, num_heads, head_dim, rotary, window, bias)
    query_key_value = repeated_heads(query_key_value, num_heads, head_dim)
    if query_key_value.device.type != "cpu" and not is_invariant:
        from bertkit.transformer.kernels.device_attention import batch_attention

        return batch_attention(query_key_value, batch, num_heads, 0.0, rotary, window, bias)
    contexts, start = [], 0  # one by one and copied: the last bits depend on the number and alignment of sequences
    for length in batch.seqlens:
        own = slice(start, start + length)
        angles = None if rotary is None else rotary.at(own)
        copied = query_key_value[own].clone()
        contexts.append(packed_self_attention(copied, [length], num_heads, 0.0, angles, window, bias))
        start += length
    return F.pad(torch.cat(contexts), (0, 0, 0, len(query_key_value) - start))


def tile_attention(
    query_key_value: Rows | UnscaledProduct,
    batch: Batch,
    num_heads: int,
    head_dim: int,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | PositionRows | None = None,
    quantized: Quantized | None = None,
) -> Rows:
    """The same, compiled; when asked, also in 8 bits."""
    values = query_key_value.values if isinstance(query_key_value, UnscaledProduct) else query_key_value
    context, cu_seqlens = empty(values, len(values), num_heads * head_dim), array(batch.cu_seqlens)
    for part in (context, *(quantized or ())):
        part[cu_seqlens[-1] :] = 0
    arguments = array(query_key_value), cu_seqlens, num_heads, array(context), quantized
    if isinstance(bias, PositionRows):
        attend_disentangled(*arguments, *position_arrays(bias))
    else:
        turns = rotary_and_window(rotary, window, batch.max_seqlen)
        attend(*arguments, *turns, bias_array(bias, head_dim))
    return context


class PlainHeadNorms:
    """Queries and keys with a norm over the columns of each head, as `norm_heads`."""

    def __init__(self, query_norm: nn.RMSNorm, key_norm: nn.RMSNorm, num_heads: int) -> None:
        self.arguments = query_norm, key_norm, num_heads

    def __call__(self, query_key_value: Tensor) -> Tensor:
        """(T, (H + 2 G) K) to the same."""
        return norm_heads(query_key_value, *self.arguments)


class CompiledHeadNorms:
    """The same, compiled."""

    def __init__(self, query_norm: nn.RMSNorm, key_norm: nn.RMSNorm, num_heads: int) -> None:
        norms = norm_arrays(query_norm), norm_arrays(key_norm)
        self.arguments = num_heads, query_norm.normalized_shape[0], *norms

    def __call__(self, query_key_value: Rows | UnscaledProduct) -> Rows:
        """(T, (H + 2 G) K) to the same, written over the input, or over the values of a product."""
        out = query_key_value.values if isinstance(query_key_value, UnscaledProduct) else query_key_value
        row_kernels.norm_heads(array(query_key_value), *self.arguments, array(out))
        return out


def plain_gate(x: Rows, activation: str) -> Rows:
    """``activation(left) * right`` of the halves of each row: (T, 2 F) to (T, F)."""
    width = x.shape[1] // 2
    left, right = apply_activation(x[:, :width], activation), x[:, width:]
    return as_given(floats(left) * floats(right), x) if isinstance(x, np.ndarray) else left * right


def compiled_gate(x: Rows, activation: str) -> Rows:
    """The same, with GELU and SiLU compiled."""
    if activation not in ("gelu", "silu"):
        return plain_gate(x, activation)
    out = empty(x, len(x), x.shape[1] // 2)
    activate_rows(array(x), np.intp(CODES[activation]), array(out))
    return out


class PlainAddThenNorm:
    """``residual + x``, and the same after a normalization without bias in the dtype of the products."""

    def __init__(self, norm: nn.LayerNorm | nn.RMSNorm, dtype: torch.dtype) -> None:
        self.norm, self.dtype = norm, dtype

    def __call__(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """(T, D) each to (T, D) each."""
        summed = residual + x
        return summed, self.norm(summed).to(self.dtype)


class CompiledAddThenNorm:
    """The same, compiled; dtype None: that of the sum."""

    def __init__(self, norm: nn.LayerNorm | nn.RMSNorm, dtype: torch.dtype | None) -> None:
        self.norm, self.dtype, self.is_rms = norm_arrays(norm), dtype, is_rms(norm)

    def __call__(
        self, x: Rows | UnscaledProduct, residual: Rows, quantized: Quantized | None = None
    ) -> tuple[Rows, Rows]:
        """(T, D) each to (T, D) each; when asked, the norm also in 8 bits."""
        summed, normed = (library_of(residual).empty_like(residual, dtype=dtype) for dtype in (None, self.dtype))
        means = None if self.is_rms else np.empty(len(residual), np.float32)
        outs = (array(summed), array(normed), means, np.empty(len(residual), np.float32))
        add_then_norm_forward(array(x), array(residual), self.norm, None, None, *outs, quantized)
        return summed, normed


class PlainNorm:
    """Layer normalization, with or without bias."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        self.shape, self.eps = norm.normalized_shape, norm.eps
        self.weight, self.bias = norm.weight.to(dtype), None if norm.bias is None else norm.bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """(T, D) to (T, D)."""
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class CompiledNorm:
    """The same, compiled, written over its input."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        self.norm = norm_arrays(norm)

    def __call__(self, x: Rows) -> Rows:
        """(T, D) to (T, D)."""
        rows = array(x)
        norm_rows(rows, None, self.norm, rows, None)
        return x
