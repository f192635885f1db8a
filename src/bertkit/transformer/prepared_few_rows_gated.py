"""`FewRows` for encoders with rotary positions and gated feed-forward networks.

Shape letters: M num_rows, D hidden_size, L layers.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.few_rows import ROOM
from bertkit.transformer.kernels.few_rows_gated import (
    COUNTERS,
    GatedLayers,
    GatedSpace,
    encode_gated_rows,
    encode_gated_rows_int8,
)
from bertkit.transformer.kernels.shared_steps import on_shared_threads
from bertkit.transformer.prepared.int8_steps import HiddenStates
from bertkit.transformer.prepared_few_rows import linears_of, tensor_of
from bertkit.transformer.prepared_few_rows_int8 import int8_space
from bertkit.transformer.prepared_few_rows_weights import is_known, norms_of, weights_of
from bertkit.transformer.rotary import Rotary
from bertkit.transformer.window import EVERY_TOKEN, Window, window_of


class FewGatedRows:
    """Layers for a few rows, bit-identical to the prepared layers one after the other.

    Args:
        layers: prepared layers.
        norms: of each layer, `Norm` or what has one, after adding the output of attention and after adding that of the
            feed-forward network.
        angles: of each layer, which of the angles it rotates by.
        windows: of each layer, number of tokens visible on each side; None: the whole sequence.
    """

    def __init__(
        self,
        layers: Sequence[Any],
        norms: Sequence[tuple[Any, Any]],
        angles: Sequence[int],
        windows: Sequence[int | None],
        is_pre_norm: bool,
    ) -> None:
        self._prepared = layers  # own the memory of the addresses
        self._windows = [window_of(window) or Window(EVERY_TOKEN, EVERY_TOKEN) for window in windows]
        weights = [weights_of(linears) for linears in zip(*map(linears_of, layers), strict=True)]
        attention_norm, feed_forward_norm = map(norms_of, zip(*norms, strict=True))
        self._layers = GatedLayers(
            weights[0], weights[1], weights[2], weights[3],
            attention_norm, feed_forward_norm, is_pre_norm, layers[0].activation == "silu",
            np.zeros((len(layers), 2), np.int64), np.array(angles, np.int64),
        )  # fmt: skip
        self._num_heads = layers[0].num_heads

    @classmethod
    def of(cls, layers: Sequence[Any], *others: Any) -> Self | None:
        """The same layers for a few rows; None where other kernels are needed: another precision or activation, a
        processor without AVX-512, or products whose bits would differ."""
        if not layers or layers[0].activation not in ("gelu", "silu"):
            return None
        is_exact = all(is_known(linear) for layer in layers for linear in linears_of(layer))
        return cls(layers, *others) if is_exact else None

    def __call__(self, hidden: Tensor, normed: Tensor | HiddenStates, batch: Batch, angles: Sequence[Rotary]) -> Tensor:
        """(M, D) to (M, D), after the last norm: the input in float32, and the same as the first product reads it."""
        arguments = self.arguments(hidden, normed, batch, angles)
        if isinstance(normed, HiddenStates):
            return torch.from_numpy(on_shared_threads(encode_gated_rows_int8, *arguments))
        return tensor_of(on_shared_threads(encode_gated_rows, *arguments)[: len(hidden)], normed.dtype)

    def arguments(
        self, hidden: Tensor, normed: Tensor | HiddenStates, batch: Batch, angles: Sequence[Rotary]
    ) -> tuple[Any, ...]:
        """The arguments of the compiled function, for every thread."""
        longest = batch.max_seqlen
        windows = np.array([window.within(longest) for window in self._windows], np.int64)
        if isinstance(normed, HiddenStates):
            wide = self._prepared[0].project.kind[2]
            space: Any = int8_space(normed, len(self._prepared), COUNTERS, 2 * wide, wide)
        else:
            space = self._space(hidden, normed)
        cosines, sines = (torch.stack(part).numpy() for part in zip(*angles, strict=True))
        layers = self._layers._replace(windows=windows)
        return layers, space, len(hidden), self._num_heads, batch.cu_seqlens.numpy(), cosines, sines

    def _space(self, hidden: Tensor, normed: Tensor) -> GatedSpace:
        (num_rows, width), given, num_layers = normed.shape, array(normed.contiguous()), len(self._prepared)
        wide = self._prepared[0].project.kind[2]

        def room(*shape: int) -> np.ndarray:
            return np.empty((*shape[:-1], num_rows + ROOM, shape[-1]), given.dtype)

        return GatedSpace(
            hidden.float().numpy(),
            given,
            room(3 * width),
            np.zeros((num_rows + ROOM, width), given.dtype),
            room(num_layers, width),
            room(2 * wide),
            room(wide),
            room(num_layers, width),
            np.zeros(num_layers * COUNTERS, np.int64),
        )
