"""Slow reference of decoding: without a cache, every step computes all tokens again by the network of training."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bertkit.generation import Causal, SequenceToSequence


class UncachedDecoding:
    """Decoding of a group of inputs, as `bertkit.generation.Decoding`."""

    def __init__(self, generator: Causal | SequenceToSequence, inputs: Sequence[np.ndarray]) -> None:
        self.generator, self.sources = generator, None
        if isinstance(generator, SequenceToSequence):
            with torch.inference_mode():
                self.sources = generator.checkpoint.network.encode(generator.batch(inputs))

    def start(self, prompts: Sequence[np.ndarray]) -> Tensor:
        self.rows, self.prompts = [prompt.astype(np.int64) for prompt in prompts], np.arange(len(prompts))
        return self._logits()

    def step(self, tokens: np.ndarray, parents: np.ndarray) -> Tensor:
        self.rows = [np.append(self.rows[parent], token) for token, parent in zip(tokens, parents, strict=True)]
        self.prompts = self.prompts[parents]
        return self._logits()

    @torch.inference_mode()
    def _logits(self) -> Tensor:
        batch = self.generator.batch(self.rows)
        last = batch.cu_seqlens[1:].long() - 1
        if isinstance(self.generator, Causal):
            network = self.generator.model.network
            hidden = network.encoder(batch, with_pooled=False).last_hidden_state
            return network.require_head("masked_lm")(hidden[last], network.encoder.embeddings.word.weight)
        network, sources = self.generator.checkpoint.network, self.sources
        parts = sources.states.split(list(sources.seqlens))
        states = torch.cat([parts[prompt] for prompt in self.prompts])
        hidden = network.decoder(batch, states, [sources.seqlens[prompt] for prompt in self.prompts])
        return network.head(hidden[last], network.decoder.embeddings.word.weight)
