"""Interface of encoders: config, output, and the encoder prepared for inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from bertkit.batch import Batch
from bertkit.later import Tensor
from bertkit.transformer.layer_config import LayerConfig
from bertkit.transformer.modules import nn


class EncoderConfig(Protocol):
    """Fields of every encoder config, with BERT's key names. Configs are frozen dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def num_hidden_layers(self) -> int: ...
    @property
    def num_attention_heads(self) -> int: ...
    @property
    def max_position_embeddings(self) -> int: ...
    @property
    def initializer_range(self) -> float: ...
    @property
    def is_decoder(self) -> bool: ...  # a token attends to itself and earlier ones, left to right
    def layer(self, number: int) -> LayerConfig: ...  # with an index from 0


@dataclass(frozen=True, eq=False)
class EncoderOutput:
    """Output of an encoder for a Batch; T total_tokens, D hidden_size, B sequences."""

    last_hidden_state: Tensor  # (T, D)
    pooled: Tensor | None  # (B, D), None for an encoder without pooler
    hidden_states: list[Tensor] | None = None  # embeddings, then every layer: num_hidden_layers + 1 of (T, D)

    def as_arrays(self) -> EncoderOutput:
        """The same numbers of the CPU as arrays, which they may be already."""
        states = self.hidden_states and [np.asarray(state) for state in self.hidden_states]
        pooled = None if self.pooled is None else np.asarray(self.pooled)
        return EncoderOutput(np.asarray(self.last_hidden_state), pooled, states)  # type: ignore[arg-type]


class PreparedEncoder(Protocol):
    """An encoder prepared for inference at a precision."""

    def fits(self, encoder: nn.Module) -> bool:
        """True if this was prepared from this encoder and its weights are unchanged since."""

    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False,
        rows: Any = None,
    ) -> EncoderOutput:  # fmt: skip
        """As the encoder's forward in evaluation.

        With ``first_only``, the last hidden states of other tokens than the first of each sequence may be zeros, which
        saves most of the last layer; with ``rows`` those of other tokens than these (C,) indices. The others have the
        same bits.
        """
