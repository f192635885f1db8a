"""Layers of GLiNER2 that turn the labels of a task into queries, one for each label of each instance.

Shape letters: M labels of a task, L instances, D width.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.extraction.layers import Layers, Shapes, linear_shapes, mlp_shapes
from bertkit.heads.projection import activated
from bertkit.transformer.kernels.arrays import Rows, library_of

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
        numbers = range(_NUM_LAYERS if self._has_transformer else 0)
        self._transformer = [_Layer(layers, f"{_INNER}transformer.layers.{number}.") for number in numbers]

    def queries(self, labels: Rows, num_instances: int) -> Rows:
        """(M, D) labels to (L, M, D) queries."""
        library, states, state = library_of(labels), list[Rows](), labels
        for step in self._from_step(self.positions[:num_instances]):
            own, gates = step.reshape(3, -1), self._from_state(state).reshape(len(labels), 3, -1)
            reset, update = (activated(own[gate] + gates[:, gate], "Sigmoid") for gate in (0, 1))
            candidate = activated(own[2] + reset * gates[:, 2], "Tanh")
            state = (1 - update) * candidate + update * state
            states.append(state)
        rows, repeated = library.concatenate(states), library.tile(labels, (num_instances, 1))
        if self._has_transformer:
            rows = self._through_transformer(rows + repeated, num_instances)
        else:
            rows = self.layers.mlp(_PROJECTOR, (0, 2), library.concatenate([rows, repeated], 1))
        return rows.reshape(num_instances, len(labels), -1)

    def _through_transformer(self, given: Rows, num_instances: int) -> Rows:
        """(L M, D) rows; the labels of an instance attend to each other."""
        rows, num_labels = self.layers.linear(f"{_INNER}in_projector")(given), len(given) // num_instances
        none, bounds = np.zeros(len(given), np.int64), np.arange(num_instances + 1, dtype=np.int32) * num_labels
        tokens = self.layers.rows(none)
        instances = Batch(tokens, tokens, tokens, self.layers.rows(bounds), num_labels, num_labels)
        for layer in self._transformer:
            rows = layer(rows, instances)
        return self.layers.mlp(f"{_INNER}out_projector", (0, 2, 4), library_of(given).concatenate([rows, given], 1))


class _Layer:
    """A layer of the transformer."""

    def __init__(self, layers: Layers, name: str) -> None:
        kinds = ("self_attn.in_proj_weight", "self_attn.in_proj_bias")
        self._query_key_value = layers.product(*(layers.values[name + kind] for kind in kinds))
        self._output, self._expand, self._project = (
            layers.linear(name + linear) for linear in ("self_attn.out_proj", "linear1", "linear2")
        )
        self._attend, self._norms = layers.kernels.attention, list[Any]()
        for norm in ("norm1", "norm2"):
            weight, bias = (layers.values[f"{name}{norm}.{kind}"] for kind in ("weight", "bias"))
            stored: Any = SimpleNamespace(normalized_shape=(_WIDTH,), weight=weight, bias=bias, eps=1e-5)
            self._norms.append(layers.kernels.norm(stored, weight.dtype))

    def __call__(self, rows: Rows, instances: Batch) -> Rows:
        context = self._attend(self._query_key_value(rows), instances, _HEADS, _WIDTH // _HEADS)
        rows = self._norms[0](self._output(context, residual=rows))
        return self._norms[1](self._project(self._expand(rows, activation="relu"), residual=rows))
