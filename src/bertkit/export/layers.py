"""The layers of an encoder as nodes of a graph, from their descriptions.

Shape letters: B batch, L length, D hidden_size, H query heads, K head_dim, P positions of the model.
"""

import math
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from bertkit.export.graph import Graph
from bertkit.transformer import DistanceBias, LayerConfig, RotaryPositions
from bertkit.transformer.kernels import joined
from bertkit.transformer.layer import Layer
from bertkit.transformer.window import window_of

LOWEST = float(np.finfo(np.float32).min)


def _inputs(layer: Layer) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the product whose columns are queries, keys and values, as in `LayerConfig.input_widths`."""
    weight, bias = joined(layer.attention.inputs())
    return layer.config.as_parts(weight, 0), None if bias is None else layer.config.as_parts(bias, 0)


class EncoderLayers:
    """The layers of an encoder over padded sequences.

    Args:
        encoder: an Encoder.
        real: (B, L) float32, 1 = token, 0 = padding.
        position_ids: (B, L) int64.
    """

    def __init__(self, graph: Graph, encoder: Any, real: str, position_ids: str) -> None:
        self.graph, self.encoder, self.real = graph, encoder, real
        hidden = graph.op("Mul", graph.op("Sub", graph.constant(1.0), real), graph.constant(LOWEST))
        self._padding = graph.op("Unsqueeze", hidden, graph.indices(1, 2))  # (B, 1, 1, L)
        self._biases: dict[Any, str] = {}  # by window, and whether there is one by distance
        tables = encoder.rotary(encoder.config.max_position_embeddings)
        self._angles = {
            kind: [graph.op("Gather", graph.weight(part[:, None]), position_ids) for part in angles]
            for kind, angles in tables.items()
        }  # cos and sin, (B, L, 1, K / 2)

    def __call__(self, hidden: str) -> str:
        """(B, L, D) embeddings to the same, after the final norm if there is one."""
        graph, layers = self.graph, self.encoder.in_order()
        linears = {id(layer): (_inputs(layer), *layer.linears()[1:]) for layer in layers}  # some may be the same
        for layer in layers:
            config, (inputs, output, expand, project) = layer.config, linears[id(layer)]
            pre = config.is_pre_norm
            read = graph.norm(hidden, layer.attention_norm) if pre else hidden
            context = self._attend(graph.linear(read, *inputs), layer)
            hidden = graph.op("Add", graph.linear(context, *output), hidden)
            hidden = hidden if pre else graph.norm(hidden, layer.attention_norm)
            read = graph.norm(hidden, layer.feed_forward_norm) if pre else hidden
            inner = self._activated(graph.linear(read, *expand), config)
            hidden = graph.op("Add", graph.linear(inner, *project), hidden)
            hidden = hidden if pre else graph.norm(hidden, layer.feed_forward_norm)
        return graph.norm(hidden, self.encoder.final_norm)

    def _attend(self, inputs: str, layer: Layer) -> str:
        """(B, L, columns of `LayerConfig.input_widths`) to the context (B, L, H K)."""
        graph, config = self.graph, layer.config
        heads, width = config.num_attention_heads, config.head_dim
        parts = graph.split(inputs, config.input_widths, axis=2)
        query, key, value = (graph.op("Reshape", part, graph.indices(0, 0, -1, width)) for part in parts)
        if config.has_head_norms:
            query, key = graph.norm(query, layer.attention.query_norm), graph.norm(key, layer.attention.key_norm)
        if isinstance(config.positions, RotaryPositions):
            query, key = (self._rotated(part, config) for part in (query, key))
        if config.num_key_value_heads < heads:
            of_heads = graph.indices(*(head * config.num_key_value_heads // heads for head in range(heads)))
            key, value = (graph.op("Gather", part, of_heads, axis=2) for part in (key, value))
        query, value = (graph.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, value))  # (B, H, L, K)
        key = graph.op("Transpose", key, perm=[0, 2, 3, 1])  # (B, H, K, L)
        scaled = graph.op("Mul", query, graph.constant(1 / math.sqrt(width)))
        scores = graph.op("Add", graph.op("MatMul", scaled, key), self._bias(config))
        context = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        return graph.op(
            "Reshape", graph.op("Transpose", context, perm=[0, 2, 1, 3]), graph.indices(0, 0, heads * width)
        )

    def _rotated(self, x: str, config: LayerConfig) -> str:
        """Queries or keys, (B, L, heads, K), rotated by their positions."""
        graph, (cos, sin) = self.graph, self._angles[config.positions]
        left, right = graph.split(x, [config.head_dim // 2] * 2, axis=3)
        (left_cos, left_sin), (right_cos, right_sin) = (
            [graph.op("Mul", half, factor) for factor in (cos, sin)] for half in (left, right)
        )
        return graph.op("Concat", graph.op("Sub", left_cos, right_sin), graph.op("Add", right_cos, left_sin), axis=3)

    def _activated(self, expanded: str, config: LayerConfig) -> str:
        """(B, L, F) of the expanded hidden states, the gate in the first half if there is one."""
        if not config.is_gated:
            return self.graph.activate(expanded, config.hidden_act)
        gate, factor = self.graph.split(expanded, [config.intermediate_size] * 2, axis=2)
        return self.graph.op("Mul", self.graph.activate(gate, config.hidden_act), factor)

    def _bias(self, config: LayerConfig) -> str:
        """Bias of attention scores, with 1 or B, 1 or H, 1 or L, L entries: the lowest number hides a key."""
        graph, window = self.graph, window_of(config.window)
        key = window, isinstance(config.positions, DistanceBias)
        if key not in self._biases:
            bias = self._padding
            if isinstance(config.positions, DistanceBias):
                bias = graph.op("Add", bias, self._bias_by_distance())
            if window is not None:
                after = graph.op("GreaterOrEqual", self._distances, graph.index(-window.before))
                before = graph.op("LessOrEqual", self._distances, graph.index(window.after))
                bias = graph.op("Where", graph.op("And", after, before), bias, graph.constant(LOWEST))
            self._biases[key] = bias
        return self._biases[key]

    def _bias_by_distance(self) -> str:
        """(1, H, L, L), from (H, 2 P - 1) with distance d in column P - 1 + d."""
        graph = self.graph
        of_distances = self.encoder.distance_bias(self.encoder.config.max_position_embeddings)
        last = of_distances.shape[1] - 1
        indices = graph.op("Add", self._distances, graph.index(last // 2))  # (L, L)
        # Padding may be further away than any two tokens of a text.
        within = graph.op("Clip", indices, graph.index(0), graph.index(last))
        gathered = graph.op("Gather", graph.weight(of_distances.contiguous()), within, axis=1)  # (H, L, L)
        return graph.op("Unsqueeze", gathered, graph.indices(0))

    @cached_property
    def _distances(self) -> str:
        """(L, L): column of a key minus that of the query, which is the distance between tokens."""
        graph = self.graph
        length = graph.op("Gather", graph.op("Shape", self.real), graph.index(1))
        columns = graph.op("Range", graph.index(0), length, graph.index(1))
        keys, queries = (graph.op("Unsqueeze", columns, graph.indices(axis)) for axis in (0, 1))
        return graph.op("Sub", keys, queries)
