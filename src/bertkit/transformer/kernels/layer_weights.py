"""The weights of all layers, for kernels that compute every layer of a few rows.

Shape letters: D hidden_size, N outputs, L layers.
"""

from typing import NamedTuple

import numpy as np


class Weights(NamedTuple):
    """The weights of a product in all layers, float32 or bfloat16."""

    addresses: np.ndarray  # (L,) int64, of the packed weights
    packed: np.ndarray  # (0,) in the dtype of the packed weights
    block: int  # inputs whose products are added up at a time
    bias: np.ndarray  # (L, N) in the dtype of products


class RoundedWeights(NamedTuple):
    """The same in 8 bits."""

    addresses: np.ndarray  # (L,) int64, of the packed weights
    vectors: np.ndarray  # (L, 6, N) float32: of `Int8Layers`


class LayerNorms(NamedTuple):
    """A layer normalization in all layers."""

    weights: np.ndarray  # (L, 2, D) float32, weight and bias
    eps: np.float32
