"""The gated encoder: embeddings without positions, and layers.

Shape letters: T total_tokens, D hidden_size, F intermediate_size.
"""

from typing import cast

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.embeddings import Embeddings
from bertkit.transformer.gated.config import NomicBertConfig
from bertkit.transformer.interface import Encoder, EncoderOutput
from bertkit.transformer.kernels import (
    add_norm,
    apply_linear,
    gate,
    recomputed,
    self_attention,
)
from bertkit.transformer.recorder import LayerRecord, Recorder
from bertkit.transformer.rotary import Rotary, rotary_of


class RotaryAttention(nn.Module):
    """Multi-head self-attention with rotary positions."""

    def __init__(self, config: NomicBertConfig) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.has_biases)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=config.has_biases)

    def forward(self, hidden_states: Tensor, batch: Batch, rotary: Rotary, record: LayerRecord | None = None) -> Tensor:
        """(T, D) to (T, D)."""
        query_key_value = apply_linear(hidden_states, self.query_key_value)  # (T, 3 D)
        dropout_prob = self.dropout_prob if self.training else 0.0
        context = self_attention(query_key_value, batch, self.num_heads, dropout_prob, rotary, record=record)
        return apply_linear(context, self.output)


class NomicFeedForward(nn.Module):
    """``project(activation(gate(x)) * expand(x))`` (Shazeer 2020)."""

    def __init__(self, config: NomicBertConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.expand = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.activation = config.hidden_act
        self.project = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.has_biases)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(T, D) to (T, D)."""
        return apply_linear(gate(apply_linear(hidden_states, self.gate, self.expand), self.activation), self.project)

    def gate_and_expand(self) -> Tensor:
        """(2 F, D) weight of both first layers."""
        return torch.cat([self.gate.weight, self.expand.weight])


class GteFeedForward(nn.Module):
    """`NomicFeedForward` with the first two layers as one, whose second half is the gate."""

    def __init__(self, config: NomicBertConfig) -> None:
        super().__init__()
        self.expand_and_gate = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.activation = config.hidden_act
        self.project = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.has_biases)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(T, D) to (T, D)."""
        expanded = apply_linear(hidden_states, self.expand_and_gate)
        swapped = expanded.roll(expanded.shape[-1] // 2, dims=-1)
        return apply_linear(gate(swapped, self.activation), self.project)

    def gate_and_expand(self) -> Tensor:
        """(2 F, D) weight, the gate first."""
        weight = self.expand_and_gate.weight
        return weight.roll(len(weight) // 2, dims=0)


class GatedLayer(nn.Module):
    """``x = norm(x + attention(x)); x = norm(x + feed_forward(x))``."""

    def __init__(self, config: NomicBertConfig) -> None:
        super().__init__()
        self.attention = RotaryAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = (GteFeedForward if config.has_one_expansion else NomicFeedForward)(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, batch: Batch, rotary: Rotary, record: LayerRecord | None = None) -> Tensor:
        """(T, D) to (T, D)."""
        attended = self.attention(hidden_states, batch, rotary, record)
        hidden_states = add_norm(attended, hidden_states, self.attention_norm, self.dropout)
        expanded = self.feed_forward(hidden_states)
        if record is not None:
            record.attention_output, record.feed_forward_output = attended, expanded
        return add_norm(expanded, hidden_states, self.feed_forward_norm, self.dropout)

    def linears(self) -> list[tuple[Tensor, Tensor | None]]:
        """Weight and bias of the four products: query, key and value; output; gate and expand; project."""
        attention, feed_forward = self.attention, self.feed_forward
        query_key_value, output, project = attention.query_key_value, attention.output, feed_forward.project
        return [
            (query_key_value.weight, query_key_value.bias),
            (output.weight, output.bias),
            (feed_forward.gate_and_expand(), None),
            (project.weight, project.bias),
        ]


class GatedEncoder(Encoder):
    """Post-norm Transformer with rotary positions and gated feed-forward networks (Nussbaum et al. 2024, section 3)."""

    pooler = None  # published models name a layer of the sequence classifier so

    def __init__(self, config: NomicBertConfig) -> None:
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(GatedLayer(config) for _ in range(config.num_hidden_layers))

    def forward(
        self,
        batch: Batch,
        *,
        with_hidden_states: bool = False,
        with_pooled: bool = True,
        recorder: Recorder | None = None,
    ) -> EncoderOutput:
        """Run a Batch through all layers; as `BertEncoder.forward`, but nothing is pooled."""
        hidden, rotary = self.embeddings(batch), self.rotary(batch.position_ids)
        hidden_states = [hidden] if with_hidden_states else []
        for number, layer in enumerate(self.layers, 1):
            record = None if recorder is None else recorder.layer(number)
            if self.gradient_checkpointing and torch.is_grad_enabled() and record is None:
                hidden = recomputed(layer, hidden, batch, rotary)
            else:
                hidden = layer(hidden, batch, rotary, record)
            if with_hidden_states:
                hidden_states.append(hidden)
        return EncoderOutput(hidden, None, hidden_states if with_hidden_states else None)

    def rotary(self, position_ids: Tensor) -> Rotary:
        """The angles at (T,) positions."""
        return rotary_of(position_ids, self.config.rope_theta, self.config.head_dim, self.config.rope_factor)

    def in_order(self) -> list[GatedLayer]:
        """The layers."""
        return [cast(GatedLayer, layer) for layer in self.layers]
