"""Decoders prepared for generation at a precision: packed weights, fused steps, and a cache of keys and values.

Shape letters: N new tokens of all rows, R rows, S source tokens, D hidden_size.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.device import PRECISIONS as ALL_PRECISIONS
from bertkit.device import product_dtype
from bertkit.errors import UsageError
from bertkit.executor import on_one_core
from bertkit.transformer.decoding_cache import DecodingCache
from bertkit.transformer.few_rows.panel_linear import PanelLinear
from bertkit.transformer.few_rows.prepared import FewRows
from bertkit.transformer.few_rows.tiles import TILE_ROWS
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels import joined
from bertkit.transformer.kernels.dispatch import Kernels, kernels_for
from bertkit.transformer.kernels.key_value_cache import CompiledKeyValueCache, KeyValueCache
from bertkit.transformer.kernels.linear import WidenedLinear
from bertkit.transformer.kernels.llvm_vectors import has_fused_multiplication
from bertkit.transformer.kernels.rounded_linear import RoundedLinear
from bertkit.transformer.kernels.row_invariance import product_row_count
from bertkit.transformer.layer import DecoderLayer, EncoderLayer, PreNormLayer
from bertkit.transformer.prepared import WeightsAsTheyAre
from bertkit.transformer.window import CAUSAL

PRECISIONS = tuple(name for name in ALL_PRECISIONS if name != "float64")


class _PreparedLayer:
    """A decoder layer with weights in the dtype of the products, and fused residuals."""

    def __init__(self, layer: EncoderLayer, activation: str, kernels: Kernels, dtype: torch.dtype) -> None:
        def prepared(weight: Tensor, bias: Tensor) -> Any:
            return kernels.linear(weight.to(dtype), bias.to(dtype))

        self.query_key_value, self.output, self.expand, self.project = (
            prepared(weight, bias) for weight, bias in layer.linears()
        )
        self.attention_norm = kernels.norm(layer.attention_norm, dtype)
        self.feed_forward_norm = kernels.norm(layer.feed_forward_norm, dtype)
        self.is_pre_norm, self.activation = isinstance(layer, PreNormLayer), activation
        self.linears = [self.query_key_value, self.output, self.expand, self.project]  # of a step
        self.is_cross = isinstance(layer, DecoderLayer)
        if isinstance(layer, DecoderLayer):
            cross = layer.cross_attention
            self.cross_query = prepared(cross.query.weight, cross.query.bias)
            self.cross_key_value = prepared(*joined((cross.key, cross.value)))
            self.cross_output = prepared(cross.output.weight, cross.output.bias)
            self.cross_norm = kernels.norm(layer.cross_attention_norm, dtype)
            self.linears += [self.cross_query, self.cross_output]

    def __call__(self, hidden: Tensor, cache: "DecodingCache | WholeSequences", number: int) -> Tensor:
        """(N, D) to (N, D) in a step that the cache has begun; ``number`` is the index of the layer."""
        query_key_value = self.query_key_value(self.attention_norm(hidden.clone()) if self.is_pre_norm else hidden)
        cache.own.append(number, query_key_value, hidden.shape[1])
        hidden = self.output(cache.own.attend(number, query_key_value), residual=hidden)
        if self.is_pre_norm:
            normed = self.feed_forward_norm(hidden.clone())
            return self.project(self.expand(normed, activation=self.activation), residual=hidden)
        hidden = self.attention_norm(hidden)
        if cache.sources is not None:
            context = cache.sources.attend(number, self.cross_query(hidden))
            hidden = self.cross_norm(self.cross_output(context, residual=hidden))
        return self.feed_forward_norm(self.project(self.expand(hidden, activation=self.activation), residual=hidden))


def decoder_kernels(precision: str, device: torch.device, *, in_steps: bool) -> Kernels:
    """Kernels of one of PRECISIONS on a device; with int8, everything but products is in float32.

    Args:
        in_steps: for one token of each row at a time, which takes as long as reading the weights.

    Raises:
        UsageError: int8 on a device that is not the CPU, or float16 on the CPU.
    """
    kernels = kernels_for(precision, device)
    if precision == "int8":
        return kernels_for("float32", device)._replace(linear=RoundedLinear)
    if in_steps and kernels.linear is WidenedLinear and has_fused_multiplication():
        return kernels._replace(linear=_narrow_linear)
    return kernels


def _narrow_linear(weight: Tensor, bias: Tensor | None) -> PanelLinear | WidenedLinear:
    return (PanelLinear if PanelLinear.fits(weight) else WidenedLinear)(weight, bias)


class PreparedDecoder:
    """A causal encoder, or the decoder of an encoder-decoder model, for one or more new tokens of each row at a time.

    Contains copies of the current weights. On the CPU a row is bit-identical regardless of the other rows. On a GPU no
    call waits for it.

    Args:
        stack: a module with ``embeddings``, ``in_order()`` and ``config``.
        final_norm: normalization after the last layer, if there is one.
        precision: one of PRECISIONS; weights in float64 have their own.
        in_steps: as of `decoder_kernels`.

    Raises:
        UsageError: another precision, or one that the device of the weights does not support.
    """

    def __init__(
        self,
        stack: Any,
        precision: str = "float32",
        final_norm: nn.LayerNorm | None = None,
        *,
        in_steps: bool = True,
    ) -> None:
        weight = stack.embeddings.word.weight
        if weight.dtype == torch.float64:
            precision = "float64"
        elif precision not in PRECISIONS:
            raise UsageError(f"precision={precision!r}: generation runs in {', '.join(PRECISIONS)}")
        self.kernels, self.in_steps = decoder_kernels(precision, weight.device, in_steps=in_steps), in_steps
        self.dtype, self.device = product_dtype(precision, weight.dtype), weight.device
        self.config, self.embeddings = stack.config, stack.embeddings
        with torch.inference_mode():
            layers, activation = stack.in_order(), stack.config.hidden_act
            self.layers = [_PreparedLayer(layer, activation, self.kernels, self.dtype) for layer in layers]
            self.final_norm = None if final_norm is None else self.kernels.norm(final_norm, self.dtype)
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

    def encode(self, batch: Batch, cache: "DecodingCache | WholeSequences") -> Tensor:
        """Hidden states (T, D) of a batch on the device of the weights, in the dtype of the products."""
        num_tokens = len(batch.input_ids)
        rows = batch.filled(product_row_count(num_tokens)) if self.device.type == "cpu" else batch
        few_rows = self._few_rows if len(rows.input_ids) in TILE_ROWS else None
        with on_one_core() if few_rows else nullcontext():  # OpenMP's threads keep cores busy for a while
            hidden = self.embeddings.look_up(rows).to(self.dtype)
        if few_rows is not None and isinstance(cache, DecodingCache):
            first = self.layers[0]
            normed = first.attention_norm(hidden.clone()) if first.is_pre_norm else None
            hidden = few_rows(hidden, cache, normed)
        else:
            for number, layer in enumerate(self.layers):
                hidden = layer(hidden, cache, number)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return hidden[:num_tokens]

    @cached_property
    def _few_rows(self) -> FewRows | None:
        is_known = self.in_steps and self.kernels.cache is CompiledKeyValueCache
        return FewRows.of_decoder(self.layers) if is_known else None


class WholeSequences:
    """Attention within the sequences of a batch, with the interface of a cache."""

    sources = None

    def __init__(self, batch: Batch, num_heads: int, attention: Callable[..., Tensor]) -> None:
        self.own, self.batch, self.num_heads, self.attention = self, batch, num_heads, attention

    def append(self, number: int, rows: Tensor, column: int) -> None:
        """As `PlainKeyValueCache.append`: nothing to keep."""

    def attend(self, number: int, rows: Tensor) -> Tensor:
        """As `PlainKeyValueCache.attend`."""
        return self.attention(rows, self.batch, self.num_heads, window=CAUSAL)


class PreparedCausalEncoder:
    """`PreparedBertEncoder` for causal encoders, for whole sequences, without hidden states of layers."""

    def __init__(self, encoder: Any, precision: str = "float32") -> None:
        self.encoder, self._weights = encoder, WeightsAsTheyAre(encoder)
        self.decoder = PreparedDecoder(encoder, precision, encoder.final_norm, in_steps=False)

    def fits(self, encoder: nn.Module) -> bool:
        """True if the weights are unchanged since preparation."""
        return encoder is self.encoder and self._weights.are_unchanged()

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """As the encoder's forward in evaluation, for all tokens."""
        if with_hidden_states:
            return self.encoder(batch, with_hidden_states=with_hidden_states, with_pooled=with_pooled)
        decoder = self.decoder
        sequences = WholeSequences(batch, decoder.config.num_attention_heads, decoder.kernels.attention)
        return EncoderOutput(decoder.encode(batch, sequences).to(self.encoder.embeddings.word.weight.dtype), None)
