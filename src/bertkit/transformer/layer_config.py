"""One layer of a Transformer as a value: every family is a choice of these fields.

The layer that is trained (`layer.py`), the one prepared for inference (`prepared/layer.py`) and the exported one
(``export/layers.py``) read it. A config makes one for each of its layers: `BertConfig.layer`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bertkit.errors import UsageError
from bertkit.later import torch
from bertkit.transformer.config_checks import check_activations, check_integers, check_one_of
from bertkit.transformer.window import Window

GATES = ("none", "separate", "first", "last")


@dataclass(frozen=True)
class RotaryPositions:
    """Queries and keys are rotated by their positions (Su et al. 2021)."""

    theta: float  # base of the frequencies
    factor: float = 1.0  # divisor of the frequencies
    has_neighboring_pairs: bool = False  # columns 2 i and 2 i + 1 of a head are a pair; False: i and i + K / 2


@dataclass(frozen=True)
class DistanceBias:
    """A learned bias for each distance is added to the scores of each head (Raffel et al. 2020)."""


@dataclass(frozen=True)
class DisentangledPositions:
    """Queries and keys are also compared with relative positions (He et al. 2021)."""

    scale: float  # scores are divided by it


Positions = RotaryPositions | DistanceBias | DisentangledPositions
"""How a layer knows positions, in addition to the embeddings."""


@dataclass(frozen=True)
class LayerConfig:
    """One layer. Widths are numbers of columns.

    Raises:
        UsageError: key/value heads that do not divide the heads, or an unknown choice; the message names the key.
    """

    hidden_size: int  # width of the hidden states
    num_attention_heads: int  # query heads
    num_key_value_heads: int  # each serves equally many query heads
    head_dim: int  # width of a head
    intermediate_size: int  # width inside the feed-forward network, after the gate
    hidden_act: str = "gelu"  # activation inside it: a key of ACTIVATIONS
    norm_order: Literal["post", "pre"] = "post"  # after each sum, or before each sub-layer
    norm: Literal["layer", "rms"] = "layer"  # layer normalization, or by the root of the mean square alone
    norm_eps: float = 1e-12  # added to the variance
    has_norm_biases: bool = True
    has_attention_norm: bool = True  # False: the first layer of an encoder whose embeddings are normalized already
    positions: Positions | None = None  # None: of the embeddings only
    window: int | Window | None = None  # tokens visible on each side, or before and after; None: the whole sequence
    gate: Literal["none", "separate", "first", "last"] = "none"  # feed-forward network without a gate, or with one:
    # stored as a layer, or as the first or the last half of one layer with the other factor
    has_joint_inputs: bool = False  # queries, keys and values are stored as one layer
    has_inputs_by_head: bool = False  # in that layer query, key and value of a head precede those of the next head
    has_attention_biases: bool = True
    has_head_norms: bool = False  # the columns of each head of queries and keys are divided by the root of their mean
    # square, before rotation (Henry et al. 2020)
    has_expand_bias: bool = True  # also of the gate
    has_project_bias: bool = True
    attends_to_sources: bool = False  # the layer of a decoder with cross-attention
    attention_probs_dropout_prob: float = 0.0  # dropout on attention probabilities, in training
    attention_output_dropout_prob: float = 0.0  # on the output of attention
    inner_dropout_prob: float = 0.0  # inside the feed-forward network
    hidden_dropout_prob: float = 0.0  # on the output of the feed-forward network
    stores_norms_first: bool = False  # the order of parameters: each norm before the sub-layer that reads it

    def __post_init__(self) -> None:
        counts = "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"
        check_integers(self, *counts)
        check_activations(self, "hidden_act")
        check_one_of(self, "norm_order", ("post", "pre"))
        check_one_of(self, "norm", ("layer", "rms"))
        check_one_of(self, "gate", GATES)
        if self.positions is not None and not isinstance(self.positions, Positions):
            raise UsageError(
                f"positions={self.positions!r}: expected RotaryPositions, DistanceBias, DisentangledPositions or None"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise UsageError(
                f"num_key_value_heads={self.num_key_value_heads} does not divide num_attention_heads="
                f"{self.num_attention_heads}: each key/value head serves equally many query heads"
            )
        if self.has_inputs_by_head and (not self.has_joint_inputs or self.input_widths[0] != self.input_widths[1]):
            raise UsageError("has_inputs_by_head=True requires has_joint_inputs and as many key/value heads as heads")
        if self.has_head_norms and self._has_neighboring_pairs:
            raise UsageError("has_head_norms=True: rotary positions with has_neighboring_pairs have no norms of heads")
        if isinstance(self.positions, RotaryPositions) and self.head_dim % 2:
            raise UsageError(f"head_dim={self.head_dim}: rotary positions need an even number of columns in a head")

    @property
    def is_pre_norm(self) -> bool:
        return self.norm_order == "pre"

    @property
    def is_gated(self) -> bool:
        return self.gate != "none"

    @property
    def input_widths(self) -> tuple[int, int, int]:
        """Outputs of the layers of queries, keys and values."""
        key_value = self.num_key_value_heads * self.head_dim
        return self.num_attention_heads * self.head_dim, key_value, key_value

    @property
    def _has_neighboring_pairs(self) -> bool:
        return isinstance(self.positions, RotaryPositions) and self.positions.has_neighboring_pairs

    def as_parts(self, inputs: Any, dim: int) -> Any:
        """Queries, keys and values as attention reads them: all queries, all keys, all values, of `input_widths`.
        Columns i and i + K / 2 of a head are a pair in rotation.

        Args:
            inputs: a tensor or an array, along ``dim`` the outputs of the layers of queries, keys and values.
        """
        if self.has_inputs_by_head:
            inputs = _exchanged(inputs, dim, self.num_attention_heads, 3, self.head_dim)
        if self._has_neighboring_pairs:
            before, count = (slice(None),) * (dim % inputs.ndim), sum(self.input_widths[:2])
            rotated, value = inputs[*before, :count], inputs[*before, count:]
            library: Any = np if isinstance(inputs, np.ndarray) else torch
            inputs = library.concatenate([_exchanged(rotated, dim, self.head_dim // 2, 2, 1), value], dim)
        return inputs


def _exchanged(inputs: Any, dim: int, rows: int, columns: int, width: int) -> Any:
    """Transpose each matrix of ``rows`` times ``columns`` groups of ``width`` outputs along ``dim``."""
    dim, shape = dim % inputs.ndim, inputs.shape
    groups = inputs.reshape(*shape[:dim], -1, rows, columns, width, *shape[dim + 1 :])
    return groups.swapaxes(dim + 1, dim + 2).reshape(shape)
