"""Layers of GLiNER2 that turn the labels of a task into queries, one for each label of each instance.

Shape letters: M labels of a task, L instances, D width.
"""

import torch
from torch import Tensor
from torch.nn import functional

from bertkit.extraction.layers import Layers, Shapes, linear_shapes, mlp_shapes

MOST_INSTANCES = 20
"""Instances of a task in a window, as published."""

_GRU, _PROJECTOR, _INNER = "count_embed.gru.", "count_embed.projector", "count_embed.transformer."
_WIDTH, _HEADS, _NUM_LAYERS = 128, 4, 2
"""Sizes of the transformer over the labels of an instance."""


def counting_shapes(width: int, *, with_transformer: bool) -> Shapes:
    """Tensors of these layers."""
    shapes: Shapes = {"count_embed.pos_embedding.weight": (MOST_INSTANCES, width)}
    for kind in ("ih", "hh"):
        shapes |= {f"{_GRU}weight_{kind}_l0": (3 * width, width), f"{_GRU}bias_{kind}_l0": (3 * width,)}
    if not with_transformer:
        return shapes | mlp_shapes(_PROJECTOR, (0, 2), (2 * width, 4 * width, width))
    shapes |= linear_shapes(f"{_INNER}in_projector", width, _WIDTH)
    for number in range(_NUM_LAYERS):
        layer = f"{_INNER}transformer.layers.{number}."
        shapes |= {
            f"{layer}self_attn.in_proj_weight": (3 * _WIDTH, _WIDTH),
            f"{layer}self_attn.in_proj_bias": (3 * _WIDTH,),
        }
        shapes |= linear_shapes(f"{layer}self_attn.out_proj", _WIDTH, _WIDTH)
        shapes |= linear_shapes(f"{layer}linear1", _WIDTH, 2 * _WIDTH)
        shapes |= linear_shapes(f"{layer}linear2", 2 * _WIDTH, _WIDTH)
        shapes |= {f"{layer}norm{norm}.{kind}": (_WIDTH,) for norm in (1, 2) for kind in ("weight", "bias")}
    return shapes | mlp_shapes(f"{_INNER}out_projector", (0, 2, 4), (_WIDTH + width, width, width, width))


class Counting:
    """Queries of a task; all of its labels influence each other, and nothing else does."""

    def __init__(self, layers: Layers) -> None:
        values = layers.values
        self.layers, self.positions = layers, values["count_embed.pos_embedding.weight"]
        self._from_step, self._from_state = (
            layers.product(values[f"{_GRU}weight_{kind}_l0"], values[f"{_GRU}bias_{kind}_l0"]) for kind in ("ih", "hh")
        )
        self._has_transformer = f"{_PROJECTOR}.0.weight" not in values
        self._attention = [
            layers.product(values[f"{layer}self_attn.in_proj_weight"], values[f"{layer}self_attn.in_proj_bias"])
            for layer in (f"{_INNER}transformer.layers.{number}." for number in range(_NUM_LAYERS))
            if self._has_transformer
        ]

    def queries(self, labels: Tensor, num_instances: int) -> Tensor:
        """(M, D) labels to (L, M, D) queries."""
        states, state = [], labels
        for step in self._from_step(self.positions[:num_instances]):
            gates = step.expand(len(labels), -1).chunk(3, dim=1)
            reset, update, new = zip(gates, self._from_state(state).chunk(3, dim=1), strict=True)
            update_gate = torch.sigmoid(update[0] + update[1])
            candidate = torch.tanh(new[0] + torch.sigmoid(reset[0] + reset[1]) * new[1])
            state = (1 - update_gate) * candidate + update_gate * state
            states.append(state)
        rows, repeated = torch.cat(states), labels.repeat(num_instances, 1)
        if self._has_transformer:
            rows = self._through_transformer(rows + repeated, num_instances)
        else:
            rows = self.layers.mlp(_PROJECTOR, (0, 2), torch.cat([rows, repeated], dim=1))
        return rows.view(num_instances, len(labels), -1)

    def _through_transformer(self, given: Tensor, num_instances: int) -> Tensor:
        """(L M, D) rows; the labels of an instance attend to each other."""
        rows = self.layers.linear(f"{_INNER}in_projector")(given)
        for number, attention in enumerate(self._attention):
            name = f"{_INNER}transformer.layers.{number}."
            parts = attention(rows).view(num_instances, -1, 3, _HEADS, _WIDTH // _HEADS).permute(2, 0, 3, 1, 4)
            query, key, value = parts
            scores = query @ key.transpose(2, 3) * (_WIDTH // _HEADS) ** -0.5
            mixed = (torch.softmax(scores, dim=-1) @ value).transpose(1, 2).reshape(len(rows), _WIDTH)
            rows = self._norm(f"{name}norm1", rows + self.layers.linear(f"{name}self_attn.out_proj")(mixed))
            inner = self.layers.linear(f"{name}linear1")(rows, activation="relu")
            rows = self._norm(f"{name}norm2", rows + self.layers.linear(f"{name}linear2")(inner))
        return self.layers.mlp(f"{_INNER}out_projector", (0, 2, 4), torch.cat([rows, given], dim=1))

    def _norm(self, name: str, rows: Tensor) -> Tensor:
        weight, bias = (self.layers.values[f"{name}.{kind}"] for kind in ("weight", "bias"))
        return functional.layer_norm(rows, (_WIDTH,), weight, bias)
