"""The ModernBERT encoder: embeddings, layers, final norm."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.embeddings import Embeddings
from bertkit.transformer.interface import Encoder, EncoderOutput
from bertkit.transformer.kernels import recomputed
from bertkit.transformer.modernbert.config import ModernBertConfig
from bertkit.transformer.modernbert.layer import ModernBertLayer, norm_of
from bertkit.transformer.recorder import Recorder
from bertkit.transformer.rotary import Rotary, rotary_of


class ModernBertEncoder(Encoder):
    """Pre-norm Transformer with rotary positions (Warner et al. 2024, section 2.1)."""

    pooler = None  # a sequence classifier reads hidden states

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        self.embeddings = Embeddings(cast(Any, config))
        self.layers = nn.ModuleList(ModernBertLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.final_norm = norm_of(config)

    def forward(
        self,
        batch: Batch,
        *,
        with_hidden_states: bool = False,
        with_pooled: bool = True,
        recorder: Recorder | None = None,
    ) -> EncoderOutput:
        """Run a Batch through all layers; as `BertEncoder.forward`, without pooling.

        The hidden states are the embeddings, the residual stream after every layer but the last, and the output of the
        final norm.
        """
        hidden = self.embeddings(batch)
        normed = hidden
        rotary = self.rotary(batch.position_ids)
        hidden_states = [hidden] if with_hidden_states else []
        for number, (layer, next_norm) in enumerate(zip(self.in_order(), self.norms_after(), strict=True), 1):
            others = (normed, next_norm, batch, rotary[layer.attention.theta])
            record = None if recorder is None else recorder.layer(number)
            if self.gradient_checkpointing and torch.is_grad_enabled() and record is None:
                hidden, normed = recomputed(layer, hidden, *others)
            else:
                hidden, normed = layer(hidden, *others, record)
            if with_hidden_states:
                hidden_states.append(hidden)
        last = normed.to(hidden.dtype)
        return EncoderOutput(
            last_hidden_state=last,
            pooled=None,
            hidden_states=[*hidden_states[:-1], last] if with_hidden_states else None,
        )

    def as_last(self, hidden_states: Tensor) -> Tensor:
        """The final norm of (T, D) states of the residual stream."""
        return self.final_norm(hidden_states)

    def rotary(self, position_ids: Tensor) -> dict[float, Rotary]:
        """The angles at (T,) positions, for each rotary base in use."""
        thetas = {layer.attention.theta for layer in self.in_order()}
        return {theta: rotary_of(position_ids, theta, self.config.head_dim) for theta in thetas}

    def norms_after(self) -> list[nn.LayerNorm]:
        """The normalization after each layer: the attention norm of the next layer, or the final norm."""
        return [
            *(layer.attention_norm for layer in self.in_order() if layer.attention_norm is not None),
            self.final_norm,
        ]

    def in_order(self) -> list[ModernBertLayer]:
        """The layers."""
        return [cast(ModernBertLayer, layer) for layer in self.layers]
