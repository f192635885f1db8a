"""An encoder of any family prepared for inference at a precision.

Shape letters: T total_tokens, D hidden_size.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.device import device_of, product_dtype
from bertkit.later import nn, torch
from bertkit.transformer.embeddings import Embeddings
from bertkit.transformer.encoder import Encoder
from bertkit.transformer.few_rows.prepared import FewRows, are_few
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.arrays import Rows, converted, empty
from bertkit.transformer.kernels.choices import multiplies_panels_fast
from bertkit.transformer.kernels.dispatch import Kernels, kernels_for
from bertkit.transformer.kernels.inference import inference_kernels, without_gradients
from bertkit.transformer.kernels.row_invariance import row_count
from bertkit.transformer.layer_config import RotaryPositions
from bertkit.transformer.modules import ArrayModule
from bertkit.transformer.prepared.float_steps import FloatSteps, GenerationSteps, generation_kernels_for
from bertkit.transformer.prepared.int8_steps import Int8Steps
from bertkit.transformer.prepared.layer import Attention, PreparedLayer, PreparedLayers
from bertkit.transformer.rotary import Rotary


class WholeSequences(Attention):
    """Attention within the sequences of a batch.

    Args:
        rotary: angles of the tokens.
        distinct: tokens whose rows before the first layer differ, and for each token the index of its own among these,
            for one product of equal rows; None: all are multiplied.
    """

    def __init__(
        self, batch: Batch, rotary: dict[RotaryPositions, Rotary], distinct: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        self.batch, self.rotary, self.distinct = batch, rotary, distinct

    def inputs(self, number: int, layer: PreparedLayer, read: Any) -> Any:
        if number or self.distinct is None:
            return super().inputs(number, layer, read)
        tokens, row_of = self.distinct
        return super().inputs(number, layer, read[tokens])[row_of]

    def attend(self, number: int, layer: PreparedLayer, query_key_value: Any) -> Any:
        positions = layer.positions
        rotary = self.rotary[positions] if isinstance(positions, RotaryPositions) else None
        return layer.steps.attend(layer, query_key_value, self.batch, rotary)


def runs_in_arrays(encoder: Any, precision: str) -> bool:
    """Whether an encoder with arrays is prepared without torch: at a precision whose products are compiled."""
    return isinstance(encoder, ArrayModule) and multiplies_panels_fast(precision)


def weight_versions(encoder: Any) -> Any:
    """The `WeightVersions` of an encoder; None for one with arrays, whose weights do not change."""
    if isinstance(encoder, ArrayModule):
        return None
    from bertkit.transformer.prepared.weight_versions import WeightVersions

    return WeightVersions(encoder)


class PreparedTransformer:
    """An encoder prepared for inference.

    Contains copies of the current weights; `fits` checks whether the encoder's weights have changed.

    Args:
        precision: "float32" or "float64", the dtype of the encoder's weights; "bfloat16" or "float16": for products
            and hidden states; "int8": for products.
        kernels: None: the fastest on this machine.

    Raises:
        UsageError: int8 on a device that is not the CPU, or float16 on the CPU.
    """

    def __init__(self, encoder: Encoder, precision: str = "float32", kernels: Kernels | None = None) -> None:
        self.encoder, self._weights = encoder, weight_versions(encoder)
        with without_gradients():
            self.steps = _steps_for(encoder, precision, kernels)
            self.stack = PreparedLayers(encoder, self.steps)
            self.layers = self.stack.layers
            self.embeddings = self.steps.embeddings(encoder.embeddings, self.stack.is_pre_norm)
            of_words = isinstance(encoder.embeddings, Embeddings) and encoder.embeddings.are_of_words
        self._repeats_rows = of_words and isinstance(self.steps, FloatSteps)
        self.rotary = encoder.rotary(encoder.config.max_position_embeddings)

    def fits(self, encoder: nn.Module) -> bool:
        """True if the weights are unchanged since preparation."""
        return encoder is self.encoder and (self._weights is None or self._weights.are_unchanged())

    def share(self, other: PreparedTransformer) -> None:
        """Use the prepared products of another encoder of the same shape and precision where the weights are equal,
        so that they are in memory once; before the first call."""
        layers = zip(self.layers, other.layers, self.encoder.in_order(), other.encoder.in_order(), strict=True)
        for own, others, module, other_module in layers:
            own.share(others, module, other_module)

    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False,
        rows: Any = None,
    ) -> EncoderOutput:  # fmt: skip
        """As the encoder's forward in evaluation; hidden states have the dtype of the encoder's weights, and are arrays
        or tensors as the batch is.

        On the CPU hidden states are bit-identical regardless of the other sequences of the batch.
        """
        with without_gradients():
            return self._encoded(batch, with_hidden_states, with_pooled, batch.first_tokens if first_only else rows)

    def _encoded(self, batch: Batch, with_hidden_states: bool, with_pooled: bool, rows: Any) -> EncoderOutput:
        num_tokens = len(batch.input_ids)
        is_few = not with_hidden_states and are_few(num_tokens, self.layers)
        few_rows = self._few_rows if is_few else None
        filled = in_row_counts(batch) if few_rows is None else batch
        embedded, streams = self.embeddings(filled), [] if with_hidden_states else None
        sequences = WholeSequences(
            filled,
            {kind: angles.at(filled.position_ids) for kind, angles in self.rotary.items()},
            distinct_tokens(filled) if self._repeats_rows and few_rows is None else None,
        )
        if few_rows is not None:
            state = self.steps.begin(embedded, self.stack.norms[0])
            rows = None
            last = few_rows(state.stream, filled, self.steps.floats_of(state.read), list(sequences.rotary.values()))
        else:
            rows = None if with_hidden_states or not self.layers else rows
            state = self.stack(embedded, sequences, last_rows=rows, streams=streams)
            last = self.steps.floats_of(state.read)
        last = self._plain(last, num_tokens)
        if rows is not None:
            read, last = last, empty(last, num_tokens, last.shape[1])
            last[:] = 0
            last[rows] = read
        pooler = self.encoder.pooler
        with inference_kernels():
            pooled = None if pooler is None or not with_pooled else pooler(last[batch.first_tokens])
        inner = None if streams is None else [self._plain(stream, num_tokens) for stream in streams[:-1]]
        return EncoderOutput(last, pooled, None if inner is None else [*inner, last])

    @cached_property
    def _few_rows(self) -> FewRows | None:
        layers, config = self.layers, self.encoder.config.layer(0)
        if not layers or isinstance(self.steps, GenerationSteps) or config.norm == "rms" or config.has_head_norms:
            return None
        if not layers[0].is_gated:
            return None if self.rotary or self.stack.is_pre_norm else FewRows.of_plain(layers)
        norms = [layer.norms(after) for layer, after in zip(layers, self.stack.norms[1:], strict=True)]
        kinds: list[Any] = list(self.rotary)
        return FewRows.of(
            layers,
            norms,
            [kinds.index(layer.positions) for layer in layers],
            [layer.window for layer in layers],
            is_pre_norm=layers[0].is_pre_norm,
            is_gated=True,
            has_norm_bias=self.encoder.config.has_norm_biases,
        )

    def _plain(self, hidden: Rows, num_tokens: int) -> Rows:
        return converted(hidden[:num_tokens], self.encoder.embeddings.word.weight.dtype)


def _steps_for(encoder: Encoder, precision: str, kernels: Kernels | None) -> FloatSteps | Int8Steps:
    weight = encoder.embeddings.word.weight
    device = device_of(weight)
    if isinstance(weight, np.ndarray):
        dtype: Any = np.uint16 if precision == "bfloat16" else np.float32
    else:
        precision = "float64" if weight.dtype == torch.float64 else precision
        dtype = product_dtype(precision, weight.dtype)
    layer = encoder.config.layer(0)
    if layer.is_pre_norm and layer.has_norm_biases:  # GPT-2's, with the bits of its steps
        return GenerationSteps(kernels or generation_kernels_for(precision, device), dtype)
    kernels = kernels or kernels_for(precision, device)
    return Int8Steps(kernels) if precision == "int8" else FloatSteps(kernels, dtype)


def distinct_tokens(batch: Batch) -> tuple[np.ndarray, np.ndarray] | None:
    """Indices of a token of each id, and for each token the index of its id among these; None if few ids repeat, or on
    another device than the CPU."""
    if device_of(batch.input_ids).type != "cpu":
        return None
    _, tokens, row_of = np.unique(np.asarray(batch.input_ids), return_index=True, return_inverse=True)
    return (tokens, row_of) if len(tokens) < 0.8 * len(row_of) else None


def in_row_counts(batch: Batch) -> Batch:
    """A batch padded on the CPU to one of the row counts of products."""
    return batch.filled(row_count(len(batch.input_ids))) if device_of(batch.input_ids).type == "cpu" else batch
