"""Multi-head self-attention and cross-attention (Vaswani et al. 2017, section 3.2.2): the layers with weights.

The computation between them, ``softmax(Q K^T / sqrt(K)) V`` for each head of each sequence, has no weights: its
reference in torch's own operations is `packed_attention` in ``kernels/attention.py``.
Shape letters: T total_tokens, S source tokens, D hidden_size, H num_heads, K head_dim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from bertkit.batch import Batch
from bertkit.later import Tensor
from bertkit.transformer.kernels import (
    apply_linear,
    cross_attention,
    dropout,
    joined,
    norm_heads,
    recorded_cross_attention,
    repeated_heads,
    self_attention,
)
from bertkit.transformer.layer_config import DisentangledPositions, LayerConfig, RotaryPositions
from bertkit.transformer.modules import nn
from bertkit.transformer.recorder import LayerRecord
from bertkit.transformer.relative import PositionRows, RelativePositions
from bertkit.transformer.rotary import Rotary


class PositionValues(NamedTuple):
    """What attention reads in every layer: what the positions of a batch add to it, and the tokens it attends to."""

    rotary: dict[RotaryPositions, Rotary]  # the angles of each token
    bias: Tensor | RelativePositions | None  # of scores by distance: (H, 2 M - 1) for sequences of up to M tokens, in
    # column M - 1 + d for a key d tokens after its query; or the rows of relative positions
    attended: Tensor | None = None  # (T,) bool, True for the tokens that are attended to; None: all


class SelfAttention(nn.Module):
    """Multi-head self-attention: every token attends to all tokens of its sequence, or to those within a window.

    ``output(concat(head_1, ..., head_H))`` with ``head_i = softmax(Q_i K_i^T / sqrt(K)) V_i``. Each head has K columns
    of the queries, keys and values: the first head the first K, and so on.
    """

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.config, self.num_heads, self.positions = layer, layer.num_attention_heads, layer.positions
        self.dropout_prob, self.window = layer.attention_probs_dropout_prob, layer.window
        width, has_biases, widths = layer.hidden_size, layer.has_attention_biases, layer.input_widths
        if layer.has_joint_inputs:
            self.query_key_value = nn.Linear(width, sum(widths), bias=has_biases)
        else:
            self.query, self.key, self.value = (nn.Linear(width, outputs, bias=has_biases) for outputs in widths)
        self.output = nn.Linear(widths[0], width, bias=has_biases)
        if layer.has_head_norms:
            self.query_norm, self.key_norm = (nn.RMSNorm(layer.head_dim, eps=layer.norm_eps) for _ in range(2))
        if isinstance(layer.positions, DisentangledPositions):
            self.position_dropout = nn.Dropout(layer.hidden_dropout_prob)

    def inputs(self) -> tuple[nn.Linear, ...]:
        """The layers whose concatenated outputs are queries, keys and values."""
        return (self.query_key_value,) if self.config.has_joint_inputs else (self.query, self.key, self.value)

    def forward(
        self, hidden_states: Tensor, batch: Batch, positions: PositionValues, record: LayerRecord | None = None
    ) -> Tensor:
        """(T, D) to (T, D).

        Args:
            record: receives queries, keys, values, scores and probabilities; None: nothing is recorded.
        """
        bias = positions.bias
        if isinstance(bias, RelativePositions):
            bias = bias._replace(rows=dropout(bias.rows, self.position_dropout))
        bias = self.for_layer(bias)
        inputs = self.config.as_parts(apply_linear(hidden_states, *self.inputs()), -1)
        inputs = repeated_heads(inputs, self.num_heads, self.config.head_dim)  # (T, 3 H K)
        if self.config.has_head_norms:
            inputs = norm_heads(inputs, self.query_norm, self.key_norm, self.num_heads)
        dropout_prob = self.dropout_prob if self.training else 0.0
        rotary = positions.rotary[self.positions] if isinstance(self.positions, RotaryPositions) else None
        context = self_attention(
            inputs, batch, self.num_heads, dropout_prob, rotary, self.window, bias, positions.attended, record
        )
        return apply_linear(context, self.output)

    def for_layer(
        self, bias: Tensor | RelativePositions | None, multiply: Callable[..., Any] | None = None
    ) -> Tensor | PositionRows | None:
        """The bias of this layer, from that of all layers: with this layer's keys and queries of relative positions.

        Args:
            multiply: called with rows and two linear layers, returns the output of each; None: as in training.
        """
        if not isinstance(bias, RelativePositions):
            return bias
        assert isinstance(self.positions, DisentangledPositions)
        if multiply is None:
            keys, queries = apply_linear(bias.rows, self.key, self.query).chunk(2, dim=-1)
        else:
            keys, queries = multiply(bias.rows, self.key, self.query)
        return PositionRows(keys, queries, bias.row_of_distance, self.positions.scale)

    def linears(self) -> list[tuple[Tensor, Tensor | None]]:
        """Weight and bias of two matrix products: query, key and value as one (outputs: `input_widths`); output."""
        weight, bias = joined(self.inputs())
        parts = self.config.as_parts
        return [
            (parts(weight, 0), None if bias is None else parts(bias, 0)),
            (self.output.weight, self.output.bias),
        ]


class CrossAttention(nn.Module):
    """Multi-head attention of a decoder to the hidden states of an encoder (Vaswani et al. 2017, section 3.2.3)."""

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.num_heads, self.dropout_prob = layer.num_attention_heads, layer.attention_probs_dropout_prob
        self.query, self.key, self.value, self.output = (
            nn.Linear(layer.hidden_size, layer.hidden_size) for _ in range(4)
        )

    def forward(
        self,
        hidden_states: Tensor,
        seqlens: Sequence[int],
        source: Tensor,
        source_seqlens: Sequence[int],
        record: LayerRecord | None = None,
    ) -> Tensor:
        """(T, D) hidden states of the decoder and (S, D) of the encoder to (T, D)."""
        query, key_value = apply_linear(hidden_states, self.query), apply_linear(source, self.key, self.value)
        dropout_prob = self.dropout_prob if self.training else 0.0
        attend = cross_attention if record is None else partial(recorded_cross_attention, record)
        context = attend(query, key_value, seqlens, source_seqlens, self.num_heads, dropout_prob)
        return apply_linear(context, self.output)
