"""The ModernBERT encoder prepared for inference at a precision, as BERT's in `transformer/prepared.py`.

The residual stream is float32 (float64 for float64 weights) at every precision: it is added to and never normalized,
so rounding errors would accumulate over layers. Shape letters: T total_tokens, D hidden_size.
"""

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.device import product_dtype
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.dispatch import ModernBertKernels, modernbert_kernels_for
from bertkit.transformer.modernbert.encoder import ModernBertEncoder
from bertkit.transformer.modernbert.layer import ModernBertLayer
from bertkit.transformer.prepared import WeightsAsTheyAre, in_row_counts
from bertkit.transformer.rotary import Rotary


class PreparedModernBertLayer:
    """`ModernBertLayer`, its weights in the dtype of the products."""

    def __init__(self, layer: ModernBertLayer, kernels: ModernBertKernels, dtype: torch.dtype) -> None:
        attention, feed_forward = layer.attention, layer.feed_forward
        self.query_key_value, self.output, self.expand, self.project = (
            kernels.linear(part.weight.to(dtype), None)
            for part in (attention.query_key_value, attention.output, feed_forward.expand, feed_forward.project)
        )
        self.feed_forward_norm = kernels.add_then_norm(layer.feed_forward_norm, dtype)
        self.kernels, self.activation = kernels, feed_forward.activation
        self.num_heads, self.window, self.theta = attention.num_heads, attention.window, attention.theta

    def __call__(self, hidden_states: Tensor, normed: Tensor, batch: Batch, rotary: Rotary) -> tuple[Tensor, Tensor]:
        """(T, D) residual stream and its norm to the residual stream and the pending addition to it."""
        query_key_value = self.query_key_value(normed)
        context = self.kernels.attention(query_key_value, batch, self.num_heads, rotary, self.window)
        hidden_states, normed = self.feed_forward_norm(self.output(context), hidden_states)
        return hidden_states, self.project(self.kernels.gate(self.expand(normed), self.activation))


class PreparedModernBertEncoder:
    """`ModernBertEncoder` prepared for inference; see `PreparedBertEncoder`."""

    def __init__(
        self, encoder: ModernBertEncoder, precision: str = "float32", kernels: ModernBertKernels | None = None
    ) -> None:
        weight = encoder.embeddings.word.weight
        if weight.dtype == torch.float64:
            precision = "float64"
        kernels = kernels or modernbert_kernels_for(precision, weight.device)
        self.dtype = product_dtype(precision, weight.dtype)  # of the products
        self.encoder, self._weights = encoder, WeightsAsTheyAre(encoder)
        with torch.inference_mode():
            self.layers = [PreparedModernBertLayer(layer, kernels, self.dtype) for layer in encoder.in_order()]
            self.rotary = encoder.rotary(torch.arange(encoder.config.max_position_embeddings, device=weight.device))
            self.norms_after = [kernels.add_then_norm(norm, self.dtype) for norm in encoder.norms_after()]

    def fits(self, encoder: nn.Module) -> bool:
        """True if the weights are unchanged since preparation."""
        return encoder is self.encoder and self._weights.are_unchanged()

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """As `ModernBertEncoder.forward` in evaluation, for all tokens."""
        num_tokens, filled = len(batch.input_ids), in_row_counts(batch)
        hidden = self.encoder.embeddings.look_up(filled)
        normed = hidden.to(self.dtype)
        rotary = {theta: angles.at(filled.position_ids) for theta, angles in self.rotary.items()}
        hidden_states = [hidden[:num_tokens]] if with_hidden_states else []
        for layer, norm_after in zip(self.layers, self.norms_after, strict=True):
            hidden, update = layer(hidden, normed, filled, rotary[layer.theta])
            hidden, normed = norm_after(update, hidden)
            if with_hidden_states:
                hidden_states.append(hidden[:num_tokens])
        last = normed[:num_tokens].to(hidden.dtype)
        return EncoderOutput(
            last_hidden_state=last,
            pooled=None,
            hidden_states=[*hidden_states[:-1], last] if with_hidden_states else None,
        )
