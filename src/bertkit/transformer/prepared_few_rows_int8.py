"""`FewRows` in 8 bits.

Shape letters: M num_rows, D hidden_size, K inputs, N outputs.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.transformer.kernels.arrays import bias_array
from bertkit.transformer.kernels.attention import bias_of_length
from bertkit.transformer.kernels.few_rows import PANEL, ROOM, TILE_ROWS, WIDTH
from bertkit.transformer.kernels.few_rows_int8 import (
    COUNTERS,
    Int8Layers,
    Int8Space,
    encode_few_rows_int8,
    multiply_int8,
)
from bertkit.transformer.kernels.linear import OneDNNInt8Linear
from bertkit.transformer.kernels.llvm_vectors import has_wide_registers
from bertkit.transformer.kernels.row_invariance import agrees_with_reference, probe_weight
from bertkit.transformer.kernels.shared_steps import on_shared_threads
from bertkit.transformer.prepared_few_rows import (
    address_of,
    can_read_packed_weights,
    have_plain_attention,
    linears_of,
)


class FewRowsInt8:
    """Layers for a few rows, bit-identical to `Int8Layer` one after the other."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self._linears = [linears_of(layer) for layer in layers]  # own the memory of the addresses
        vectors = [np.stack([vectors_of(linear) for linear in same]) for same in zip(*self._linears, strict=True)]
        norms = [
            np.stack([norm[:2] for norm in same])
            for same in zip(*((layer.attention_norm, layer.feed_forward_norm) for layer in layers), strict=True)
        ]
        self._layers = Int8Layers(
            np.array([[address_of(linear) for linear in linears] for linears in self._linears], np.int64),
            vectors[0], vectors[1], vectors[2], vectors[3],
            norms[0], norms[1],
            np.array([layers[0].attention_norm.eps, layers[0].feed_forward_norm.eps], np.float32),
        )  # fmt: skip
        self._num_heads = layers[0].num_heads
        self._bias: Tensor | None = layers[0].bias  # added to scores by distance

    @classmethod
    def of(cls, layers: Sequence[Any]) -> Self | None:
        """The same layers for a few rows; None where other kernels are needed: another activation or kind of attention,
        a processor without AVX-512 VNNI, or products whose bits would differ."""
        is_exact = all(gives_bits_of(linear) for layer in layers for linear in linears_of(layer))
        return cls(layers) if is_exact and have_plain_attention(layers) and layers[0].activation == "gelu" else None

    def __call__(self, hidden_states: Any, batch: Batch) -> Tensor:
        """`HiddenStates` (M, D) to (M, D) float32."""
        encoded = on_shared_threads(encode_few_rows_int8, *self.arguments(hidden_states, batch))
        return torch.from_numpy(encoded[: len(hidden_states.tensor)])

    def arguments(self, hidden_states: Any, batch: Batch) -> tuple[Any, ...]:
        """The arguments of `encode_few_rows_int8`, for every thread."""
        num_layers, _, wide = self._layers.expand.shape
        space = int8_space(hidden_states, num_layers, COUNTERS, wide, wide)
        bias: Any = bias_of_length(self._bias, batch.max_seqlen)
        num_rows, width = hidden_states.tensor.shape
        added = bias_array(bias, width // self._num_heads)
        return self._layers, space, num_rows, self._num_heads, batch.cu_seqlens.numpy(), added


def int8_space(
    hidden_states: Any, num_layers: int, num_counters: int, num_expanded: int, num_activated: int
) -> Int8Space:
    """Memory for `HiddenStates` (M, D).

    Args:
        num_counters: of a layer.
        num_expanded: outputs of the product that expands; they are activated to ``num_activated``, the inputs of the
            last one.
    """
    tensor, quantized = hidden_states
    num_rows, width = tensor.shape
    rows = num_rows + ROOM
    return Int8Space(
        tensor.contiguous().numpy(),
        quantized,
        np.empty((rows, 3 * width), np.float32),
        np.empty((rows, width), np.float32),
        np.zeros((rows, width), np.uint8),
        np.zeros((num_layers, num_rows), np.float32),
        np.zeros((num_layers, num_rows), np.float32),
        np.empty((num_layers, rows, width), np.float32),
        np.empty((rows, num_expanded), np.float32),
        np.empty((rows, num_activated), np.uint8),
        np.empty((num_layers, num_rows), np.float32),
        np.empty((num_layers, num_rows), np.float32),
        np.empty((num_layers, rows, width), np.float32),
        np.zeros(num_layers * num_counters, np.int64),
    )


def gives_bits_of(linear: Any) -> bool:
    """Whether `multiply_int8` gives the bits of a linear layer, and this processor has the instructions."""
    if not has_wide_registers("avx512vnni") or type(linear) is not OneDNNInt8Linear:
        return False
    return _subtracts_after(*linear.kind[1:]) is not None


def vectors_of(linear: Any) -> np.ndarray:
    """(6, N) float32, as of `Int8Layers`."""
    return _vectors(linear, bool(_subtracts_after(*linear.kind[1:])))


def _vectors(linear: Any, subtracts_after: bool) -> np.ndarray:
    offsets = (128 * linear.rounded_sums).to(torch.int32).numpy()
    num_outputs = len(offsets)
    nothing = np.zeros(num_outputs, np.float32)
    parts = (nothing, offsets.astype(np.float32)) if subtracts_after else (offsets.view(np.float32), nothing)
    rest = (linear.scales.numpy(), linear.weight_sums[:num_outputs], linear.bias[:num_outputs])
    return np.stack([*parts, *rest, nothing])


@cache
def _subtracts_after(num_outputs: int, width: int) -> bool | None:
    """Whether oneDNN subtracts the part of the zero point from sums of (N, K) weights after they became float32; None:
    `multiply_int8` does not give its bits."""
    if num_outputs % PANEL or width % (4 * WIDTH) or not can_read_packed_weights():
        return None
    return next((after for after in (False, True) if _is_exact(num_outputs, width, after)), None)


def _is_exact(num_outputs: int, width: int, subtracts_after: bool) -> bool:
    """Whether `multiply_int8` gives the bits of oneDNN for (N, K) weights."""
    generator = torch.Generator().manual_seed(0)
    weight = probe_weight(num_outputs, width, torch.float32)
    weight[0], weight[1] = 1, -1
    linear = OneDNNInt8Linear(weight, torch.zeros(num_outputs))
    if torch.ops.mkldnn._nbytes(linear.weight) < num_outputs * width:
        return False
    values = torch.randint(0, 256, (max(TILE_ROWS), width), generator=generator, dtype=torch.uint8)
    values[0], values[1] = 255, 0
    if not torch.equal(_multiply(linear, values, subtracts_after), linear.multiply(values)):
        return False
    probe = linear._probe()
    product = partial(_multiply, probe.__self__, subtracts_after=subtracts_after)  # pyrefly: ignore
    return agrees_with_reference(linear.kind, product, lambda: probe, TILE_ROWS, values)


def _multiply(linear: OneDNNInt8Linear, values: Tensor, subtracts_after: bool) -> Tensor:
    """The values of the `Product` of (M, K) uint8 values, with the kernel for a few rows."""
    num_rows, width = values.shape
    vectors = _vectors(linear, subtracts_after)
    rows, out = np.zeros((num_rows + ROOM, width), np.uint8), np.empty((num_rows + ROOM, vectors.shape[1]), np.float32)
    rows[:num_rows] = values.numpy()
    columns = np.empty(num_rows * width // 4 + WIDTH, np.float32)
    multiply_int8(np.zeros(2, np.int64), 0, rows, num_rows, address_of(linear), vectors, out, columns)
    return torch.from_numpy(out[:num_rows])
