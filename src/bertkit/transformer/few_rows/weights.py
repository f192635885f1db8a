"""Weights of prepared layers for `few_rows`, and whether its products give the bits of the layers on this machine.

Shape letters: M rows, K inputs, N outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from bertkit.device import CPU_PRECISIONS
from bertkit.later import Tensor, torch
from bertkit.transformer.few_rows.layers import LayerNorms
from bertkit.transformer.few_rows.products import (
    ADD,
    PLAIN,
    RoundedWeights,
    Weights,
    multiply,
    sums_of,
)
from bertkit.transformer.kernels.arrays import array, rows_as_given
from bertkit.transformer.kernels.dispatch import linear_for, offered_linears
from bertkit.transformer.kernels.linear import (
    CompiledBFloat16Linear,
    CompiledInt8Linear,
    CompiledLinear,
    OneDNNInt8Linear,
    OneDNNLinear,
    PlainInt8Linear,
    has_onednn,
)
from bertkit.transformer.kernels.llvm_vectors import has_byte_products, has_fused_multiplication, has_wide_registers
from bertkit.transformer.kernels.product_tiles import PANEL
from bertkit.transformer.kernels.rounded_linear import RoundedLinear
from bertkit.transformer.kernels.row_invariance import agrees_with_reference, probe_weight
from bertkit.transformer.kernels.rows import Norm
from bertkit.transformer.kernels.vectors import WIDTH

MOST_ROWS = 48
"""Rows up to which products of a few rows are as fast as those of any number."""

_ONEDNN_PANEL = 64
"""Outputs of a panel of the weights that oneDNN packs."""

_COUNTS = (1, 2, 3, 14, 48)
"""Numbers of rows whose products are compared with oneDNN's: of every tile, alone and one of many."""

_USUAL_BLOCKS = (512, 1_024)
"""Numbers of inputs that oneDNN adds up at a time on an Intel Xeon (family 6 model 207), of up to 1,024 and of more."""


def most_rows_of(linear: Any) -> int:
    """The number of rows up to which all layers with such products, or with a class of them, are faster as one
    function."""
    kind = linear if isinstance(linear, type) else type(linear)
    return 128 if kind in (CompiledLinear, CompiledBFloat16Linear, CompiledInt8Linear) else MOST_ROWS


def is_known(linear: Any) -> bool:
    """Whether `multiply` gives the bits of a linear layer, and this processor has the instructions."""
    match linear:
        case RoundedLinear():
            return is_known(linear.linear)
        case CompiledLinear() | CompiledBFloat16Linear():
            return has_fused_multiplication() and _has_whole_panels(*linear.kind[1:3], inputs=linear.inputs)
        case CompiledInt8Linear():
            return has_wide_registers("avx2") and _has_whole_panels(*linear.kind[1:3], inputs=4)
        case OneDNNInt8Linear():
            return has_byte_products() and PANEL == _ONEDNN_PANEL and _subtracts_after(*linear.kind[1:]) is not None
    return block_of(linear) is not None


def _has_whole_panels(num_outputs: int, width: int, inputs: int) -> bool:
    return num_outputs % PANEL == 0 and width % (inputs * WIDTH) == 0


def block_of(linear: Any) -> int | None:
    """The number of inputs whose products oneDNN adds up at a time in a linear layer.

    None if `multiply` does not give its bits: weights of another kind or shape, or packed or added in another way, or
    a processor without the instructions.
    """
    if type(linear) is not OneDNNLinear or PANEL != _ONEDNN_PANEL:
        return None
    num_outputs, width, packed = *linear.kind[1:3], bias_of(linear).dtype
    has_products = has_wide_registers("avx512bf16") if packed == torch.bfloat16 else has_fused_multiplication()
    if not has_products or num_outputs % PANEL or width * packed.itemsize % (4 * WIDTH):
        return None
    return _block(*linear.kind[1:])


def bias_of(linear: Any) -> Tensor:
    """(N,) in the dtype of the packed weight, zeros for a linear layer without a bias."""
    return torch.zeros(linear.kind[1], dtype=linear.kind[3]) if linear.bias is None else linear.bias


