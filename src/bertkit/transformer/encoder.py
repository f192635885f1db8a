"""The encoder of every family: embeddings, layers, and the pooler over [CLS].

This is the encoder that is trained, and the reference. Inference runs a copy of its weights, `PreparedTransformer` in
``prepared/encoder.py``, whose results are the same to rounding. Shape letters: T total_tokens, D hidden_size, B
sequences.
"""

from typing import Any, cast

import numpy as np

from bertkit.batch import Batch
from bertkit.later import Tensor, torch
from bertkit.transformer.attention import PositionValues
from bertkit.transformer.embeddings import embeddings_of
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels import activate, project
from bertkit.transformer.layer import Layer, apply_layers, norm_of
from bertkit.transformer.layer_config import RotaryPositions
from bertkit.transformer.modules import nn
from bertkit.transformer.recorder import Recorder
from bertkit.transformer.relative import RelativePositions
from bertkit.transformer.rotary import Rotary, rotary_of, rotary_rows


class Pooler(nn.Module):
    """``tanh(dense(h))`` of the last hidden state of [CLS]: one vector per sequence, trained by next sentence
    prediction."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, cls_hidden_states: Tensor) -> Tensor:
        """(B, D) to (B, D)."""
        return activate(project(cls_hidden_states, self.dense), "tanh")


class Encoder(nn.Module):
    """Token ids to one contextual vector per token: a Transformer encoder (Devlin et al. 2018, section 3), whose layers
    are as the config describes them.

    Args:
        config: an EncoderConfig.
    """

    def __init__(self, config: Any, *, with_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False  # recompute activations in the backward pass instead of storing them
        self.embeddings = embeddings_of(config)
        numbers = range(self.num_stored_layers(config))
        self.layers = nn.ModuleList(Layer(config.layer(number)) for number in numbers)
        self.pooler = Pooler(config) if with_pooler else None
        layer = config.layer(0)
        self.final_norm = norm_of(layer) if layer.is_pre_norm else None

    def forward(
        self,
        batch: Batch,
        *,
        with_hidden_states: bool = False,
        with_pooled: bool = True,
        attended: Tensor | None = None,
        recorder: Recorder | None = None,
    ) -> EncoderOutput:
        """Run a Batch through all layers.

        Args:
            with_hidden_states: also return the embeddings and the output of every layer. With norms before, these are
                the residual stream after every layer but the last, and the output of the final norm.
            with_pooled: apply the pooler, if there is one.
            attended: (T,) bool, True for the tokens that others attend to, as in an attention mask; None: all. Not with
                a recorder.
            recorder: records attention and the contributions of each layer.

        Raises:
            UsageError: a sequence is longer than the position table, an id is outside its table, or ``attended`` is
                given with a recorder.
        """
        hidden, streams = self.embeddings(batch), [] if with_hidden_states else None
        last = apply_layers(
            self.in_order(),
            hidden,
            batch,
            PositionValues(self.rotary_at(batch.position_ids), self.distance_bias(batch.max_seqlen), attended),
            final_norm=self.final_norm,
            recorder=recorder,
            recomputes=self.gradient_checkpointing,
            streams=streams,
        )
        return EncoderOutput(
            last_hidden_state=last,
            pooled=None if self.pooler is None or not with_pooled else self.pooler(last[batch.first_tokens]),
            hidden_states=None if streams is None else [*streams[:-1], last],
        )

    @staticmethod
    def num_stored_layers(config: Any) -> int:
        """Number of layers that have weights."""
        return config.num_hidden_layers

    def in_order(self) -> list[Layer]:
        """The layers as they are applied, one for each of ``num_hidden_layers``; some may be the same module."""
        return [cast(Layer, layer) for layer in self.layers]

    def as_last(self, hidden_states: Tensor) -> Tensor:
        """Hidden states of an inner layer, transformed as the last layer's are for heads; (T, D) to (T, D)."""
        return hidden_states if self.final_norm is None else self.final_norm(hidden_states)

    def rotary(self, num_positions: int) -> dict[RotaryPositions, Rotary]:
        """The angles at the first positions, for inference, as `rotary_at`: arrays for an encoder with arrays."""
        kinds, weight = self._rotary_kinds(), self.embeddings.word.weight
        rows = {kind: rotary_rows(num_positions, kind.theta, width, kind.factor) for kind, width in kinds.items()}
        if isinstance(weight, np.ndarray):
            return rows
        return {kind: Rotary(*(torch.from_numpy(part).to(weight.device) for part in rows[kind])) for kind in rows}

    def rotary_at(self, position_ids: Tensor) -> dict[RotaryPositions, Rotary]:
        """The angles at (T,) positions, for each kind of rotary positions in use."""
        kinds = self._rotary_kinds().items()
        return {kind: rotary_of(position_ids, kind.theta, width, kind.factor) for kind, width in kinds}

    def _rotary_kinds(self) -> dict[RotaryPositions, int]:
        """The kinds of rotary positions in use, with the width of a head."""
        layers = [layer.config for layer in self.in_order()]
        return {layer.positions: layer.head_dim for layer in layers if isinstance(layer.positions, RotaryPositions)}

    def distance_bias(self, longest: int) -> Tensor | RelativePositions | None:
        """Bias by distance of all layers, as in `PositionValues`, for sequences of up to ``longest`` tokens; None in
        BERT, which has positions in its embeddings instead."""
        return None
