"""Layers prepared for inference with 8-bit products; everything between products is float32.

Shape letters: T total_tokens, D hidden_size, F intermediate_size.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.embeddings import Embeddings, SummedEmbeddings
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import bias_array, position_arrays, turns_and_reach
from bertkit.transformer.kernels.attention import bias_of_length
from bertkit.transformer.kernels.disentangled_attention import attend_disentangled
from bertkit.transformer.kernels.dispatch import linear_for
from bertkit.transformer.kernels.inference_steps import CompiledEmbeddings, norm_arrays, plain_gate
from bertkit.transformer.kernels.modern_rows import add_then_norm_forward, gate_rows
from bertkit.transformer.kernels.pair_attention import attend
from bertkit.transformer.kernels.rows import (
    Norm,
    Product,
    Quantized,
    gelu_rows,
    norm_rows,
    quantize_rows,
    read_rows,
    room_for,
)
from bertkit.transformer.layer import EncoderLayer
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.rotary import Rotary
from bertkit.transformer.window import Window


class HiddenStates(NamedTuple):
    """Hidden states in float32 and 8 bits, so that rounding does not accumulate in the residual stream.

    Every row has its own scale, so that the vector of a text does not depend on the other texts in the batch.
    """

    tensor: Tensor  # (T, D) float32, for the residual
    quantized: Quantized  # (T, D), for the products


def floats_of(hidden: Tensor | HiddenStates) -> Tensor:
    """(T, D) hidden states as a tensor."""
    return hidden.tensor if isinstance(hidden, HiddenStates) else hidden


def hidden_states_of(tensor: Tensor) -> HiddenStates:
    """(T, D) float32, also in 8 bits."""
    quantized = room_for(*tensor.shape)
    quantize_rows(tensor.numpy(), 0, len(tensor), quantized)
    return HiddenStates(tensor, quantized)


class Int8Embeddings:
    """A batch to its first hidden states."""

    def __init__(self, embeddings: Embeddings | SummedEmbeddings) -> None:
        project = embeddings.project
        self.fused = CompiledEmbeddings(embeddings, torch.float32) if isinstance(embeddings, Embeddings) else None
        self.embed = self.fused or embeddings.look_up
        self.project = None if project is None else linear_for("float32").linear(project.weight, project.bias)

    def __call__(self, batch: Batch) -> HiddenStates:
        if self.fused is not None and self.project is None:
            quantized = room_for(len(batch.input_ids), self.fused.tables[0].shape[1])
            return HiddenStates(self.fused(batch, quantized), quantized)
        hidden = self.embed(batch)
        return hidden_states_of(hidden if self.project is None else self.project(hidden))


class Int8Layer:
    """`EncoderLayer`; products are scaled by the next kernel."""

    def __init__(self, layer: EncoderLayer, activation: str, linear: Callable, bias: Any = None) -> None:
        self.query_key_value, self.output, self.expand, self.project = (
            linear(weight, bias) for weight, bias in layer.linears()
        )
        self.attention_norm = norm_arrays(layer.attention_norm)
        self.feed_forward_norm = norm_arrays(layer.feed_forward_norm)
        self.num_heads, self.activation = layer.attention.num_heads, activation
        self.window = layer.attention.window
        self.bias = layer.attention.for_layer(bias)

    def __call__(self, hidden_states: HiddenStates, batch: Batch, chosen: Tensor | None = None) -> HiddenStates:
        """(T, D) to (T, D), or with the positions of C ``chosen`` tokens to (C, D)."""
        query_key_value = self.query_key_value(hidden_states.quantized)
        context = attend_product(query_key_value, batch, self.num_heads, window=self.window, bias=self.bias)
        if chosen is not None:
            context = _rows_of(context, chosen)
            hidden_states = HiddenStates(hidden_states.tensor[chosen], _rows_of(hidden_states.quantized, chosen))
        attended = add_and_norm(self.output(context), hidden_states, self.attention_norm)
        expanded = self._activate(self.expand(attended.quantized))
        return add_and_norm(self.project(expanded), attended, self.feed_forward_norm)

    def _activate(self, product: Product) -> Quantized:
        """(T, F) to (T, F)."""
        if self.activation != "gelu":
            read_rows(product, product.values)
            return hidden_states_of(apply_activation(torch.from_numpy(product.values), self.activation)).quantized
        quantized = room_for(*product.values.shape)
        gelu_rows(product, quantized)
        return quantized


def attend_product(
    query_key_value: Product,
    batch: Batch,
    num_heads: int,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | PositionRows | None = None,
) -> Quantized:
    """`plain_attention` of a product: (T, 3 D) to (T, D)."""
    num_tokens, width = query_key_value.values.shape
    quantized = room_for(num_tokens, width // 3)
    context, cu_seqlens = np.empty(quantized.values.shape, np.float32), batch.cu_seqlens.numpy()
    for rows in quantized:
        rows[cu_seqlens[-1] :] = 0  # after the last sequence
    bias = bias_of_length(bias, batch.max_seqlen)
    if isinstance(bias, PositionRows):
        positions = position_arrays(bias)
        attend_disentangled(query_key_value, cu_seqlens, num_heads, context, quantized, *positions)
        return quantized
    added = bias_array(bias, width // 3 // num_heads)
    turns = turns_and_reach(rotary, window, batch.max_seqlen)
    attend(query_key_value, cu_seqlens, num_heads, context, quantized, *turns, added)
    return quantized


def activate_gate(product: Product, activation: str) -> Quantized:
    """``activation(left) * right`` of the halves of each row: (T, 2 F) to (T, F)."""
    num_tokens, width = product.values.shape
    if activation not in ("gelu", "silu"):
        read_rows(product, product.values)
        return hidden_states_of(plain_gate(torch.from_numpy(product.values), activation)).quantized
    quantized = room_for(num_tokens, width // 2)
    gate_rows(product, activation == "silu", quantized)
    return quantized


def add_and_norm(product: Product, residual: HiddenStates, norm: Norm) -> HiddenStates:
    """``norm(product + residual)``."""
    hidden, quantized = torch.empty_like(residual.tensor), room_for(*residual.tensor.shape)
    norm_rows(product, residual.tensor.numpy(), norm, hidden.numpy(), quantized)
    return HiddenStates(hidden, quantized)


class Int8AddThenNorm:
    """``residual + product``, and the same after a layer normalization without bias."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.norm = norm_arrays(norm)

    def __call__(self, product: Product, residual: Tensor) -> tuple[Tensor, HiddenStates]:
        """(T, D) each to (T, D) each."""
        summed, normed, quantized = torch.empty_like(residual), torch.empty_like(residual), room_for(*residual.shape)
        means, factors = np.empty(len(residual), np.float32), np.empty(len(residual), np.float32)
        outs = (summed.numpy(), normed.numpy(), means, factors, quantized)
        add_then_norm_forward(product, residual.numpy(), self.norm, None, *outs)
        return summed, HiddenStates(normed, quantized)


def _rows_of(quantized: Quantized, chosen: Tensor) -> Quantized:
    return Quantized(*(rows[chosen.numpy()] for rows in quantized))