def weights_of(linears: Sequence[Any]) -> Weights | RoundedWeights:
    """The weights of a product in all layers."""
    match linears[0]:
        case RoundedLinear():
            return weights_of([linear.linear for linear in linears])
        case CompiledLinear() | CompiledBFloat16Linear():
            packed, biases = zip(*(linear.weight for linear in linears), strict=True)
            return Weights(_addresses(linears), packed[0].ravel()[:0], packed[0].shape[1], np.stack(biases))
        case CompiledInt8Linear():
            return _rounded_weights(linears, False)
        case OneDNNInt8Linear():
            return _rounded_weights(linears, bool(_subtracts_after(*linears[0].kind[1:])))
    block = block_of(linears[0])
    assert block is not None
    return _float_weights(linears, block)


def _float_weights(linears: Sequence[Any], block: int) -> Weights:
    biases = np.stack([array(bias_of(linear)) for linear in linears])
    return Weights(_addresses(linears), biases[0, :0], block * biases.itemsize // 4, biases)


def _rounded_weights(linears: Sequence[PlainInt8Linear], subtracts_after: bool) -> RoundedWeights:
    def vectors(linear: PlainInt8Linear) -> np.ndarray:
        offsets, nothing = 128 * linear.rounded_sums, np.zeros(len(linear.scales), np.float32)
        parts = (nothing, offsets.astype(np.float32)) if subtracts_after else (offsets.view(np.float32), nothing)
        return np.stack([*parts, linear.scales, linear.weight_sums[:-WIDTH]])

    biases, all_vectors = np.stack([linear.bias[:-WIDTH] for linear in linears]), np.stack([*map(vectors, linears)])
    return RoundedWeights(_addresses(linears), np.empty(0, np.int8), linears[0].kind[2] // 4, biases, all_vectors)


def _addresses(linears: Sequence[Any]) -> np.ndarray:
    return np.array([address_of(linear) for linear in linears], np.int64)


def address_of(linear: Any) -> int:
    """Memory address of the packed weight of a product."""
    if isinstance(linear, CompiledLinear | CompiledBFloat16Linear | CompiledInt8Linear):
        return linear.weight.packed.ctypes.data
    return torch.ops.mkldnn.data_ptr(linear.weight)


def norms_of(norms: Sequence[Any], has_bias: bool = True) -> LayerNorms:
    """A normalization in all layers, each `Norm` or what has one, or None."""
    arrays = [norm if isinstance(norm, Norm) else norm.norm for norm in norms if norm is not None]
    missing = [arrays[0]] * (len(norms) - len(arrays))
    weights, biases = (np.stack(same) for same in list(zip(*(arrays + missing), strict=True))[:2])
    return LayerNorms(weights, biases if has_bias else None, arrays[0].eps)


def offered_few_rows(precision: str) -> list[type]:
    """Those of `offered_linears` whose layers run in one compiled function for a few rows: of some shapes at least."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    weight, bias = probe_weight(PANEL, 4 * WIDTH, dtype), torch.zeros(PANEL, dtype=dtype)
    return [choice.linear for choice in offered_linears(precision) if is_known(choice.linear(weight, bias))]


def kernel_of_short_texts() -> str:
    """Description of how the layers of a short text run on this machine, and why."""
    limits: dict[int, list[str]] = {}
    for name in CPU_PRECISIONS:
        if (linear := linear_for(name).linear) in offered_few_rows(name):
            limits.setdefault(most_rows_of(linear), []).append(name)
    if limits:
        rows = " and ".join(f"up to {most} tokens in {', '.join(names)}" for most, names in limits.items())
        return f"{rows} run through all layers in one compiled function, except those of DeBERTa"
    if not has_fused_multiplication():
        return "layer by layer: this processor lacks fused multiplications (FMA)"
    return "layer by layer: oneDNN packs weights or adds products in an unknown order here"


def can_read_packed_weights() -> bool:
    """Whether this build of torch returns the address of a weight that oneDNN has packed."""
    return has_onednn("mkldnn::data_ptr") and has_onednn("mkldnn::_nbytes")


@cache
def _block(num_outputs: int, width: int, dtype: torch.dtype, has_bias: bool = True) -> int | None:
    """`block_of` an (N, K) weight."""
    if not can_read_packed_weights():
        return None
    bias = torch.zeros(num_outputs, dtype=dtype) if has_bias else None
    linear = OneDNNLinear(probe_weight(num_outputs, width, dtype), bias)
    if torch.ops.mkldnn._nbytes(linear.weight) != bias_of(linear).dtype.itemsize * num_outputs * width:
        return None
    x, residual = torch.empty(1, width, dtype=dtype), torch.empty(1, num_outputs, dtype=dtype)
    blocks = {min(width, block) for block in range(PANEL, width + PANEL, PANEL)}
    for block in sorted(blocks, key=lambda block: (block not in _USUAL_BLOCKS, -block)):
        product = partial(_multiply, _float_weights([linear], block))
        if all(
            agrees_with_reference(
                (*linear.kind, None, len(inputs)), product, partial(linear._probe, None), _COUNTS, *inputs
            )
            for inputs in ((x,), (x, residual))
        ):
            return block
    return None


def _multiply(weights: Weights | RoundedWeights, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """``x W^T + b``, and a residual, with the kernel for a few rows."""
    rows, then = array(x), np.intp(PLAIN if residual is None else ADD)
    out = np.empty((len(rows), weights.bias.shape[1]), rows.dtype)
    added = out if residual is None else array(residual)
    multiply(weights, 0, np.zeros(2, np.int64), 0, rows, then, added, out, sums_of(len(rows)))
    return rows_as_given(out, x)


@cache
def _subtracts_after(num_outputs: int, width: int) -> bool | None:
    """Whether oneDNN subtracts the part of the zero point from sums of (N, K) weights after they became float32; None:
    `multiply` does not give its bits."""
    if num_outputs % PANEL or width % (4 * WIDTH) or not can_read_packed_weights():
        return None
    return next((after for after in (False, True) if _is_exact(num_outputs, width, after)), None)


def _is_exact(num_outputs: int, width: int, subtracts_after: bool) -> bool:
    """Whether `multiply` gives the bits of oneDNN for (N, K) weights."""
    generator = torch.Generator().manual_seed(0)
    weight = probe_weight(num_outputs, width, torch.float32)
    weight[0], weight[1] = 1, -1
    linear = OneDNNInt8Linear(weight, torch.zeros(num_outputs))
    if torch.ops.mkldnn._nbytes(linear.weight) < num_outputs * width:
        return False
    values = _with_both_ends(torch.randint(0, 256, (MOST_ROWS, width), generator=generator, dtype=torch.uint8))
    values[0, 1:], values[1, 2:] = 255, 0
    if not torch.equal(_multiply_int8(linear, values, subtracts_after), linear.multiply(values)):
        return False
    probe = linear._probe()
    product = partial(_multiply_int8, probe.__self__, subtracts_after=subtracts_after)  # pyrefly: ignore
    product, reference = (lambda values, of=of: of(_with_both_ends(values)) for of in (product, probe))
    return agrees_with_reference((*linear.kind, "both ends"), product, lambda: reference, _COUNTS, values)


def _with_both_ends(values: Tensor) -> Tensor:
    """Rows of bytes with the smallest and the largest one, which are quantized with a scale of 1."""
    values = values.clone()
    values[:, 0], values[:, 1] = 0, 255
    return values


def _multiply_int8(linear: OneDNNInt8Linear, values: Tensor, subtracts_after: bool) -> Tensor:
    """The values of the `UnscaledProduct` of (M, K) uint8 values `_with_both_ends`, with the kernel for a few rows."""
    weights = _rounded_weights([linear], subtracts_after)
    return _multiply(weights._replace(bias=np.zeros_like(weights.bias)), values.float() - 128)
