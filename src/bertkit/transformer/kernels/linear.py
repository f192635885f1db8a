"""Linear layers prepared for inference: packed weights, with fused activation and residual.

On AMD processors torch's fp32 linear uses MKL, at a third of the speed of oneDNN, which torch also includes and which
gives the same numbers. oneDNN is called directly, through the operations of torch's compiler; builds of torch without
them use the plain operations.
"""

import os
import platform
from functools import cache, partial
from typing import Any

import llvmlite.binding
import numpy as np

from bertkit.executor import on_one_core
from bertkit.later import F, Tensor, torch
from bertkit.transformer.kernels import panel_product
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import Rows, array, as_given, floats, rows_as_given
from bertkit.transformer.kernels.choices import has_invariant_kernels, multiplies_pairs_fast
from bertkit.transformer.kernels.instruction_sets import instruction_sets
from bertkit.transformer.kernels.llvm_vectors import has_wide_registers
from bertkit.transformer.kernels.rotation import rotated
from bertkit.transformer.kernels.row_invariance import Multiply, RowInvariant, probe_weight
from bertkit.transformer.kernels.rows import Quantized, UnscaledProduct
from bertkit.transformer.kernels.shared_steps import on_shared_threads
from bertkit.transformer.kernels.vector_functions import ADD, CODES, GELU, PLAIN, SHORT_GELU
from bertkit.transformer.kernels.vectors import WIDTH

_MOST_PRIMITIVES = "64"
"""Products that oneDNN, and torch in each thread, keep for other calls with as many rows. Each takes 0.6 MB, and a
millisecond to make; by default they keep 1,024, which batches of any number of rows soon fill."""
_SAME_BITS = "AUTO,STRICT"
"""MKL's reproducible mode, in which torch's products of a few rows or columns have the same bits wherever their inputs
lie in memory, as a resumed run needs, at the same speed (measured on AMD Zen 4)."""
for _variable, _value in (
    ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _MOST_PRIMITIVES), ("LRU_CACHE_CAPACITY", _MOST_PRIMITIVES),
    ("MKL_CBWR", _SAME_BITS),
):  # fmt: skip
    os.environ.setdefault(_variable, _value)  # read at the first product of the process

_ROWS_EXPECTED = 1_024
"""A hint for the packed layout; any number of rows works."""


@cache
def has_onednn(operation: str) -> bool:
    """Whether this build of torch has a oneDNN operation: "mkldnn::_linear_pointwise"."""
    namespace, _, name = operation.partition("::")
    return torch.backends.mkldnn.is_available() and hasattr(getattr(torch.ops, namespace), name)


_SLOW_WITHOUT_AMX = ("sapphirerapids", "emeraldrapids", "graniterapids")
"""Intel processors of one core design, which without AMX multiply bfloat16 in 1.8 times the time of float32 (measured
on an Emerald Rapids). Virtual machines may hide their AMX."""


@cache
def has_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 with instructions of this CPU.

    On other x86 processors it refuses, or emulates them in about ten times the time of float32.
    """
    if not has_onednn("mkldnn::_is_mkldnn_bf16_supported") or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    return not is_x86 or not instruction_sets().isdisjoint(("avx512bf16", "amx-bf16", "avxneconvert"))


@cache
def has_fast_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 faster than float32 on this CPU."""
    if llvmlite.binding.get_host_cpu_name().startswith(_SLOW_WITHOUT_AMX) and not torch.cpu._is_amx_tile_supported():
        return False
    return has_bfloat16()


