"""The layers of a prepared encoder for a few rows in float32 or bfloat16: one short text at a time.

Shape letters: M num_rows, D hidden_size, K inputs, N outputs.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.transformer.kernels.arrays import array, bias_array
from bertkit.transformer.kernels.attention import bias_of_length
from bertkit.transformer.kernels.few_rows import (
    ADD,
    CODES,
    COUNTERS,
    PANEL,
    PLAIN,
    ROOM,
    TILE_ROWS,
    WIDTH,
    Layers,
    Space,
    encode_few_rows,
    multiply,
)
from bertkit.transformer.kernels.linear import OneDNNLinear, WidenedLinear, has_onednn
from bertkit.transformer.kernels.llvm_vectors import has_wide_registers
from bertkit.transformer.kernels.row_invariance import agrees_with_reference, probe_weight
from bertkit.transformer.kernels.shared_steps import on_shared_threads

_USUAL_BLOCKS = (512, 1_024)
"""Numbers of inputs that oneDNN adds up at a time on an Intel Xeon (family 6 model 207), of up to 1,024 and of more."""


def is_few(batch: Batch) -> bool:
    """Whether `FewRows` computes batches of this size."""
    return len(batch.input_ids) in TILE_ROWS


class FewRows:
    """Layers for a few rows, bit-identical to `PreparedLayer` one after the other."""

    def __init__(self, layers: Sequence[Any], blocks: np.ndarray) -> None:
        self._linears = [linears_of(layer) for layer in layers]  # own the memory of the addresses
        attention_norms, feed_forward_norms = zip(
            *((layer.attention_norm.norm, layer.feed_forward_norm.norm) for layer in layers), strict=True
        )
        biases = [np.stack([array(linear.bias) for linear in same]) for same in zip(*self._linears, strict=True)]
        norms = [np.stack([norm[:2] for norm in same]) for same in (attention_norms, feed_forward_norms)]
        self._layers = Layers(
            biases[0][0, :0],
            np.array([[address_of(linear) for linear in linears] for linears in self._linears], np.int64),
            blocks,
            biases[0], biases[1], biases[2], biases[3],
            norms[0], norms[1],
            np.array([attention_norms[0].eps, feed_forward_norms[0].eps], np.float32),
            np.intp(CODES[layers[0].activation]),
        )  # fmt: skip
        self._num_heads = layers[0].num_heads
        self._bias: Tensor | None = layers[0].bias  # added to scores by distance

    @classmethod
    def of(cls, layers: Sequence[Any]) -> Self | None:
        """The same layers for a few rows; None where other kernels are needed: another precision, activation or kind of
        attention, a processor without AVX-512, or products whose bits would differ."""
        blocks = [[block_of(linear) for linear in linears_of(layer)] for layer in layers]
        is_known = layers[0].activation in CODES and not any(None in of_layer for of_layer in blocks)
        return cls(layers, np.array(blocks[0], np.int64)) if is_known and have_plain_attention(layers) else None

    def __call__(self, hidden_states: Tensor, batch: Batch) -> Tensor:
        """(M, D) to (M, D)."""
        encoded = on_shared_threads(encode_few_rows, *self.arguments(hidden_states, batch))
        return tensor_of(encoded[: len(hidden_states)], hidden_states.dtype)

    def arguments(self, hidden_states: Tensor, batch: Batch) -> tuple[Any, ...]:
        """The arguments of `encode_few_rows`, for every thread."""
        num_rows, width = hidden_states.shape
        num_layers, wide = self._layers.expand_bias.shape
        rows, given = num_rows + ROOM, array(hidden_states.contiguous())
        space = Space(
            given,
            np.empty((rows, 3 * width), given.dtype),
            np.zeros((rows, width), given.dtype),
            np.empty((num_layers, rows, width), given.dtype),
            np.empty((rows, wide), given.dtype),
            np.empty((num_layers, rows, width), given.dtype),
            np.zeros(num_layers * COUNTERS, np.int64),
        )
        bias: Any = bias_of_length(self._bias, batch.max_seqlen)
        return (
            self._layers,
            space,
            num_rows,
            self._num_heads,
            batch.cu_seqlens.numpy(),
            bias_array(bias, width // self._num_heads),
        )


def have_plain_attention(layers: Sequence[Any]) -> bool:
    """Whether attention has no window, and no bias or the same one by distance."""
    bias = layers[0].bias
    return isinstance(bias, Tensor | None) and all(layer.window is None and layer.bias is bias for layer in layers)


def linears_of(layer: Any) -> list[Any]:
    """The four products of a layer: query, key and value; output; expand; project."""
    return [layer.query_key_value, layer.output, layer.expand, layer.project]


def block_of(linear: Any) -> int | None:
    """The number of inputs whose products oneDNN adds up at a time in a linear layer.

    None if `few_rows` does not give its bits: weights of another kind or shape, or packed or added in another way, or
    a processor without the instructions.
    """
    if type(linear) not in (OneDNNLinear, WidenedLinear):
        return None
    num_outputs, width, packed = *linear.kind[1:3], bias_of(linear).dtype
    feature = "avx512bf16" if packed == torch.bfloat16 else "avx512f"
    if not has_wide_registers(feature) or num_outputs % PANEL or width * packed.itemsize % (4 * WIDTH):
        return None
    return _block(type(linear), *linear.kind[1:])


def bias_of(linear: Any) -> Tensor:
    """(N,) in the dtype of the packed weight, zeros for a linear layer without a bias."""
    if linear.bias is not None:
        return linear.bias
    dtype = torch.float32 if isinstance(linear, WidenedLinear) else linear.kind[3]
    return torch.zeros(linear.kind[1], dtype=dtype)


def _of_probe(kind: type, num_outputs: int, width: int, dtype: torch.dtype, has_bias: bool = True) -> Any:
    bias = torch.zeros(num_outputs, dtype=dtype) if has_bias else None
    return kind(probe_weight(num_outputs, width, dtype), bias)


def tensor_of(numbers: np.ndarray, dtype: torch.dtype) -> Tensor:
    """The same memory as a tensor, the opposite of `array`."""
    return torch.from_numpy(numbers).view(dtype)


def can_read_packed_weights() -> bool:
    """Whether this build of torch returns the address of a weight that oneDNN has packed."""
    return has_onednn("mkldnn::data_ptr") and has_onednn("mkldnn::_nbytes")


def address_of(linear: Any) -> int:
    """Memory address of the packed weight of a product."""
    return torch.ops.mkldnn.data_ptr(linear.weight)


@cache
def _block(kind: type, num_outputs: int, width: int, dtype: torch.dtype, has_bias: bool = True) -> int | None:
    """`block_of` an (N, K) weight in a kind of linear layer."""
    if not can_read_packed_weights():
        return None
    linear = _of_probe(kind, num_outputs, width, dtype, has_bias)
    if torch.ops.mkldnn._nbytes(linear.weight) != bias_of(linear).dtype.itemsize * num_outputs * width:
        return None
    x, residual = torch.empty(1, width, dtype=dtype), torch.empty(1, num_outputs, dtype=dtype)
    blocks = {min(width, block) for block in range(PANEL, width + PANEL, PANEL)}
    for block in sorted(blocks, key=lambda block: (block not in _USUAL_BLOCKS, -block)):
        product = partial(_multiply, linear, block)
        if all(
            agrees_with_reference(
                (*linear.kind, None, len(inputs)), product, partial(linear._probe, None), TILE_ROWS, *inputs
            )
            for inputs in ((x,), (x, residual))
        ):
            return block
    return None


def _multiply(linear: Any, block: int, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """``x W^T + b``, and a residual, with the kernel for a few rows."""
    num_rows, width, num_outputs = len(x), x.shape[1], linear.kind[1]
    given = array(x)
    rows, out = np.zeros((num_rows + ROOM, width), given.dtype), np.empty((num_rows + ROOM, num_outputs), given.dtype)
    rows[:num_rows], bias = given, array(bias_of(linear))
    multiply(
        np.zeros(2, np.int64), 0, rows, num_rows, address_of(linear), bias, block, bias,
        np.intp(PLAIN if residual is None else ADD), out if residual is None else array(residual), out,
        np.empty(num_rows * width + WIDTH, np.float32), np.empty((2, num_rows * PANEL), np.float32),
    )  # fmt: skip
    return tensor_of(out[:num_rows], x.dtype)
