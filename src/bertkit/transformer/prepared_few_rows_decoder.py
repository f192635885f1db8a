"""The layers of a prepared decoder for a few rows: one token of each text, a step of generation.

Shape letters: M rows, D hidden_size, L layers.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from torch import Tensor

from bertkit.transformer.decoding_cache import DecodingCache
from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.few_rows import CODES, PLAIN, ROOM
from bertkit.transformer.kernels.few_rows_decoder import (
    COUNTERS,
    CrossLayers,
    DecoderLayers,
    DecoderSpace,
    decode_few_rows,
    multiply_few_rows,
)
from bertkit.transformer.kernels.layer_weights import LayerNorms, RoundedWeights, Weights
from bertkit.transformer.kernels.panel_linear import PanelLinear, rows_with_room
from bertkit.transformer.kernels.row_invariance import product_row_count
from bertkit.transformer.kernels.shared_steps import on_shared_threads
from bertkit.transformer.prepared_few_rows import tensor_of
from bertkit.transformer.prepared_few_rows_weights import is_known, norms_of, num_outputs, weights_of


class FewRowsDecoder:
    """Decoder layers for a few rows, bit-identical to the layers one after the other."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self._prepared = layers  # own the memory of the addresses

        def weights(name: str) -> Weights | RoundedWeights:
            return weights_of([getattr(layer, name) for layer in layers])

        def norms(name: str) -> LayerNorms:
            return norms_of([getattr(layer, name) for layer in layers])

        self._layers = DecoderLayers(
            weights("query_key_value"), weights("output"), weights("expand"), weights("project"),
            norms("attention_norm"), norms("feed_forward_norm"),
            layers[0].is_pre_norm, np.intp(CODES[layers[0].activation]),
        )  # fmt: skip
        self._cross = None
        if layers[0].is_cross:
            self._cross = CrossLayers(weights("cross_query"), weights("cross_output"), norms("cross_norm"))

    @classmethod
    def of(cls, layers: Sequence[Any]) -> Self | None:
        """The same layers for a few rows; None where other kernels are needed: another precision or activation, a
        processor without AVX-512, or products whose bits would differ."""
        if not layers or layers[0].activation not in CODES:
            return None
        return cls(layers) if all(is_known(linear) for layer in layers for linear in layer.linears) else None

    def __call__(self, hidden: Tensor, cache: DecodingCache) -> Tensor:
        """(M, D) to (M, D), for a number of rows in TILE_ROWS, in a step that the cache has begun."""
        decoded = on_shared_threads(decode_few_rows, *self.arguments(hidden, cache))
        return tensor_of(decoded[: len(hidden)], hidden.dtype)

    def arguments(self, hidden: Tensor, cache: DecodingCache) -> tuple[Any, ...]:
        """The arguments of `decode_few_rows`, for every thread."""
        (num_rows, width), given = hidden.shape, array(hidden.contiguous())
        num_layers, wide = len(self._prepared), num_outputs(self._prepared[0].expand)

        def room(*shape: int) -> np.ndarray:
            return np.empty((*shape[:-1], num_rows + ROOM, shape[-1]), given.dtype)

        space = DecoderSpace(
            given,
            room(3 * width),
            room(width),
            np.zeros((num_rows + ROOM, width), given.dtype),
            room(num_layers, width),
            room(num_layers, width),
            room(wide),
            room(num_layers, width),
            np.zeros(num_layers * COUNTERS, np.int64),
        )
        own: Any = cache.own
        sources: Any = cache.sources
        return (
            self._layers,
            self._cross,
            space,
            num_rows,
            own.of_all_layers(),
            None if sources is None else sources.of_all_layers(),
        )


class FewRowsLinear:
    """A linear layer for a few rows, bit-identical to it."""

    def __init__(self, linear: Any) -> None:
        self._linear, self._weights = linear, weights_of([linear])

    def __call__(self, x: Tensor) -> Tensor:
        """(M, K) to (M, N), for at most 48 rows."""
        num_rows = product_row_count(len(x))
        given = rows_with_room(x, num_rows)
        out = np.empty((len(given), num_outputs(self._linear)), given.dtype)
        arguments = self._weights, np.zeros(2, np.int64), given, num_rows, np.intp(PLAIN), given, out
        return tensor_of(on_shared_threads(multiply_few_rows, *arguments)[: len(x)], x.dtype)


def few_rows_of(linear: Any) -> FewRowsLinear | PanelLinear | None:
    """The linear layer for a few rows; None where other kernels are needed, as for `FewRowsDecoder`."""
    if isinstance(linear, PanelLinear):
        return linear
    return FewRowsLinear(linear) if is_known(linear) else None
