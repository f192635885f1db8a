"""The encoder prepared for inference: the same numbers as `Encoder`, its weights laid out for speed.

Shape letters: T total_tokens, D hidden_size, H num_heads, K head_dim.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.encoder import Encoder, EncoderOutput
from bertkit.transformer.kernels import OneDNNLinear, PlainLinear, linear_for, packed_attention
from bertkit.transformer.layer import EncoderLayer


class PreparedLayer:
    """`EncoderLayer` with query, key and value as one product, and activation and residuals fused into theirs."""

    def __init__(self, layer: EncoderLayer, activation: str, linear: type[OneDNNLinear] | type[PlainLinear]) -> None:
        attention, feed_forward = layer.attention, layer.feed_forward
        projections = (attention.query, attention.key, attention.value)
        self.query_key_value = linear(
            torch.cat([part.weight for part in projections]), torch.cat([part.bias for part in projections])
        )
        self.output = linear(attention.output.weight, attention.output.bias)
        self.expand = linear(feed_forward.expand.weight, feed_forward.expand.bias)
        self.project = linear(feed_forward.project.weight, feed_forward.project.bias)
        self.attention_norm, self.feed_forward_norm = layer.attention_norm, layer.feed_forward_norm
        self.num_heads, self.activation = attention.num_heads, activation

    def __call__(self, hidden_states: Tensor, seqlens: list[int]) -> Tensor:
        """(T, D) to (T, D)."""
        together = self.query_key_value(hidden_states).unflatten(-1, (3, self.num_heads, -1))  # (T, 3, H, K)
        query, key, value = together.unbind(1)
        context = packed_attention(query, key, value, seqlens).flatten(-2)  # (T, H, K) -> (T, D)
        attended = _norm(self.output(context, residual=hidden_states), self.attention_norm)
        expanded = self.expand(attended, activation=self.activation)
        return _norm(self.project(expanded, residual=attended), self.feed_forward_norm)


class PreparedEncoder:
    """What `Encoder.forward` computes, for inference.

    Holds copies of the weights as they are now: `fits` tells whether the encoder's have changed since.
    """

    def __init__(self, encoder: Encoder, linear: type[OneDNNLinear] | type[PlainLinear] | None = None) -> None:
        word = encoder.embeddings.word.weight
        linear = linear or linear_for(word.dtype, word.device)
        self.encoder = encoder
        self._state = _state_of(encoder)
        with torch.inference_mode():
            self.layers = [
                PreparedLayer(cast(EncoderLayer, layer), encoder.config.hidden_act, linear) for layer in encoder.layers
            ]

    def fits(self, encoder: Encoder) -> bool:
        """Whether this was prepared from these very weights, unchanged since."""
        return encoder is self.encoder and self._state is not None and _state_of(encoder) == self._state

    @torch.inference_mode()
    def __call__(self, batch: Batch, *, with_hidden_states: bool = False) -> EncoderOutput:
        """As `Encoder.forward` in evaluation."""
        hidden = self.encoder.embeddings(batch)
        hidden_states = [hidden] if with_hidden_states else []
        for layer in self.layers:
            hidden = layer(hidden, batch.seqlens)
            if with_hidden_states:
                hidden_states.append(hidden)
        pooler = self.encoder.pooler
        return EncoderOutput(
            last_hidden_state=hidden,
            pooled=None if pooler is None else pooler(hidden[batch.first_tokens]),
            hidden_states=hidden_states if with_hidden_states else None,
        )


def _norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _state_of(encoder: Encoder) -> list[tuple[int, int]] | None:
    """Where each parameter lies and how often it was written to: changes with every update, in place or not.

    None for parameters made in inference mode, whose updates torch does not count.
    """
    if any(parameter.is_inference() for parameter in encoder.parameters()):
        return None
    return [(parameter.data_ptr(), parameter._version) for parameter in encoder.parameters()]
