"""Layers between the pooled hidden states of a text and its vector: Dense, LayerNorm and Normalize.

These are the modules after Pooling in sentence-transformers folders. Shape letters: N texts, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.errors import UsageError
from bertkit.later import F, Tensor
from bertkit.transformer.kernels import like, linear, normalize
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import Rows, as_given, floats
from bertkit.transformer.kernels.choices import has_invariant_kernels
from bertkit.transformer.kernels.inference import is_for_arrays, sums_of_rows
from bertkit.transformer.modules import nn

OUTPUT_ACTIVATIONS = {  # torch class name -> function
    "Identity": lambda x: x,
    "Sigmoid": lambda x: F.sigmoid(x),
    "Tanh": lambda x: F.tanh(x),
    "ReLU": lambda x: F.relu(x),
    "GELU": lambda x: F.gelu(x),
    "SiLU": lambda x: F.silu(x),
    "Softplus": lambda x: F.softplus(x),
    "LeakyReLU": lambda x: F.leaky_relu(x),
    "ELU": lambda x: F.elu(x),
}
"""Activations of Dense layers and of cross-encoder scores."""


_OF_ARRAYS = {  # the same, of float64
    "Identity": lambda x: x,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "GELU": lambda x: apply_activation(x, "gelu"),
    "SiLU": lambda x: x / (1 + np.exp(-x)),
    "Softplus": lambda x: np.logaddexp(0, x),
    "LeakyReLU": lambda x: np.maximum(x, 0.01 * x),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


def activated(x: Rows, name: str) -> Rows:
    """An activation of OUTPUT_ACTIVATIONS: in inference on the CPU computed in float64 and rounded once to float32."""
    if not (isinstance(x, np.ndarray) or is_for_arrays(x)):
        return OUTPUT_ACTIVATIONS[name](x)
    with np.errstate(over="ignore"):
        return as_given(_OF_ARRAYS[name](floats(x).astype(np.float64)).astype(np.float32), x)


@dataclass(frozen=True)
class DenseLayer:
    """``activation(x W^T + b)``, with ``residual`` plus x, or plus a linear map of x if the widths differ."""

    in_features: int
    out_features: int
    bias: bool = True
    activation: str = "Tanh"  # a name from OUTPUT_ACTIVATIONS
    residual: bool = False

    def __post_init__(self) -> None:
        if self.activation not in OUTPUT_ACTIVATIONS:
            raise UsageError(f"activation={self.activation!r}: expected one of {', '.join(OUTPUT_ACTIVATIONS)}")
        if min(self.in_features, self.out_features) < 1:
            raise UsageError(f"a Dense layer from {self.in_features} to {self.out_features}: expected at least 1")


@dataclass(frozen=True)
class NormLayer:
    """Layer normalization with weight and bias."""

    width: int


@dataclass(frozen=True)
class UnitLength:
    """Scale to length 1, before further layers."""


ProjectionLayer = DenseLayer | NormLayer | UnitLength


def output_width(layers: Sequence[ProjectionLayer], width: int) -> int:
    """Output width of the layers for input vectors of ``width`` components.

    Raises:
        UsageError: a layer's input width differs from the width before it.
    """
    for number, layer in enumerate(layers, start=1):
        match layer:
            case DenseLayer(in_features, out_features):
                expected, after = in_features, out_features
            case NormLayer(expected):
                after = expected
            case _:
                expected = after = width
        if expected != width:
            raise UsageError(
                f"projection layer {number} expects vectors of width {expected}, but they have width {width}"
            )
        width = after
    return width


class Projection(nn.ModuleList):
    """Projection layers with weights, under the names of sentence-transformers.

    Raises:
        UsageError: a layer's input width differs from ``width``, or from the output of the layer before it.
    """

    def __init__(self, layers: Sequence[ProjectionLayer], width: int) -> None:
        self.width = output_width(layers, width)
        super().__init__(map(_module, layers))

    def forward(self, vectors: Tensor) -> Tensor:
        """(N, width of the pooled hidden states) to (N, ``width``)."""
        for layer in self:
            vectors = layer(vectors)
        return vectors


class _Dense(nn.Module):
    def __init__(self, layer: DenseLayer) -> None:
        super().__init__()
        self.activation = layer.activation
        self.linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias)
        self.is_residual = layer.residual
        if layer.residual and layer.in_features != layer.out_features:
            self.residual = nn.Linear(layer.in_features, layer.out_features, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        output = activated(like(linear(vectors, self.linear.weight, self.linear.bias), vectors), self.activation)
        if not self.is_residual:
            return output
        if hasattr(self, "residual"):
            return output + like(linear(vectors, self.residual.weight, None), vectors)
        return output + vectors


class _Norm(nn.Module):
    def __init__(self, layer: NormLayer) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(layer.width)

    def forward(self, vectors: Tensor) -> Tensor:
        return normalize(vectors, self.norm)


class _Unit(nn.Module):
    def forward(self, vectors: Rows) -> Rows:
        return unit_length(vectors)


def unit_length(vectors: Rows) -> Rows:
    """(N, D) vectors scaled to length 1; zeros remain."""
    if isinstance(vectors, np.ndarray):
        return vectors / np.maximum(np.sqrt((vectors * vectors).sum(-1, keepdims=True)), vectors.dtype.type(1e-12))
    if is_for_arrays(vectors):
        return as_given(unit_length(floats(vectors)), vectors)
    if has_invariant_kernels(vectors):
        return vectors / sums_of_rows(vectors * vectors).sqrt().clamp(min=1e-12)[:, None]
    return F.normalize(vectors, dim=-1)


def _module(layer: ProjectionLayer) -> nn.Module:
    match layer:
        case DenseLayer():
            return _Dense(layer)
        case NormLayer():
            return _Norm(layer)
    return _Unit()
