"""Decoding step by step, with a key-value cache.

Shape letters: R rows, N new tokens, S source tokens, D hidden_size, V vocab_size.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.device import send
from bertkit.executor import on_one_core
from bertkit.transformer.decoding_cache import DecodingCache
from bertkit.transformer.few_rows.prepared import few_rows_of
from bertkit.transformer.few_rows.weights import MOST_ROWS
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.kernels.product_tiles import PANEL
from bertkit.transformer.prepared.decoder import PreparedDecoder


class PreparedOutput:
    """A language model head prepared for inference: hidden states (R, D) to logits (R, V) float32.

    Args:
        head: a `MaskedLMHead` or a `VocabularyHead`.
        word_embedding: (V, D).
        decoder: the decoder before it; its products are of the same kind.
    """

    def __init__(self, head: Any, word_embedding: Tensor, decoder: PreparedDecoder) -> None:
        self.head, self.weight_dtype, self.dtype = head, word_embedding.dtype, decoder.dtype
        self.vocab_size = len(word_embedding)
        with torch.inference_mode():
            weight, bias = word_embedding, head.bias
            bias = weight.new_zeros(self.vocab_size) if bias is None else bias
            if missing := -self.vocab_size % PANEL:
                weight, bias = F.pad(weight, (0, 0, 0, missing)), F.pad(bias, (0, missing))
            self.linear = decoder.kernels.linear(weight.to(self.dtype), bias.to(self.dtype))

    @torch.inference_mode()
    def __call__(self, hidden: Tensor) -> Tensor:
        few_rows = self._few_rows if len(hidden) <= MOST_ROWS else None
        with inference_kernels(), on_one_core() if few_rows else nullcontext():
            x = self.head.transform(hidden.to(self.weight_dtype)).to(self.dtype).contiguous()
        logits = (few_rows or self.linear)(x)[:, : self.vocab_size]
        with on_one_core() if few_rows else nullcontext():  # OpenMP's threads keep cores busy for a while
            return logits.float()

    @cached_property
    def _few_rows(self) -> Callable[[Tensor], Tensor] | None:
        return few_rows_of(self.linear)


class CachedDecoding:
    """Decoding with a key-value cache.

    Args:
        start_cache: creates an empty cache for a number of rows.
    """

    def __init__(
        self, decoder: PreparedDecoder, output: PreparedOutput, start_cache: Callable[[int], DecodingCache]
    ) -> None:
        self.decoder, self.output, self.start_cache = decoder, output, start_cache

    def start(self, prompts: Sequence[np.ndarray]) -> Tensor:
        """As `Decoding.start`."""
        self.cache = self.start_cache(len(prompts))
        lengths = np.array([len(prompt) for prompt in prompts], np.int64)
        hidden = self.decoder(np.concatenate(prompts).astype(np.int64), lengths, self.cache)
        return self.output(hidden[send(torch.from_numpy(np.cumsum(lengths) - 1), hidden.device)])

    def step(self, tokens: np.ndarray, parents: np.ndarray) -> Tensor:
        """As `Decoding.step`."""
        self.cache.take(parents)
        return self.output(self.decoder(tokens.astype(np.int64), np.ones(len(tokens), np.int64), self.cache))
