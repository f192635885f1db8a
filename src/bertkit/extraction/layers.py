"""Layers between the encoder and the scorer, prepared for inference. Shape letters: W words, D width, H LSTM width."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from bertkit.compiled import lean_sums
from bertkit.device import device_of
from bertkit.extraction.settings import ExtractionSettings
from bertkit.transformer.kernels.arrays import Rows, array, floats, rows_beside
from bertkit.transformer.kernels.dispatch import kernels_for

Shapes = dict[str, tuple[int, ...]]
"""Names of stored tensors with their shapes."""

PROJECTION, LABELS_PROJECTION, LSTM = "token_rep_layer.projection", "token_rep_layer.labels_projection", "rnn.lstm."
SPANS, LABELS, TOKENS = "span_rep_layer.span_rep_layer.", "prompt_rep_layer", "scorer."
ADJACENCY, PAIRS = "relations_rep_layer.relation_rep_layer.", "pair_rep_layer"


def shapes_of(settings: ExtractionSettings, text_width: int, labels_width: int | None) -> Shapes:
    """Tensors after the encoders, by the widths of these."""
    width = settings.hidden_size
    shapes = lstm_shapes(width, settings.num_lstm_layers)
    for name, encoder_width in ((PROJECTION, text_width), (LABELS_PROJECTION, labels_width)):
        if encoder_width is not None and encoder_width != width:
            shapes |= linear_shapes(name, encoder_width, width)
    if settings.of_tokens:
        for name in ("proj_token", "proj_label"):
            shapes |= linear_shapes(TOKENS + name, width, 2 * width)
        shapes |= mlp_shapes(f"{TOKENS}out_mlp", (0, 3), (3 * width, 4 * width, 3))
    if not settings.of_tokens or settings.relations is not None:
        shapes |= span_shapes(width) | mlp_shapes(LABELS, (0, 3), (width, 4 * width, width))
    return shapes if settings.relations is None else shapes | _relation_shapes(settings.relations.pairs, width)


def _relation_shapes(pairs: str, width: int) -> Shapes:
    shapes = mlp_shapes(PAIRS, (0, 3), (2 * width, 4 * width, width))
    if pairs == "bilinear":
        shapes |= linear_shapes(f"{ADJACENCY}proj", width, width)
    elif pairs == "mlp":
        shapes |= mlp_shapes(f"{ADJACENCY}mlp", (0, 2), (2 * width, width, 1))
    return shapes


def span_shapes(width: int) -> Shapes:
    """Tensors of the scores of spans by their first and last word."""
    shapes: Shapes = {}
    for name, inputs in (("project_start", 1), ("project_end", 1), ("out_project", 2)):
        shapes |= mlp_shapes(SPANS + name, (0, 3), (inputs * width, 4 * width, width))
    return shapes


def lstm_shapes(width: int, num_layers: int) -> Shapes:
    """Tensors of the bidirectional LSTM over words."""
    shapes: Shapes = {}
    for layer in range(num_layers):
        for side in ("", "_reverse"):
            for kind, inputs in (("ih", width), ("hh", width // 2)):
                shapes[f"{LSTM}weight_{kind}_l{layer}{side}"] = (width // 2 * 4, inputs)
                shapes[f"{LSTM}bias_{kind}_l{layer}{side}"] = (width // 2 * 4,)
    return shapes


def linear_shapes(name: str, inputs: int, outputs: int) -> Shapes:
    """Tensors of a linear layer."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def mlp_shapes(name: str, numbers: Sequence[int], widths: Sequence[int]) -> Shapes:
    """Tensors of linear layers, by their numbers under a name, between these widths."""
    shapes: Shapes = {}
    for number, (inputs, outputs) in zip(numbers, pairwise(widths), strict=True):
        shapes |= linear_shapes(f"{name}.{number}", inputs, outputs)
    return shapes


