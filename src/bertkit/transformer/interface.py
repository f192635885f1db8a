"""Interface of encoders: config, modules, output, and the encoder prepared for inference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from bertkit.batch import Batch


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


@dataclass(frozen=True, eq=False)
class EncoderOutput:
    """Output of an encoder for a Batch; T total_tokens, D hidden_size, B sequences."""

    last_hidden_state: Tensor  # (T, D)
    pooled: Tensor | None  # (B, D), None for an encoder without pooler
    hidden_states: list[Tensor] | None = None  # embeddings, then every layer: num_hidden_layers + 1 of (T, D)


class Encoder(nn.Module):
    """Base class of encoders: token ids to one contextual vector per token."""

    config: Any  # an EncoderConfig with fields of this encoder
    embeddings: Any  # a module with the embedding table `word`
    layers: nn.ModuleList
    pooler: nn.Module | None  # reads the first token of each sequence; None: the encoder has no pooler
    gradient_checkpointing: bool  # in training, recompute activations in the backward pass instead of storing them

    def in_order(self) -> Sequence[nn.Module]:
        """The layers as they are applied, one for each of ``num_hidden_layers``; some may be the same module."""
        raise NotImplementedError

    def as_last(self, hidden_states: Tensor) -> Tensor:
        """Hidden states of an inner layer, transformed as the last layer's are for heads; (T, D) to (T, D)."""
        return hidden_states


class PreparedEncoder(Protocol):
    """An encoder prepared for inference at a precision."""

    def fits(self, encoder: nn.Module) -> bool:
        """True if this was prepared from this encoder and its weights are unchanged since."""
        ...

    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """As the encoder's forward in evaluation.

        With ``first_only``, the last hidden states of other tokens than the first of each sequence may be zeros, which
        saves most of the last layer. The first ones have the same bits.
        """
        ...
