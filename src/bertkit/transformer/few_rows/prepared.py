"""Prepared layers for a few rows: one short text at a time, or a step of generation.

Shape letters: M num_rows, D hidden_size, K inputs, N outputs, L layers.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from bertkit.batch import Batch
from bertkit.later import Tensor
from bertkit.transformer.decoding_cache import DecodingCache
from bertkit.transformer.few_rows.attention import RotaryAttention, SequenceAttention
from bertkit.transformer.few_rows.layers import COUNTERS, CrossLayers, Layers, Workspace, encode_few_rows
from bertkit.transformer.few_rows.products import multiply_few_rows
from bertkit.transformer.few_rows.weights import is_known, most_rows_of, norms_of, weights_of
from bertkit.transformer.kernels.arrays import array, bias_array, rows_as_given
from bertkit.transformer.kernels.attention import bias_of_length
from bertkit.transformer.kernels.linear import PlainInt8Linear
from bertkit.transformer.kernels.shared_steps import on_shared_threads
from bertkit.transformer.kernels.vector_functions import ADD, ADD_ROUNDED, CODES, GELU, PLAIN, SHORT_GELU
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.rotary import Rotary
from bertkit.transformer.window import EVERY_TOKEN, Window, window_of


def are_few(num_rows: int, layers: Sequence[Any]) -> bool:
    """Whether `FewRows` computes this number of rows in prepared layers."""
    return bool(layers) and num_rows <= most_rows_of(layers[0].output)


class FewRows:
    """Layers for a few rows, bit-identical to the prepared layers one after the other.

    Args:
        layers: prepared layers.
        norms: of each layer, `Norm` or what has one, after adding the output of attention and after adding that of the
            feed-forward network; None after the last layer: its sums are returned. By default those of the layers.
        kinds: of each layer, by which of the angles it rotates queries and keys; None: it does not.
        windows: of each layer, number of tokens visible on each side; None: the whole sequence.
    """

    def __init__(
        self,
        layers: Sequence[Any],
        norms: Sequence[tuple[Any, Any]] | None = None,
        kinds: Sequence[int] | None = None,
        windows: Sequence[int | None] = (),
        *,
        is_pre_norm: bool = False,
        is_gated: bool = False,
        has_norm_bias: bool = True,
    ) -> None:
        self._prepared, first = layers, layers[0]  # own the memory of the addresses
        norms = [(layer.attention_norm, layer.feed_forward_norm) for layer in layers] if norms is None else norms
        weights = [weights_of(linears) for linears in zip(*map(_linears_of, layers), strict=True)]
        code = CODES[first.activation]
        is_int8 = isinstance(first.expand, PlainInt8Linear)
        if code == GELU and (is_int8 or (not is_gated and _is_bfloat16(weights[2]))):
            code = SHORT_GELU
        attention_norm, feed_forward_norm = (norms_of(same, has_norm_bias) for same in zip(*norms, strict=True))
        self._layers = Layers(
            weights[0], weights[1], weights[2], weights[3],
            attention_norm, feed_forward_norm, is_pre_norm, np.intp(code),
        )  # fmt: skip
        self._cross = None
        if first.is_cross:
            queries, outputs = ([getattr(layer, f"cross_{name}") for layer in layers] for name in ("query", "output"))
            norm = norms_of([layer.cross_norm for layer in layers])
            self._cross = CrossLayers(weights_of(queries), weights_of(outputs), norm)
        self._is_gated, self._ends_with_sums = is_gated, norms[-1][1] is None
        self._kinds = None if kinds is None else np.array(kinds, np.int64)
        self._windows = [window_of(window) or Window(EVERY_TOKEN, EVERY_TOKEN) for window in windows]

    @classmethod
    def of(cls, layers: Sequence[Any], *arguments: Any, **options: Any) -> Self | None:
        """The same layers for a few rows; None where other kernels are needed: another precision or activation or kind
        of attention, a processor without the instructions, or products whose bits would differ."""
        if not layers or layers[0].activation not in (("gelu", "silu") if options.get("is_gated") else CODES):
            return None
        is_exact = all(is_known(linear) for layer in layers for linear in _linears_of(layer))
        return cls(layers, *arguments, **options) if is_exact else None

    @classmethod
    def of_plain(cls, layers: Sequence[Any]) -> Self | None:
        """`of` layers whose attention has no window, and no bias or the same one by distance; otherwise None."""
        bias = layers[0].bias if layers else None
        is_plain = not isinstance(bias, PositionRows) and all(
            each.window is None and each.bias is bias for each in layers
        )
        return cls.of(layers) if is_plain else None

    @classmethod
    def of_decoder(cls, layers: Sequence[Any]) -> Self | None:
        """`of` layers of a decoder."""
        if not layers or not all(is_known(linear) for layer in layers for linear in layer.linears):
            return None
        if not layers[0].is_pre_norm:
            return cls.of(layers)
        following = [*(layer.attention_norm for layer in layers[1:]), None]
        norms = [(layer.feed_forward_norm, after) for layer, after in zip(layers, following, strict=True)]
        return cls.of(layers, norms, is_pre_norm=True)

    def __call__(
        self,
        hidden: Tensor,
        source: Batch | DecodingCache,
        normed: Tensor | None = None,
        angles: Sequence[Rotary] = (),
    ) -> Tensor:
        """(M, D) to (M, D).

        Args:
            source: the batch, or the cache of a decoder in a step that it has begun.
            normed: with pre-norm the input of the first product, in another dtype than ``hidden`` or not.
            angles: of each kind.
        """
        sums, normed_rows = on_shared_threads(encode_few_rows, *self.arguments(hidden, source, normed, angles))
        rows = sums if self._ends_with_sums else normed_rows
        return rows_as_given(rows, hidden if normed is None else normed)

    def arguments(self, hidden: Any, source: Any, normed: Any = None, angles: Sequence[Rotary] = ()) -> tuple[Any, ...]:
        """The arguments of `encode_few_rows`, for every thread."""
        sums, normed_rows = (
            np.require(array(each), requirements=["C", "W"]) for each in (hidden, hidden if normed is None else normed)
        )
        (num_rows, width), num_layers = normed_rows.shape, len(self._prepared)
        wide, dtype = self._layers.expand.bias.shape[1], normed_rows.dtype

        def empty_rows(*shape: int, of: np.dtype = dtype) -> np.ndarray:
            return np.empty((*shape[:-1], num_rows, shape[-1]), of)

        space = Workspace(
            sums,
            normed_rows,
            empty_rows(3 * width),
            empty_rows(width),
            np.zeros((num_rows, width), dtype),
            empty_rows(num_layers, width, of=sums.dtype),
            empty_rows(num_layers if self._cross else 0, width, of=sums.dtype),
            empty_rows(wide),
            empty_rows(num_layers, width, of=sums.dtype),
            np.zeros(num_layers * COUNTERS, np.int64),
        )
        add, gated = (
            np.intp(ADD if sums.dtype == dtype else ADD_ROUNDED),
            empty_rows(wide // 2) if self._is_gated else None,
        )
        return self._layers, self._cross, space, add, *self._attention(source, width, angles), gated

    def _attention(self, source: Batch | DecodingCache, width: int, angles: Sequence[Rotary]) -> tuple[Any, Any]:
        """Attention to the own tokens and to those of sources."""
        if isinstance(source, DecodingCache):
            own, sources = source.own.of_all_layers(), source.sources  # pyrefly: ignore
            return own, None if sources is None else sources.of_all_layers()  # pyrefly: ignore
        cu_seqlens, longest, first = array(source.cu_seqlens), source.max_seqlen, self._prepared[0]
        if self._kinds is None:
            bias: Any = bias_of_length(first.bias, longest)
            added = bias_array(bias, width // first.num_heads)
            return SequenceAttention(cu_seqlens, first.num_heads, added), None
        windows = np.array([window.within(longest) for window in self._windows], np.int64)
        cosines, sines = (np.stack([array(each) for each in part]) for part in zip(*angles, strict=True))
        return RotaryAttention(cu_seqlens, first.num_heads, cosines, sines, self._kinds, windows), None


def _linears_of(layer: Any) -> list[Any]:
    """The four products of a layer: query, key and value; output; expand; project."""
    return [layer.query_key_value, layer.output, layer.expand, layer.project]


def _is_bfloat16(weights: Any) -> bool:
    return weights.bias.dtype == np.uint16


class FewRowsLinear:
    """A linear layer for a few rows, bit-identical to it."""

    def __init__(self, linear: Any) -> None:
        self._linear, self._weights = linear, weights_of([linear])  # owns the memory of the address

    def __call__(self, x: Tensor) -> Tensor:
        """(M, K) to (M, N)."""
        rows = np.ascontiguousarray(array(x))
        out = np.empty((len(rows), self._weights.bias.shape[1]), rows.dtype)
        on_shared_threads(multiply_few_rows, self._weights, np.zeros(2, np.int64), rows, np.intp(PLAIN), rows, out)
        return rows_as_given(out, x)


def few_rows_of(linear: Any) -> FewRowsLinear | None:
    """The linear layer for a few rows; None where other kernels are needed, as for `FewRows`."""
    return FewRowsLinear(linear) if is_known(linear) else None
