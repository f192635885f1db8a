"""The weights of prepared layers, gathered for kernels that compute every layer of a few rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.layer_weights import LayerNorms, RoundedWeights, Weights
from bertkit.transformer.kernels.linear import OneDNNInt8Linear
from bertkit.transformer.kernels.panel_linear import PanelLinear
from bertkit.transformer.kernels.rounded_linear import RoundedLinear
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
