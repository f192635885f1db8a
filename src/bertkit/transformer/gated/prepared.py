"""The gated encoder prepared for inference at a precision, as BERT's in `transformer/prepared.py`.

Shape letters: T total_tokens, D hidden_size.
"""

from typing import Any

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.device import product_dtype
from bertkit.transformer.gated.encoder import GatedEncoder, GatedLayer
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.dispatch import Kernels, ModernBertKernels, kernels_for, modernbert_kernels_for
from bertkit.transformer.prepared import WeightsAsTheyAre, in_row_counts
from bertkit.transformer.rotary import Rotary


class PreparedGatedLayer:
    """`GatedLayer` with weights in the dtype of the products, and fused residuals."""

    def __init__(self, layer: GatedLayer, kernels: Kernels, gated: ModernBertKernels, dtype: torch.dtype) -> None:
        attention, feed_forward = layer.attention, layer.feed_forward

        def linear(part: nn.Linear) -> Any:
            return kernels.linear(part.weight.to(dtype), None if part.bias is None else part.bias.to(dtype))

        self.query_key_value, self.output, self.project = (
            linear(part) for part in (attention.query_key_value, attention.output, feed_forward.project)
        )
        self.expand = kernels.linear(feed_forward.gate_and_expand().to(dtype), None)
        self.attention_norm = kernels.norm(layer.attention_norm, dtype)
        self.feed_forward_norm = kernels.norm(layer.feed_forward_norm, dtype)
        self.attention, self.gate = gated.attention, gated.gate
        self.num_heads, self.activation = attention.num_heads, feed_forward.activation

    def __call__(self, hidden_states: Tensor, batch: Batch, rotary: Rotary) -> Tensor:
        """(T, D) to (T, D)."""
        context = self.attention(self.query_key_value(hidden_states), batch, self.num_heads, rotary)
        attended = self.attention_norm(self.output(context, residual=hidden_states))
        return self.feed_forward_norm(
            self.project(self.gate(self.expand(attended), self.activation), residual=attended)
        )


class PreparedGatedEncoder:
    """`GatedEncoder` prepared for inference; see `PreparedBertEncoder`."""

    def __init__(self, encoder: GatedEncoder, precision: str = "float32") -> None:
        weight = encoder.embeddings.word.weight
        if weight.dtype == torch.float64:
            precision = "float64"
        kernels, gated = kernels_for(precision, weight.device), modernbert_kernels_for(precision, weight.device)
        dtype = product_dtype(precision, weight.dtype)
        self.encoder, self._weights = encoder, WeightsAsTheyAre(encoder)
        with torch.inference_mode():
            self.embeddings = kernels.embeddings(encoder.embeddings, dtype)
            self.layers = [PreparedGatedLayer(layer, kernels, gated, dtype) for layer in encoder.in_order()]
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
        dtype = self.encoder.embeddings.word.weight.dtype
        hidden = self.embeddings(filled)
        rotary = self.rotary.at(filled.position_ids)
        hidden_states = [hidden[:num_tokens].to(dtype)] if with_hidden_states else []
        for layer in self.layers:
            hidden = layer(hidden, filled, rotary)
            if with_hidden_states:
                hidden_states.append(hidden[:num_tokens].to(dtype))
        return EncoderOutput(hidden[:num_tokens].to(dtype), None, hidden_states if with_hidden_states else None)