def multiply_unpacked(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """``a b^T + bias``, float32 with oneDNN: torch's own float32 product takes up to twice as long on AMD.

    Inputs are not packed, transposed or not: with few rows, packing takes as long as it saves. On processors without
    fast instructions for bfloat16 it is multiplied in float32, which is exact. With AVX2 and without AVX-512 a
    transposed b is copied: oneDNN would take up to 4.7 times as long (gradients of 3,072 x 768 weights).
    """
    if a.dtype == torch.bfloat16 and not has_fast_bfloat16():
        return multiply_unpacked(a.float(), b.float(), None if bias is None else bias.float()).bfloat16()
    if a.dtype == torch.float32 and has_onednn("mkldnn::_linear_pointwise"):
        b = b.contiguous() if has_wide_registers("avx2") and not has_wide_registers() else b
        return torch.ops.mkldnn._linear_pointwise.default(a, b, bias, "none", [], "")
    return F.linear(a, b, bias)


def multiply_on_device(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b`` by torch, or on a GPU with the same bits of a row in any batch, where `has_invariant_kernels`."""
    if not has_invariant_kernels(x):
        return F.linear(x, weight, bias)
    from bertkit.transformer.kernels.triton_products import multiply

    return multiply(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], len(weight))


class PlainLinear(RowInvariant):
    """``activation(x W^T + b)`` or ``x W^T + b + residual`` with torch's own operations: the reference; b may be None.

    Where `is_batch_invariant`, every row of the result is bit-identical regardless of the number of rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.kind: tuple[Any, ...] = (type(self).__name__, *weight.shape, weight.dtype, bias is not None)
        self.bias = None if bias is None else bias.contiguous()  # oneDNN reads it without regard to strides
        self.weight = self.pack(weight)

    def __call__(self, x: Tensor, *, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """(M, K) to (M, N), in the dtype of the weight."""
        call = (x.shape[0], activation, residual is None, torch.get_num_threads())
        if call in self._direct or x.device.type != "cpu":
            return self.multiply(activation, x, residual)
        inputs = (x,) if residual is None else (x, residual)
        kind = (*self.kind, activation, len(inputs))
        return self._multiply_rows(
            call, kind, partial(self.multiply, activation), partial(self._probe, activation), *inputs
        )

    def _probe(self, activation: str | None) -> Multiply:
        _, num_outputs, width, dtype, has_bias = self.kind
        bias = torch.zeros(num_outputs, dtype=dtype) if has_bias else None
        return partial(type(self)(probe_weight(num_outputs, width, dtype), bias).multiply, activation)

    def pack(self, weight: Tensor) -> Any:
        return weight.contiguous()

    def multiply(self, activation: str | None, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """The product, for any number of rows."""
        y = multiply_on_device(x, self.weight, self.bias)
        y = y if activation is None else apply_activation(y, activation, in_place=True)
        return y if residual is None else y.add_(residual)


class OneDNNLinear(PlainLinear):
    """`PlainLinear` with oneDNN and a packed weight, float32 or bfloat16.

    The layout of packed weights may depend on the number of threads that pack them. Here it is always one, so that all
    weights of a shape have the layout that `few_rows` was tried with.

    Activations are separate kernels, so that `few_rows` gives the same bits; GELU takes 1 to 4 % of the time of a
    product in float32.
    """

    def pack(self, weight: Tensor) -> Tensor:
        # Names the overload, as resolving it takes as long as a short product.
        operations = torch.ops.mkldnn._linear_pointwise
        self._multiply, self._multiply_and_add = operations.default, operations.binary
        with on_one_core():
            return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS_EXPECTED)

    def multiply(self, activation: str | None, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if residual is not None:
            return self._multiply_and_add(x, residual, self.weight, self.bias, "add")
        product = self._multiply(x, self.weight, self.bias, "none", [], "")
        return product if activation is None else apply_activation(product, activation, in_place=True)


class CompiledLinear:
    """`PlainLinear` with compiled products, of arrays or tensors: a row has the same bits in any number of them."""

    inputs = 1
    """Neighboring inputs that are multiplied at a time."""

    def __init__(self, weight: Rows, bias: Rows | None) -> None:
        self.kind: tuple[Any, ...] = (type(self).__name__, *weight.shape)
        self.weight = panel_product.float_panels(floats(weight), None if bias is None else floats(bias))

    def __call__(self, x: Rows, *, activation: str | None = None, residual: Rows | None = None) -> Rows:
        """(M, K) to (M, N), as x is given."""
        product = np.empty((len(x), self.kind[1]), np.float32)
        then = CODES.get(activation or "", PLAIN) if residual is None else ADD
        multiply_panels(self.weight, floats(x), product, then, None if residual is None else floats(residual))
        if activation is not None and then == PLAIN:
            product = apply_activation(product, activation, in_place=True)
        return as_given(product, x)


class CompiledBFloat16Linear:
    """The same of bfloat16, whose products are added up in float32: in pairs where that is faster, else widened, which
    is exact."""

    inputs = 2 if multiplies_pairs_fast() else 1
    """As of `CompiledLinear`."""

    def __init__(self, weight: Rows, bias: Rows | None) -> None:
        self.kind: tuple[Any, ...] = (type(self).__name__, *weight.shape)
        panels = panel_product.pair_panels if self.inputs == 2 else panel_product.float_panels
        self.weight = panels(array(weight), None if bias is None else array(bias) if self.inputs == 2 else floats(bias))

    def __call__(self, x: Rows, *, activation: str | None = None, residual: Rows | None = None) -> Rows:
        """(M, K) bfloat16 to (M, N), as x is given."""
        product, rows = np.empty((len(x), self.kind[1]), np.uint16), np.ascontiguousarray(array(x))
        then = CODES.get(activation or "", PLAIN) if residual is None else ADD
        if self.inputs == 2:
            words = (np.pad(rows, [(0, 0), (0, 1)]) if rows.shape[1] % 2 else rows).view(np.float32)
            then = SHORT_GELU if then == GELU else then
        else:
            words = floats(rows)
        multiply_panels(self.weight, words, product, then, None if residual is None else array(residual))
        if activation is not None and then == PLAIN:
            product = apply_activation(product, activation, in_place=True)
        return rows_as_given(product, x)


class PlainInt8Linear(RowInvariant):
    """``x W^T + b`` of quantized rows, with float32 operations: the reference; b may be None.

    Each row of W (output channel) is rounded to 8 bits with its own scale, rotated like x. The result is an
    `UnscaledProduct`: the next kernel scales it.
    """

    def __init__(self, weight: Rows, bias: Rows | None) -> None:
        super().__init__()
        self.kind: tuple[Any, ...] = (type(self).__name__, *weight.shape)
        weight = rotated(floats(weight), is_weight=True)
        self.scales = self.scales_of(weight)
        rounded = np.rint(weight / self.scales[:, None]).astype(np.int8)
        self.weight, self.rounded_sums = self.pack(rounded), rounded.sum(axis=1, dtype=np.int32)
        self.weight_sums = np.pad(self.rounded_sums.astype(np.float32) * self.scales, (0, WIDTH))
        self.bias = np.zeros_like(self.weight_sums) if bias is None else np.pad(floats(bias), (0, WIDTH))

    def __call__(self, x: Quantized) -> UnscaledProduct:
        """(M, K) to (M, N)."""
        values, call = torch.from_numpy(x.values), (len(x.values), torch.get_num_threads())
        if call in self._direct:
            product = self.multiply(values)
        else:
            product = self._multiply_rows(call, self.kind, self.multiply, self._probe, values)
        return UnscaledProduct(product.numpy(), x.scales, x.middles, self.weight_sums, self.bias)

    def _probe(self) -> Multiply:
        _, num_outputs, width = self.kind
        return type(self)(probe_weight(num_outputs, width, torch.float32), torch.zeros(num_outputs)).multiply

    def scales_of(self, weight: np.ndarray) -> np.ndarray:
        """(N,) scales of (N, K) weights."""
        return np.maximum(np.abs(weight).max(axis=1) / np.float32(127), np.float32(1e-30))

    def pack(self, rounded: np.ndarray) -> Any:
        """What `multiply` reads of (N, K) int8 weights."""
        return torch.from_numpy(rounded).float()

    def multiply(self, values: Tensor) -> Tensor:
        """``(values - 128) W^T``, each column times the scale of its weights."""
        return ((values.float() - 128) @ self.weight.T) * torch.from_numpy(self.scales)


class OneDNNInt8Linear(PlainInt8Linear):
    """`PlainInt8Linear` with oneDNN's products of 8-bit numbers."""

    def pack(self, rounded: np.ndarray) -> Tensor:
        self._scales, self._zero_points = torch.from_numpy(self.scales), torch.zeros(len(rounded), dtype=torch.int32)
        with on_one_core():
            return torch.ops.onednn.qlinear_prepack(torch.from_numpy(rounded), None)

    def multiply(self, values: Tensor) -> Tensor:
        return torch.ops.onednn.qlinear_pointwise.default(
            values, 1.0, 128, self.weight, self._scales, self._zero_points, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip


class CompiledInt8Linear(PlainInt8Linear):
    """`PlainInt8Linear` with compiled products, whose sums are exact: a row has the same bits in any number of them."""

    def __call__(self, x: Quantized) -> UnscaledProduct:
        """(M, K) to (M, N)."""
        return UnscaledProduct(self.multiply(x.values), x.scales, x.middles, self.weight_sums, self.bias)

    def scales_of(self, weight: np.ndarray) -> np.ndarray:
        return panel_product.weight_scales(weight)

    def pack(self, rounded: np.ndarray) -> Any:
        return panel_product.rounded_panels(rounded, self.scales)

    def multiply(self, values: Any) -> Any:
        """As `PlainInt8Linear.multiply`, of arrays."""
        if missing := -values.shape[1] % 4:
            values = np.pad(values, [(0, 0), (0, missing)])
        product = np.empty((len(values), self.kind[1]), np.float32)
        multiply_panels(self.weight, values.view(np.float32), product)
        return product


def multiply_panels(
    panels: Any, rows: np.ndarray, product: np.ndarray, then: int = PLAIN, residual: np.ndarray | None = None
) -> None:
    """`panel_product.multiply_panels` on all threads of this one."""
    added = product if residual is None else residual
    arguments = panels, np.zeros(2, np.int64), rows, np.intp(then), added, product
    on_shared_threads(panel_product.multiply_panels, *arguments)
