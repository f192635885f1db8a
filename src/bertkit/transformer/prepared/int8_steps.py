"""The steps of a prepared layer with 8-bit products, which the step after each scales; all else is float32.

Shape letters: T total_tokens, D hidden_size, F intermediate_size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bertkit.batch import Batch
from bertkit.later import Tensor, nn
from bertkit.transformer.embeddings import Embeddings, SummedEmbeddings
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import (
    Rows,
    array,
    empty,
    floats,
)
from bertkit.transformer.kernels.attention import bias_of_length
from bertkit.transformer.kernels.dispatch import Kernels, linear_for
from bertkit.transformer.kernels.inference_steps import (
    CompiledAddThenNorm,
    CompiledEmbeddings,
    CompiledHeadNorms,
    norm_arrays,
    plain_gate,
    tile_attention,
)
from bertkit.transformer.kernels.rows import (
    Norm,
    Quantized,
    UnscaledProduct,
    activate_in_8_bits,
    empty_quantized,
    norm_rows,
    quantize_rows,
    read_rows,
)
from bertkit.transformer.kernels.vector_functions import SHORT_GELU, SILU
from bertkit.transformer.layer import State
from bertkit.transformer.prepared.layer import PreparedLayer


class HiddenStates(NamedTuple):
    """Hidden states in float32 and 8 bits, so that rounding does not accumulate in the residual stream.

    Every row has its own scale, so that the vector of a text does not depend on the other texts in the batch.
    """

    floats: Rows  # (T, D) float32, for the residual
    quantized: Quantized  # (T, D), for the products


def hidden_states_of(rows: Rows) -> HiddenStates:
    """(T, D) float32, also in 8 bits."""
    quantized = empty_quantized(*rows.shape)
    quantize_rows(floats(rows), 0, len(rows), quantized)
    return HiddenStates(rows, quantized)


class Int8Embeddings:
    """A batch to its first hidden states."""

    def __init__(self, embeddings: Embeddings | SummedEmbeddings) -> None:
        project = embeddings.project
        self.fused = CompiledEmbeddings(embeddings) if isinstance(embeddings, Embeddings) else None
        self.embed = self.fused or embeddings.look_up
        self.project = None if project is None else linear_for("float32").linear(project.weight, project.bias)

    def __call__(self, batch: Batch) -> HiddenStates:
        if self.fused is not None and self.project is None:
            quantized = empty_quantized(len(batch.input_ids), self.fused.tables[0].shape[1])
            return HiddenStates(self.fused(batch, quantized), quantized)
        hidden = self.embed(batch)
        return hidden_states_of(hidden if self.project is None else self.project(hidden))


class Int8Steps:
    """Steps with 8-bit products; methods as in `FloatSteps`."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels

    def linear(self, weight: Tensor, bias: Tensor | None) -> Any:
        return self.kernels.linear(weight, bias)

    def product(self, linear: Any, read: HiddenStates) -> UnscaledProduct:
        return linear(read.quantized)

    def norm(self, norm: nn.LayerNorm, is_pre_norm: bool) -> Any:
        return Int8AddThenNorm(norm, None) if is_pre_norm else norm_arrays(norm)

    def embeddings(self, module: Any, is_pre_norm: bool) -> Any:
        return Int8Embeddings(module)

    def begin(self, embedded: Any, norm: Any) -> State:
        if norm is None:
            return State(embedded.floats, embedded)
        return State(*norm(np.zeros(embedded.floats.shape, np.float32), embedded.floats))

    def head_norms(self, *arguments: Any) -> Any:
        return CompiledHeadNorms(*arguments)

    def attend(
        self, layer: PreparedLayer, query_key_value: UnscaledProduct | np.ndarray, batch: Batch, rotary: Any
    ) -> Quantized:
        bias, sizes = bias_of_length(layer.bias, batch.max_seqlen), (layer.num_heads, layer.head_dim)
        quantized = empty_quantized(len(batch.input_ids), layer.num_heads * layer.head_dim)
        tile_attention(query_key_value, batch, *sizes, rotary, layer.window, bias, quantized)
        return quantized

    def inner(self, linear: Any, x: HiddenStates, activation: str, is_gated: bool) -> Quantized:
        product = linear(x.quantized)
        if is_gated:
            return activate_gate(product, activation)
        if activation != "gelu":
            read_rows(product, product.values)
            return hidden_states_of(apply_activation(product.values, activation)).quantized
        quantized = empty_quantized(*product.values.shape)
        activate_in_8_bits(product, np.intp(SHORT_GELU), quantized)
        return quantized

    def add_and_norm(self, linear: Any, x: Quantized, state: State, norm: Any, is_pre_norm: bool) -> State:
        if is_pre_norm:
            return State(*norm(linear(x), state.stream))
        hidden = add_and_norm(linear(x), state.stream, norm)
        return State(hidden.floats, hidden)

    def take(self, x: Any, rows: Rows) -> Any:
        if isinstance(x, HiddenStates):
            return HiddenStates(x.floats[rows], self.take(x.quantized, rows))
        return Quantized(*(part[array(rows)] for part in x))

    @staticmethod
    def floats_of(read: HiddenStates) -> Rows:
        return read.floats


def activate_gate(product: UnscaledProduct, activation: str) -> Quantized:
    """``activation(left) * right`` of the halves of each row: (T, 2 F) to (T, F)."""
    num_tokens, width = product.values.shape
    if activation not in ("gelu", "silu"):
        read_rows(product, product.values)
        return hidden_states_of(plain_gate(product.values, activation)).quantized
    quantized = empty_quantized(num_tokens, width // 2)
    activate_in_8_bits(product, np.intp(SILU if activation == "silu" else SHORT_GELU), quantized)
    return quantized


def add_and_norm(product: UnscaledProduct, residual: Rows, norm: Norm) -> HiddenStates:
    """``norm(product + residual)``."""
    hidden, quantized = empty(residual, *residual.shape), empty_quantized(*residual.shape)
    norm_rows(product, array(residual), norm, array(hidden), quantized)
    return HiddenStates(hidden, quantized)


class Int8AddThenNorm(CompiledAddThenNorm):
    """``residual + product``, and the same after a normalization without bias."""

    def __call__(self, product: UnscaledProduct | np.ndarray, residual: Rows) -> tuple[Rows, HiddenStates]:
        """(T, D) each to (T, D) each."""
        quantized = empty_quantized(*residual.shape)
        summed, normed = super().__call__(product, residual, quantized)
        return summed, HiddenStates(normed, quantized)
