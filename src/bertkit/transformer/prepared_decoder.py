"""Decoders prepared for generation at a precision: packed weights, fused steps, and a cache of keys and values.

Shape letters: N new tokens of all rows, R rows, S source tokens, D hidden_size.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.transformer.decoding_cache import DecodingCache, LayerCache
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels import joined
from bertkit.transformer.kernels.dispatch import Kernels, kernels_for
from bertkit.transformer.kernels.rounded_linear import RoundedLinear
from bertkit.transformer.kernels.row_invariance import product_row_count
from bertkit.transformer.layer import DecoderLayer, EncoderLayer, PreNormLayer
from bertkit.transformer.prepared import WeightsAsTheyAre

PRECISIONS = ("float32", "bfloat16", "int8")


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
        self.has_source = isinstance(layer, DecoderLayer)
        if isinstance(layer, DecoderLayer):
            cross = layer.cross_attention
            self.cross_query = prepared(cross.query.weight, cross.query.bias)
            self.cross_key_value = prepared(*joined((cross.key, cross.value)))
            self.cross_output = prepared(cross.output.weight, cross.output.bias)
            self.cross_norm = kernels.norm(layer.cross_attention_norm, dtype)

    def __call__(self, hidden: Tensor, cu_new: np.ndarray, cache: DecodingCache, number: int) -> Tensor:
        """(N, D) to (N, D); ``number`` is the layer's."""
        own, lengths, every_row = cache.layers[number], cache.lengths, np.arange(len(cache.lengths))
        query_key_value = self.query_key_value(self.attention_norm(hidden.clone()) if self.is_pre_norm else hidden)
        own.append(query_key_value, hidden.shape[1], cu_new, lengths)
        context = own.attend(query_key_value, cu_new, lengths, every_row, True)
        hidden = self.output(context, residual=hidden)
        if self.is_pre_norm:
            normed = self.feed_forward_norm(hidden.clone())
            return self.project(self.expand(normed, activation=self.activation), residual=hidden)
        hidden = self.attention_norm(hidden)
        if self.has_source:
            source_lengths = cache.source_lengths[cache.source_rows]
            query, source = self.cross_query(hidden), cache.source_layers[number]
            context = source.attend(query, cu_new, source_lengths, cache.source_rows, False)
            hidden = self.cross_norm(self.cross_output(context, residual=hidden))
        return self.feed_forward_norm(self.project(self.expand(hidden, activation=self.activation), residual=hidden))


def decoder_kernels(precision: str) -> Kernels:
    """Kernels of one of PRECISIONS on the CPU; with int8, everything but products is in float32."""
    kernels = kernels_for("float32" if precision == "int8" else precision, torch.device("cpu"))
    return kernels._replace(linear=RoundedLinear) if precision == "int8" else kernels


class PreparedDecoder:
    """A causal encoder, or the decoder of an encoder-decoder model, for one or more new tokens of each row at a time.

    Contains copies of the current weights. On the CPU a row is bit-identical regardless of the other rows.

    Args:
        stack: a module with ``embeddings``, ``in_order()`` and ``config``.
        final_norm: normalization after the last layer, if there is one.
        precision: one of PRECISIONS.

    Raises:
        UsageError: another precision, or weights that are not on the CPU.
    """

    def __init__(self, stack: Any, precision: str = "float32", final_norm: nn.LayerNorm | None = None) -> None:
        weight = stack.embeddings.word.weight
        if precision not in PRECISIONS or weight.device.type != "cpu":
            raise UsageError(
                f"precision={precision!r} on {weight.device}: generation with a cache runs in "
                f"{', '.join(PRECISIONS)} on the CPU"
            )
        kernels = decoder_kernels(precision)
        self.dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self.config, self.embeddings, self.linear = stack.config, stack.embeddings, kernels.linear
        with torch.inference_mode():
            layers = stack.in_order()
            self.layers = [_PreparedLayer(layer, stack.config.hidden_act, kernels, self.dtype) for layer in layers]
            self.final_norm = None if final_norm is None else kernels.norm(final_norm, self.dtype)

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
        config, crossed = self.config, []
        if source is not None:
            cu_source = np.cumsum([0, *source_seqlens], dtype=np.int64)
            nothing = np.zeros(len(source_seqlens), np.int64)
            for layer in self.layers:
                layer_cache = LayerCache(len(source_seqlens), config.num_attention_heads, config.head_dim, 16)
                layer_cache.append(layer.cross_key_value(source.to(self.dtype)), 0, cu_source, nothing)
                crossed.append(layer_cache)
        return DecodingCache(
            len(self.layers),
            config.num_attention_heads,
            config.head_dim,
            num_rows,
            crossed,
            source_seqlens,
            source_rows,
        )

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
        num_tokens, position_ids = len(input_ids), np.arange(len(input_ids))
        position_ids += np.repeat(cache.lengths - cu_new[:-1], num_new)
        ids = torch.from_numpy(input_ids)
        batch = Batch(
            ids, torch.zeros_like(ids), torch.from_numpy(position_ids), torch.from_numpy(cu_new.astype(np.int32)),
            int(num_new.max()), int(position_ids.max()) + 1,
        )  # fmt: skip
        self.embeddings.check(batch)
        hidden = self.embeddings(batch.filled(product_row_count(num_tokens))).to(self.dtype)
        for number, layer in enumerate(self.layers):
            hidden = layer(hidden, cu_new, cache, number)
        cache.lengths += num_new
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return hidden[:num_tokens]


class PreparedCausalEncoder:
    """`PreparedBertEncoder` for causal encoders, for whole sequences, without hidden states of layers."""

    def __init__(self, encoder: Any, precision: str = "float32") -> None:
        weight = encoder.embeddings.word.weight
        self.encoder, self._weights = encoder, WeightsAsTheyAre(encoder)
        cached = precision in PRECISIONS and weight.device.type == "cpu" and weight.dtype == torch.float32
        self.decoder = PreparedDecoder(encoder, precision, encoder.final_norm) if cached else None

    def fits(self, encoder: nn.Module) -> bool:
        """True if the weights are unchanged since preparation."""
        return encoder is self.encoder and self._weights.are_unchanged()

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """As the encoder's forward in evaluation, for all tokens."""
        if self.decoder is None or with_hidden_states:
            return self.encoder(batch, with_hidden_states=with_hidden_states, with_pooled=with_pooled)
        hidden = self.decoder(
            batch.input_ids.numpy(), np.array(batch.seqlens, np.int64), self.decoder.start(len(batch))
        )
        return EncoderOutput(hidden.to(self.encoder.embeddings.word.weight.dtype), None)
