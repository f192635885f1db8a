"""The layer of every Transformer that is trained, and the loop over layers.

Shape letters: T total_tokens, S source tokens, D hidden_size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from bertkit.batch import Batch
from bertkit.later import Tensor, torch
from bertkit.transformer.attention import CrossAttention, PositionValues, SelfAttention
from bertkit.transformer.feed_forward import FeedForward
from bertkit.transformer.kernels import add_norm, add_then_norm, joined, recomputed
from bertkit.transformer.layer_config import LayerConfig
from bertkit.transformer.modules import nn
from bertkit.transformer.recorder import LayerRecord, Recorder

Norm = Any  # nn.LayerNorm or nn.RMSNorm


class State(NamedTuple):
    """Hidden states between two sub-layers. With norms after the sums, both are the same tensor."""

    stream: Tensor  # (T, D), what the output of the next sub-layer is added to
    read: Any  # (T, D), the input of the next sub-layer: the norm of the stream if norms come before; in inference with
    # 8 bits the `HiddenStates` of both


class Sources(NamedTuple):
    """Hidden states of an encoder that a decoder attends to."""

    states: Tensor  # (S, D)
    seqlens: Sequence[int]


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual connection and a layer normalization.

    With norms after, ``x = norm(x + attention(x)); x = norm(x + feed_forward(x))`` (Vaswani et al. 2017, section 3.1);
    with norms before, ``x = x + attention(norm(x)); x = x + feed_forward(norm(x))`` (Radford et al. 2019, section 2.3;
    Xiong et al. 2020, figure 1 b). A decoder attends to sources between the two. In training each added term has
    dropout.
    """

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.config = layer
        if layer.stores_norms_first:
            self.attention_norm = norm_of(layer) if layer.has_attention_norm else None
        self.attention = SelfAttention(layer)
        if layer.stores_norms_first:
            self.feed_forward_norm = norm_of(layer)
        else:
            self.attention_norm = norm_of(layer) if layer.has_attention_norm else None
        self.feed_forward = FeedForward(layer)
        if not layer.stores_norms_first:
            self.feed_forward_norm = norm_of(layer)
        self.attention_dropout = nn.Dropout(layer.attention_output_dropout_prob)
        self.dropout = nn.Dropout(layer.hidden_dropout_prob)
        if layer.attends_to_sources:
            self.cross_attention = CrossAttention(layer)
            self.cross_attention_norm = norm_of(layer)
            self.cross_attention_dropout = nn.Dropout(layer.hidden_dropout_prob)

    def forward(
        self,
        stream: Tensor,
        read: Tensor,
        batch: Batch,
        positions: PositionValues,
        next_norm: Norm | None = None,
        sources: Sources | None = None,
        record: LayerRecord | None = None,
    ) -> State:
        """The next state.

        Args:
            stream, read: (T, D), as in `State`.
            next_norm: with norms before, the attention norm of the next layer or the final norm: additions are fused
                with the norm after them.
        """
        pre = self.config.is_pre_norm
        attended = self.attention(read, batch, positions, record)
        norm = self.feed_forward_norm if pre else self.attention_norm
        stream, read = self._added(attended, stream, norm, self.attention_dropout)
        if sources is not None:
            crossed = self.cross_attention(read, batch.seqlens, *sources, record)
            stream, read = self._added(crossed, stream, self.cross_attention_norm, self.cross_attention_dropout)
        expanded = self.feed_forward(read)
        if record is not None:
            record.attention_output, record.feed_forward_output = attended, expanded
        return self._added(expanded, stream, next_norm if pre else self.feed_forward_norm, self.dropout)

    def _added(self, x: Tensor, stream: Tensor, norm: Norm | None, dropout: nn.Dropout) -> State:
        """The state after adding a term to the stream."""
        assert norm is not None
        if self.config.is_pre_norm:
            return State(*add_then_norm(x, stream, norm, dropout))
        hidden = add_norm(x, stream, norm, dropout)
        return State(hidden, hidden)

    def linears(self) -> list[tuple[Tensor, Tensor | None]]:
        """Weight and bias of the four matrix products: query, key and value as one; output; expand, with a gate before
        it as one; project."""
        return self.attention.linears() + self.feed_forward.linears()

    def cross_linears(self) -> list[tuple[Tensor, Tensor | None]]:
        """The same of attention to sources: query; key and value as one; output."""
        cross = self.cross_attention
        return [joined(layers) for layers in ((cross.query,), (cross.key, cross.value), (cross.output,))]


def norm_of(layer: LayerConfig) -> Norm:
    """A norm of a layer, which is also that of its encoder."""
    if layer.norm == "rms":
        return nn.RMSNorm(layer.hidden_size, eps=layer.norm_eps)
    return nn.LayerNorm(layer.hidden_size, eps=layer.norm_eps, bias=layer.has_norm_biases)


def norms_before(layers: Sequence[Layer], final_norm: Norm | None) -> list[Norm | None]:
    """With norms before, the norm that each layer reads, and the final one; otherwise None."""
    if final_norm is None:
        return [None] * (len(layers) + 1)
    return [*(layer.attention_norm for layer in layers), final_norm]


def apply_layers(
    layers: Sequence[Layer],
    hidden: Tensor,
    batch: Batch,
    positions: PositionValues,
    *,
    final_norm: Norm | None = None,
    sources: Sources | None = None,
    recorder: Recorder | None = None,
    recomputes: bool = False,
    streams: list[Tensor] | None = None,
) -> Tensor:
    """Hidden states (T, D) after the last layer, from embeddings (T, D).

    Args:
        final_norm: with norms before, that of the last layer's output.
        recorder: records attention and the contributions of each layer.
        recomputes: recompute layers in the backward pass instead of storing what they computed.
        streams: receives the residual stream before each layer and after the last one.
    """
    first_norm, *next_norms = norms_before(layers, final_norm)
    state = State(hidden, hidden if first_norm is None else first_norm(hidden))
    for number, (layer, next_norm) in enumerate(zip(layers, next_norms, strict=True), 1):
        if streams is not None:
            streams.append(state.stream)
        record = None if recorder is None else recorder.layer(number)
        call = layer
        if recomputes and torch.is_grad_enabled() and record is None:
            call = partial(recomputed, layer)
        state = State(*call(*state, batch, positions, next_norm, sources, record))
    if streams is not None:
        streams.append(state.stream)
    return state.read.to(state.stream.dtype)
