"""Decoders prepared for generation at a precision: packed weights, fused steps, and a cache of keys and values.

Shape letters: N new tokens of all rows, R rows, S source tokens, D hidden_size.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.device import PRECISIONS as ALL_PRECISIONS
from bertkit.device import product_dtype
from bertkit.errors import UsageError
from bertkit.executor import on_one_core
from bertkit.transformer.decoding_cache import DecodingCache
from bertkit.transformer.few_rows.prepared import FewRows, are_few
from bertkit.transformer.kernels.key_value_cache import CompiledKeyValueCache, KeyValueCache
from bertkit.transformer.kernels.row_invariance import product_row_count
from bertkit.transformer.prepared.float_steps import GenerationSteps, generation_kernels_for
from bertkit.transformer.prepared.layer import PreparedLayers

PRECISIONS = tuple(name for name in ALL_PRECISIONS if name != "float64")


class PreparedDecoder:
    """A causal encoder, or the decoder of an encoder-decoder model, for one or more new tokens of each row at a time.

    Contains copies of the current weights. On the CPU a row is bit-identical regardless of the other rows. On a GPU no
    call waits for it.

    Args:
        stack: a module with ``embeddings``, ``in_order()`` and ``config``.
        precision: one of PRECISIONS; weights in float64 have their own.

    Raises:
        UsageError: another precision, one that the device of the weights does not support, or layers with
            positions of their own, gates or norms of heads.
    """

    def __init__(self, stack: Any, precision: str = "float32") -> None:
        weight = stack.embeddings.word.weight
        if weight.dtype == torch.float64:
            precision = "float64"
        elif precision not in PRECISIONS:
            raise UsageError(f"precision={precision!r}: generation runs in {', '.join(PRECISIONS)}")
        self.kernels = generation_kernels_for(precision, weight.device)
        self.dtype, self.device = product_dtype(precision, weight.dtype), weight.device
        self.config, self.embeddings = stack.config, stack.embeddings
        with torch.inference_mode():
            self.stack = PreparedLayers(stack, GenerationSteps(self.kernels, self.dtype))
        self.layers = self.stack.layers
        config = stack.config.layer(0)
        if (config.positions, config.gate, config.has_head_norms) != (None, "none", False):
            raise UsageError(
                f"a decoder with positions={config.positions!r}, gate={config.gate!r} and has_head_norms="
                f"{config.has_head_norms}: expected None, 'none' and False, as in GPT-2; others do not generate"
            )
        # Reading keys and values takes half of a long step with weights in 8 bits.
        is_rounded = precision == "int8" and self.kernels.cache is CompiledKeyValueCache
        self._cache_dtype = torch.bfloat16 if is_rounded else self.dtype

    @torch.inference_mode()
    def start(
        self,
        num_rows: int,
        source: Tensor | None = None,
        source_seqlens: Sequence[int] = (),
        source_rows: Sequence[int] = (),
    ) -> DecodingCache:
        """An empty cache for rows.

        Args:
            source: (S, D) hidden states of an encoder, for a decoder that attends to them.
            source_seqlens: tokens of each source.
            source_rows: (R,) index of the source of each row.
        """
        own = self._empty_cache(num_rows)
        if source is None:
            return DecodingCache(num_rows, own)
        sources = self._empty_cache(len(source_seqlens))
        cu_source = np.cumsum([0, *source_seqlens], dtype=np.int64)
        sources.begin_append(cu_source, np.zeros(len(source_seqlens), np.int64))
        for number, layer in enumerate(self.layers):
            sources.append(number, layer.cross_key_value(source.to(self.dtype)), 0)
        return DecodingCache(num_rows, own, sources, source_seqlens, source_rows)

    def _empty_cache(self, num_rows: int) -> KeyValueCache:
        config = self.config
        sizes = len(self.layers), num_rows, config.num_attention_heads, config.head_dim
        return self.kernels.cache(*sizes, self._cache_dtype, self.device)

    @torch.inference_mode()
    def __call__(self, input_ids: np.ndarray, num_new: np.ndarray, cache: DecodingCache) -> Tensor:
        """Hidden states (N, D) of the new tokens, which are added to the cache.

        Args:
            input_ids: (N,) int64, concatenated by row.
            num_new: (R,) int64, number of new tokens of each row, at least 1.

        Raises:
            UsageError: more tokens than the model has positions, or an id outside the vocabulary.
        """
        cu_new = np.concatenate([[0], np.cumsum(num_new)])
        position_ids = np.arange(len(input_ids)) + np.repeat(cache.lengths - cu_new[:-1], num_new)
        ids = torch.from_numpy(input_ids)
        batch = Batch(
            ids, torch.zeros_like(ids), torch.from_numpy(position_ids), torch.from_numpy(cu_new.astype(np.int32)),
            int(num_new.max()), int(position_ids.max()) + 1,
        )  # fmt: skip
        self.embeddings.check(batch)  # on the CPU: a GPU stops at an id without a row
        cache.begin(num_new)
        return self.encode(batch.to(self.device), cache)

    def encode(self, batch: Batch, cache: DecodingCache) -> Tensor:
        """Hidden states (T, D) of a batch on the device of the weights, in the dtype of the products."""
        num_tokens = len(batch.input_ids)
        few_rows = self._few_rows if are_few(num_tokens, self.layers) else None
        is_filled = self.device.type == "cpu" and few_rows is None
        rows = batch.filled(product_row_count(num_tokens)) if is_filled else batch
        with on_one_core() if few_rows else nullcontext():  # OpenMP's threads keep cores busy for a while
            hidden = self.embeddings.look_up(rows).to(self.dtype)
        if few_rows is None:
            return self.stack(hidden, cache).read[:num_tokens]
        state = self.stack.steps.begin(hidden, self.stack.norms[0])
        hidden, final_norm = few_rows(state.stream, cache, state.read), self.stack.norms[-1]
        return (hidden if final_norm is None else final_norm(hidden))[:num_tokens]

    @cached_property
    def _few_rows(self) -> FewRows | None:
        return FewRows.of_decoder(self.layers) if self.kernels.cache is CompiledKeyValueCache else None
