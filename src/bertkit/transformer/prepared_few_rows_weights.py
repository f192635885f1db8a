"""The weights of prepared layers, gathered for kernels that compute every layer of a few rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from bertkit.device import CPU_PRECISIONS
from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.dispatch import linear_for, offered_linears
from bertkit.transformer.kernels.few_rows import PANEL, TILE_ROWS
from bertkit.transformer.kernels.layer_weights import LayerNorms, RoundedWeights, Weights
from bertkit.transformer.kernels.linear import OneDNNInt8Linear, OneDNNLinear
from bertkit.transformer.kernels.llvm_vectors import has_wide_registers
from bertkit.transformer.kernels.panel_linear import PanelLinear
from bertkit.transformer.kernels.rounded_linear import RoundedLinear
from bertkit.transformer.kernels.row_invariance import probe_weight
from bertkit.transformer.kernels.rows import Norm
from bertkit.transformer.prepared_few_rows import address_of, bias_of, block_of
from bertkit.transformer.prepared_few_rows_int8 import gives_bits_of, vectors_of


def is_known(linear: Any) -> bool:
    """Whether a product for few rows gives the bits of a linear layer."""
    match linear:
        case PanelLinear():
            return True
        case RoundedLinear():
            return gives_bits_of(linear.linear)
        case OneDNNInt8Linear():
            return gives_bits_of(linear)
    return block_of(linear) is not None


def offered_few_rows(precision: str) -> list[type]:
    """Those of `offered_linears` whose layers run in one compiled function for a few rows: of some shapes at least."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    weight, bias = probe_weight(PANEL, PANEL, dtype), torch.zeros(PANEL, dtype=dtype)
    return [choice.linear for choice in offered_linears(precision) if is_known(choice.linear(weight, bias))]


def kernel_of_short_texts() -> str:
    """Description of how the layers of a short text run on this machine, and why."""
    names = [name for name in CPU_PRECISIONS if linear_for(name).linear in offered_few_rows(name)]
    if names:
        rows = f"up to {max(TILE_ROWS)} tokens in {' or '.join(names)}"
        return f"{rows} run through all layers in one compiled function, except those of DeBERTa"
    if not has_wide_registers():
        return "layer by layer: this processor lacks AVX-512"
    if linear_for("float32").linear is not OneDNNLinear:
        return "layer by layer: this build of torch lacks oneDNN"
    return "layer by layer: oneDNN packs weights or adds products in an unknown order here"


def num_outputs(linear: Any) -> int:
    """The number of outputs of a linear layer that `is_known`."""
    match linear:
        case PanelLinear():
            return len(linear.bias)
        case RoundedLinear():
            return linear.linear.kind[1]
    return linear.kind[1]


def weights_of(linears: Sequence[Any]) -> Weights | RoundedWeights:
    """The weights of a product in all layers."""
    match linears[0]:
        case PanelLinear():
            return PanelLinear.of_layers(linears)
        case RoundedLinear():
            return weights_of([linear.linear for linear in linears])
    addresses = np.array([address_of(linear) for linear in linears], np.int64)
    if isinstance(linears[0], OneDNNInt8Linear):
        return RoundedWeights(addresses, np.stack([vectors_of(linear) for linear in linears]))
    biases, block = np.stack([array(bias_of(linear)) for linear in linears]), block_of(linears[0])
    assert block is not None
    return Weights(addresses, biases[0, :0], block, biases)


def norms_of(norms: Sequence[Any]) -> LayerNorms:
    """A normalization in all layers, each `Norm` or what has one."""
    arrays = [norm if isinstance(norm, Norm) else norm.norm for norm in norms]
    return LayerNorms(np.stack([np.stack(norm[:2]) for norm in arrays]), arrays[0].eps)
