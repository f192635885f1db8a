"""The ModernBERT encoder prepared for inference at a precision, as BERT's in `transformer/prepared.py`.

The residual stream is float32 (float64 for float64 weights) at every precision: it is added to and never normalized,
so rounding errors would accumulate over layers. Shape letters: T total_tokens, D hidden_size.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.device import product_dtype
from bertkit.transformer.few_rows.prepared import FewRows, is_few
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.dispatch import ModernBertKernels, kernels_for, modernbert_kernels_for
from bertkit.transformer.kernels.rows import Product
from bertkit.transformer.modernbert.encoder import ModernBertEncoder
from bertkit.transformer.modernbert.layer import ModernBertLayer
from bertkit.transformer.prepared import WeightsAsTheyAre, in_row_counts
from bertkit.transformer.prepared_int8 import (
    HiddenStates,
    Int8AddThenNorm,
    activate_gate,
    attend_product,
    floats_of,
    hidden_states_of,
)
from bertkit.transformer.rotary import Rotary


class PreparedModernBertLayer:
    """`ModernBertLayer`, its weights in the dtype of the products."""

    def __init__(self, layer: ModernBertLayer, kernels: ModernBertKernels, dtype: torch.dtype) -> None:
        attention = layer.attention
        self.query_key_value, self.output, self.expand, self.project = (
            kernels.linear(weight.to(dtype), None) for weight in layer.weights()
        )
        self.feed_forward_norm = kernels.add_then_norm(layer.feed_forward_norm, dtype)
        self.kernels, self.activation = kernels, layer.feed_forward.activation
        self.num_heads, self.window, self.theta = attention.num_heads, attention.window, attention.theta

    def __call__(self, hidden_states: Tensor, normed: Tensor, batch: Batch, rotary: Rotary) -> tuple[Tensor, Tensor]:
        """(T, D) residual stream and its norm to the residual stream and the pending addition to it."""
        query_key_value = self.query_key_value(normed)
        context = self.kernels.attention(query_key_value, batch, self.num_heads, rotary, self.window)
        hidden_states, normed = self.feed_forward_norm(self.output(context), hidden_states)
        return hidden_states, self.project(self.kernels.gate(self.expand(normed), self.activation))


class Int8ModernBertLayer:
    """`ModernBertLayer` with 8-bit products, which are scaled by the next kernel."""

    def __init__(self, layer: ModernBertLayer, linear: Callable) -> None:
        attention = layer.attention
        self.query_key_value, self.output, self.expand, self.project = (
            linear(weight, None) for weight in layer.weights()
        )
        self.feed_forward_norm = Int8AddThenNorm(layer.feed_forward_norm)
        self.activation = layer.feed_forward.activation
        self.num_heads, self.window, self.theta = attention.num_heads, attention.window, attention.theta

    def __call__(
        self, hidden_states: Tensor, normed: HiddenStates, batch: Batch, rotary: Rotary
    ) -> tuple[Tensor, Product]:
        """As `PreparedModernBertLayer`."""
        query_key_value = self.query_key_value(normed.quantized)
        context = attend_product(query_key_value, batch, self.num_heads, rotary, self.window)
        hidden_states, normed = self.feed_forward_norm(self.output(context), hidden_states)
        return hidden_states, self.project(activate_gate(self.expand(normed.quantized), self.activation))


class PreparedModernBertEncoder:
    """`ModernBertEncoder` prepared for inference; see `PreparedBertEncoder`."""

    def __init__(
        self, encoder: ModernBertEncoder, precision: str = "float32", kernels: ModernBertKernels | None = None
    ) -> None:
        weight = encoder.embeddings.word.weight
        if weight.dtype == torch.float64:
            precision = "float64"
        self.encoder, self._weights, layers = encoder, WeightsAsTheyAre(encoder), encoder.in_order()
        with torch.inference_mode():
            if precision == "int8":
                others = kernels_for(precision, weight.device)
                self.embedding_norm: Callable = others.norm(encoder.embeddings.norm, weight.dtype)
                self.as_input: Callable = hidden_states_of
                self.layers: list[Any] = [Int8ModernBertLayer(layer, others.linear) for layer in layers]
                self.norms_after: list[Any] = [Int8AddThenNorm(norm) for norm in encoder.norms_after()]
            else:
                kernels = kernels or modernbert_kernels_for(precision, weight.device)
                dtype = product_dtype(precision, weight.dtype)  # of the products
                self.embedding_norm = kernels.norm(encoder.embeddings.norm, weight.dtype)
                self.as_input = lambda hidden: hidden.to(dtype)
                self.layers = [PreparedModernBertLayer(layer, kernels, dtype) for layer in layers]
                self.norms_after = [kernels.add_then_norm(norm, dtype) for norm in encoder.norms_after()]
            self.rotary = encoder.rotary(torch.arange(encoder.config.max_position_embeddings, device=weight.device))

    def fits(self, encoder: nn.Module) -> bool:
        """True if the weights are unchanged since preparation."""
        return encoder is self.encoder and self._weights.are_unchanged()

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """As `ModernBertEncoder.forward` in evaluation, for all tokens."""
        num_tokens, filled = len(batch.input_ids), in_row_counts(batch)
        hidden = self.embedding_norm(self.encoder.embeddings.look_up(filled))
        normed: Any = self.as_input(hidden)  # HiddenStates or Tensor
        rotary = {theta: angles.at(filled.position_ids) for theta, angles in self.rotary.items()}
        if not with_hidden_states and is_few(filled) and self._few_rows is not None:
            last = self._few_rows(hidden, filled, normed, list(rotary.values()))
            return EncoderOutput(last[:num_tokens].to(hidden.dtype), None, None)
        hidden_states = [hidden[:num_tokens]] if with_hidden_states else []
        for layer, norm_after in zip(self.layers, self.norms_after, strict=True):
            hidden, update = layer(hidden, normed, filled, rotary[layer.theta])
            hidden, normed = norm_after(update, hidden)
            if with_hidden_states:
                hidden_states.append(hidden[:num_tokens])
        last = floats_of(normed)[:num_tokens].to(hidden.dtype)
        return EncoderOutput(
            last_hidden_state=last,
            pooled=None,
            hidden_states=[*hidden_states[:-1], last] if with_hidden_states else None,
        )

    @cached_property
    def _few_rows(self) -> FewRows | None:
        norms = [(layer.feed_forward_norm, after) for layer, after in zip(self.layers, self.norms_after, strict=True)]
        thetas, windows = list(self.rotary), [layer.window for layer in self.layers]
        kinds = [thetas.index(layer.theta) for layer in self.layers]
        order = {"is_pre_norm": True, "is_gated": True, "has_norm_bias": False}
        return FewRows.of(self.layers, norms, kinds, windows, **order)
