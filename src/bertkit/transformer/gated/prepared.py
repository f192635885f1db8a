"""The gated encoder prepared for inference at a precision, as BERT's in `transformer/prepared.py`.

Shape letters: T total_tokens, D hidden_size.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.device import product_dtype
from bertkit.transformer.few_rows.prepared import FewRows, is_few
from bertkit.transformer.gated.encoder import GatedEncoder, GatedLayer
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.arrays import norm_arrays
from bertkit.transformer.kernels.dispatch import Kernels, ModernBertKernels, kernels_for, modernbert_kernels_for
from bertkit.transformer.prepared import WeightsAsTheyAre, in_row_counts
from bertkit.transformer.prepared_int8 import (
    HiddenStates,
    Int8Embeddings,
    activate_gate,
    add_and_norm,
    attend_product,
    floats_of,
)
from bertkit.transformer.rotary import Rotary


class PreparedGatedLayer:
    """`GatedLayer` with weights in the dtype of the products, and fused residuals."""

    def __init__(self, layer: GatedLayer, kernels: Kernels, gated: ModernBertKernels, dtype: torch.dtype) -> None:
        self.query_key_value, self.output, self.expand, self.project = (
            kernels.linear(weight.to(dtype), None if bias is None else bias.to(dtype))
            for weight, bias in layer.linears()
        )
        self.attention_norm = kernels.norm(layer.attention_norm, dtype)
        self.feed_forward_norm = kernels.norm(layer.feed_forward_norm, dtype)
        self.attention, self.gate = gated.attention, gated.gate
        self.num_heads, self.activation = layer.attention.num_heads, layer.feed_forward.activation

    def __call__(self, hidden_states: Tensor, batch: Batch, rotary: Rotary) -> Tensor:
        """(T, D) to (T, D)."""
        context = self.attention(self.query_key_value(hidden_states), batch, self.num_heads, rotary)
        attended = self.attention_norm(self.output(context, residual=hidden_states))
        return self.feed_forward_norm(
            self.project(self.gate(self.expand(attended), self.activation), residual=attended)
        )


class Int8GatedLayer:
    """`GatedLayer` with 8-bit products, which are scaled by the next kernel."""

    def __init__(self, layer: GatedLayer, linear: Callable) -> None:
        self.query_key_value, self.output, self.expand, self.project = (
            linear(weight, bias) for weight, bias in layer.linears()
        )
        self.attention_norm = norm_arrays(layer.attention_norm)
        self.feed_forward_norm = norm_arrays(layer.feed_forward_norm)
        self.num_heads, self.activation = layer.attention.num_heads, layer.feed_forward.activation

    def __call__(self, hidden_states: HiddenStates, batch: Batch, rotary: Rotary) -> HiddenStates:
        """(T, D) to (T, D)."""
        context = attend_product(self.query_key_value(hidden_states.quantized), batch, self.num_heads, rotary)
        attended = add_and_norm(self.output(context), hidden_states, self.attention_norm)
        gated = activate_gate(self.expand(attended.quantized), self.activation)
        return add_and_norm(self.project(gated), attended, self.feed_forward_norm)


class PreparedGatedEncoder:
    """`GatedEncoder` prepared for inference; see `PreparedBertEncoder`."""

    def __init__(self, encoder: GatedEncoder, precision: str = "float32") -> None:
        weight = encoder.embeddings.word.weight
        if weight.dtype == torch.float64:
            precision = "float64"
        kernels, layers = kernels_for(precision, weight.device), encoder.in_order()
        self.encoder, self._weights = encoder, WeightsAsTheyAre(encoder)
        with torch.inference_mode():
            if precision == "int8":
                self.embeddings = Int8Embeddings(encoder.embeddings)
                self.layers: list[Any] = [Int8GatedLayer(layer, kernels.linear) for layer in layers]
            else:
                dtype, gated = product_dtype(precision, weight.dtype), modernbert_kernels_for(precision, weight.device)
                self.embeddings = kernels.embeddings(encoder.embeddings, dtype)
                self.layers = [PreparedGatedLayer(layer, kernels, gated, dtype) for layer in layers]
            self.rotary = encoder.rotary(torch.arange(encoder.config.max_position_embeddings, device=weight.device))

    def fits(self, encoder: nn.Module) -> bool:
        """True if the weights are unchanged since preparation."""
        return encoder is self.encoder and self._weights.are_unchanged()

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """As `GatedEncoder.forward` in evaluation, for all tokens."""
        num_tokens, filled = len(batch.input_ids), in_row_counts(batch)
        hidden: Any = self.embeddings(filled)  # HiddenStates or Tensor, the input of the layers
        rotary = self.rotary.at(filled.position_ids)
        if not with_hidden_states and is_few(filled) and self._few_rows is not None:
            last = self._few_rows(hidden, filled, angles=[rotary])
            return EncoderOutput(self._plain(last, num_tokens), None, None)
        hidden_states = [self._plain(hidden, num_tokens)] if with_hidden_states else []
        for layer in self.layers:
            hidden = layer(hidden, filled, rotary)
            if with_hidden_states:
                hidden_states.append(self._plain(hidden, num_tokens))
        return EncoderOutput(self._plain(hidden, num_tokens), None, hidden_states if with_hidden_states else None)

    @cached_property
    def _few_rows(self) -> FewRows | None:
        number = len(self.layers)
        return FewRows.of(self.layers, kinds=[0] * number, windows=[None] * number, is_gated=True)

    def _plain(self, hidden: Tensor | HiddenStates, num_tokens: int) -> Tensor:
        return floats_of(hidden)[:num_tokens].to(self.encoder.embeddings.word.weight.dtype)
