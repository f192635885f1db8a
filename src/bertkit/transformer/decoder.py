"""Decoder of an encoder-decoder model.

Shape letters: T total_tokens, S source tokens, D hidden_size.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.later import Tensor
from bertkit.transformer.attention import PositionValues
from bertkit.transformer.config import BertConfig
from bertkit.transformer.embeddings import embeddings_of
from bertkit.transformer.layer import Layer, Sources, apply_layers
from bertkit.transformer.modules import nn
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
        layers = [replace(config.layer(number), attends_to_sources=True) for number in range(config.num_hidden_layers)]
        self.layers, self.final_norm = nn.ModuleList(Layer(layer) for layer in layers), None

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
        return apply_layers(
            self.in_order(),
            self.embeddings(batch),
            batch,
            PositionValues({}, None),
            sources=Sources(source, source_seqlens),
            recorder=recorder,
            recomputes=self.gradient_checkpointing,
        )

    def in_order(self) -> list[Layer]:
        """The layers."""
        return [cast(Layer, layer) for layer in self.layers]
