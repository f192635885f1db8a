"""The BERT encoder: embeddings, layers, and the pooler over [CLS].

This is the encoder that is trained, and the reference. Inference runs a copy of its weights, `PreparedBertEncoder` in
``prepared.py``, whose results are the same to rounding. Shape letters: T total_tokens, D hidden_size, B sequences.
"""

from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.attention import SelfAttention
from bertkit.transformer.config import BertConfig
from bertkit.transformer.embeddings import embeddings_of
from bertkit.transformer.interface import Encoder, EncoderOutput
from bertkit.transformer.kernels import activate, project, recomputed
from bertkit.transformer.layer import EncoderLayer
from bertkit.transformer.recorder import Recorder


class Pooler(nn.Module):
    """``tanh(dense(h))`` of the last hidden state of [CLS]: one vector per sequence, trained by next sentence
    prediction."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, cls_hidden_states: Tensor) -> Tensor:
        """(B, D) to (B, D)."""
        return activate(project(cls_hidden_states, self.dense), "tanh")


class BertEncoder(Encoder):
    """Post-norm Transformer with learned positions (Devlin et al. 2018, section 3)."""

    attention: ClassVar[type[SelfAttention]] = SelfAttention
    layer: ClassVar[type[EncoderLayer]] = EncoderLayer

    def __init__(self, config: BertConfig, *, with_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        self.embeddings = embeddings_of(config)
        self.layers = nn.ModuleList(self.layer(config, self.attention) for _ in range(self.num_stored_layers(config)))
        self.pooler = Pooler(config) if with_pooler else None

    def forward(
        self,
        batch: Batch,
        *,
        with_hidden_states: bool = False,
        with_pooled: bool = True,
        recorder: Recorder | None = None,
    ) -> EncoderOutput:
        """Run a Batch through all layers.

        Args:
            with_hidden_states: also return the embeddings and the output of every layer.
            with_pooled: apply the pooler, if there is one.
            recorder: records attention and the contributions of each layer.

        Raises:
            UsageError: a sequence is longer than the position table, or an id is outside its table.
        """
        hidden, bias = self.embeddings(batch), self.distance_bias(batch.max_seqlen)
        hidden_states = [hidden] if with_hidden_states else []
        for number, layer in enumerate(self.in_order(), 1):
            record = None if recorder is None else recorder.layer(number)
            if self.gradient_checkpointing and torch.is_grad_enabled() and record is None:
                hidden = recomputed(layer, hidden, batch, None, bias)
            else:
                hidden = layer(hidden, batch, record, bias)
            if with_hidden_states:
                hidden_states.append(hidden)
        last = self.as_last(hidden)
        return EncoderOutput(
            last_hidden_state=last,
            pooled=None if self.pooler is None or not with_pooled else self.pooler(last[batch.first_tokens]),
            hidden_states=[*hidden_states[:-1], last] if with_hidden_states else None,
        )

    @staticmethod
    def num_stored_layers(config: BertConfig) -> int:
        """Number of layers that have weights."""
        return config.num_hidden_layers

    def in_order(self) -> list[EncoderLayer]:
        """The layers as they are applied, one for each of ``num_hidden_layers``."""
        return [cast(EncoderLayer, layer) for layer in self.layers]

    def distance_bias(self, longest: int) -> Any:
        """Bias by distance added to attention scores, for sequences of up to ``longest`` tokens; None in BERT, which
        has positions in its embeddings instead.

        (H, 2 M - 1) for M = ``longest``, in column M - 1 + d for a key d tokens after its query; or the input of
        `SelfAttention.for_layer`.
        """
        return None