class Layers:
    """Stored layers by name; products have the same bits for a row regardless of the other rows.

    Args:
        values: arrays, or tensors on a device.
        dtype: name of theirs.
    """

    def __init__(self, values: dict[str, Rows], dtype: str) -> None:
        self.values, self._any = values, next(iter(values.values()))
        self.kernels = kernels_for(dtype, device_of(self._any))
        self._linear, self._of_direction = cache(self._make), cache(self._make_direction)
        self.num_lstm_layers = sum(name.startswith(f"{LSTM}weight_ih") for name in values) // 2

    def read(self, hidden: Rows) -> Rows:
        """Hidden states of an encoder as these layers read them."""
        return floats(hidden) if isinstance(self._any, np.ndarray) else hidden

    def rows(self, numbers: np.ndarray) -> Rows:
        """An array as these layers read it."""
        return rows_beside(numbers, self._any)

    def product(self, weight: Rows, bias: Rows | None = None) -> Any:
        """A prepared linear layer: (rows, K) to (rows, N)."""
        return self.kernels.linear(weight, bias)

    def linear(self, name: str) -> Any:
        """A stored linear layer, prepared once."""
        return self._linear(name)

    def _make(self, name: str) -> Any:
        return self.product(self.values[f"{name}.weight"], self.values[f"{name}.bias"])

    def twice(self, name: str, rows: Rows, activation: str | None = None) -> Rows:
        """Two stored linear layers with ReLU between them."""
        return self.mlp(name, (0, 3), rows, activation)

    def mlp(self, name: str, numbers: tuple[int, ...], rows: Rows, activation: str | None = None) -> Rows:
        """Stored linear layers, by their numbers under a name, with ReLU between them, and an activation at the end."""
        for number in numbers[:-1]:
            rows = self.linear(f"{name}.{number}")(rows, activation="relu")
        return self.linear(f"{name}.{numbers[-1]}")(rows, activation=activation)

    def projected(self, name: str, rows: Rows) -> Rows:
        """Rows in the width of the scorer: the encoder's own if there is no projection."""
        return self.linear(name)(rows) if f"{name}.weight" in self.values else rows

    def through_lstm(self, words: Rows, bounds: np.ndarray) -> Rows:
        """(W, D) words of sequences after the bidirectional LSTM, each sequence alone.

        Args:
            bounds: (S + 1,) int64 cumulative numbers of words.
        """
        for layer in range(self.num_lstm_layers):
            sides = []
            for side in ("", "_reverse"):
                product, recurrent = self._of_direction(layer, side)
                inputs, half = array(product(words)), words.shape[1] // 2
                states, scratch = (np.empty((number, half), inputs.dtype) for number in (len(words), 6))
                _recur(inputs, recurrent, bounds, len(side) > 0, states, scratch.reshape(-1))
                sides.append(states)
            words = self.rows(np.concatenate(sides, axis=1))
        return words

    def _make_direction(self, layer: int, side: str) -> tuple[Any, np.ndarray]:
        kinds = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        weight, bias, recurrent, added = (self.values[f"{LSTM}{kind}_l{layer}{side}"] for kind in kinds)
        return self.product(weight, bias + added), np.ascontiguousarray(array(recurrent))


@lean_sums
def _recur(inputs, recurrent, bounds, is_reversed, states, scratch):
    """One direction of an LSTM over each sequence.

    Args:
        inputs: (W, 4 H) products of the words with the input weights: input, forget, cell and output gates.
        recurrent: (4 H, H) weights of the state before.
        states: (W, H), written.
        scratch: (6 H,).
    """
    width, one = states.shape[1], np.float32(1)
    gates, cell, zero = scratch[: 4 * width], scratch[4 * width : 5 * width], scratch[5 * width :]
    for k in range(width):
        zero[k] = 0
    for sequence in range(len(bounds) - 1):
        first, end = bounds[sequence], bounds[sequence + 1]
        for k in range(width):
            cell[k] = 0
        for step in range(end - first):
            row = end - 1 - step if is_reversed else first + step
            state = zero if step == 0 else states[row + 1 if is_reversed else row - 1]
            for gate in range(4 * width):
                weights, total = recurrent[gate], inputs[row, gate]
                for k in range(width):
                    total += weights[k] * state[k]
                gates[gate] = total
            for k in range(width):
                input_gate = one / (one + np.exp(-gates[k]))
                forget_gate = one / (one + np.exp(-gates[width + k]))
                output_gate = one / (one + np.exp(-gates[3 * width + k]))
                cell[k] = forget_gate * cell[k] + input_gate * np.tanh(gates[2 * width + k])
                states[row, k] = output_gate * np.tanh(cell[k])
