"""The position-wise feed-forward network, plain (Vaswani et al. 2017, section 3.3) or gated (Shazeer 2020).

Shape letters: T total_tokens, D hidden_size, F intermediate_size.
"""

from __future__ import annotations

from typing import Any

from bertkit.later import Tensor
from bertkit.transformer.kernels import activate, apply_linear, dropout, gate, joined
from bertkit.transformer.kernels.arrays import library_of
from bertkit.transformer.layer_config import LayerConfig
from bertkit.transformer.modules import nn


class FeedForward(nn.Module):
    """``project(activation(expand(x)))``, or ``project(activation(gate(x)) * expand(x))``, with the same weights for
    every token."""

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.kind, self.activation = layer.gate, layer.hidden_act
        width, inside, has_bias = layer.hidden_size, layer.intermediate_size, layer.has_expand_bias
        if layer.gate == "separate":
            self.gate = nn.Linear(width, inside, bias=has_bias)
        if layer.gate == "last":
            self.expand_and_gate = nn.Linear(width, 2 * inside, bias=has_bias)
        else:
            self.expand = nn.Linear(width, 2 * inside if layer.gate == "first" else inside, bias=has_bias)
        self.dropout = nn.Dropout(layer.inner_dropout_prob)
        self.project = nn.Linear(inside, width, bias=layer.has_project_bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(T, D) to (T, D)."""
        expanded = apply_linear(hidden_states, *self._expanding())
        if self.kind == "none":
            inner = activate(expanded, self.activation)
        else:
            inner = gate(self._gate_first(expanded, -1), self.activation)
        return apply_linear(dropout(inner, self.dropout), self.project)

    def _expanding(self) -> tuple[nn.Linear, ...]:
        if self.kind == "separate":
            return self.gate, self.expand
        return (self.expand_and_gate,) if self.kind == "last" else (self.expand,)

    def _gate_first(self, expanded: Tensor, dim: int) -> Tensor:
        """Both halves of the expanded dimension, the gate first."""
        half = expanded.shape[dim] // 2
        return library_of(expanded).roll(expanded, half, dim) if self.kind == "last" else expanded

    def linears(self) -> list[tuple[Tensor, Any]]:
        """Weight and bias of two matrix products: gate and expand as one (2 F outputs), or expand; project."""
        weight, bias = joined(self._expanding())
        bias = None if bias is None else self._gate_first(bias, 0)
        return [(self._gate_first(weight, 0), bias), (self.project.weight, self.project.bias)]
