"""Decoder of an encoder-decoder model.

Shape letters: T total_tokens, S source tokens, D hidden_size.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.transformer.config import BertConfig
from bertkit.transformer.embeddings import embeddings_of
from bertkit.transformer.kernels import recomputed
from bertkit.transformer.layer import DecoderLayer
from bertkit.transformer.recorder import Recorder


class Decoder(nn.Module):
    """Layers of causal self-attention, cross-attention and feed-forward (Vaswani et al. 2017, section 3.1).

    Args:
        config: with ``is_decoder``.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        assert config.is_decoder, "expected a config with is_decoder=True"
        self.config = config
        self.gradient_checkpointing = False
        self.embeddings = embeddings_of(config)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))

    def forward(
        self, batch: Batch, source: Tensor, source_seqlens: Sequence[int], recorder: Recorder | None = None
    ) -> Tensor:
        """Hidden states (T, D) of packed targets, each with its source.

        Args:
            source: (S, D), packed hidden states of the encoder.
            source_seqlens: number of tokens of each source.

        Raises:
            UsageError: different numbers of sources and targets, or as `Embeddings.check`.
        """
        if len(source_seqlens) != len(batch):
            raise UsageError(f"{len(batch)} targets and {len(source_seqlens)} sources: each target needs its source")
        hidden = self.embeddings(batch)
        for number, layer in enumerate(self.in_order(), 1):
            record = None if recorder is None else recorder.layer(number)
            if self.gradient_checkpointing and torch.is_grad_enabled() and record is None:
                hidden = recomputed(layer, hidden, batch, source, source_seqlens)
            else:
                hidden = layer(hidden, batch, source, source_seqlens, record)
        return hidden

    def in_order(self) -> list[DecoderLayer]:
        """The layers."""
        return [cast(DecoderLayer, layer) for layer in self.layers]
