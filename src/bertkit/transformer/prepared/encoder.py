"""An encoder of any family prepared for inference at a precision.

Shape letters: T total_tokens, D hidden_size.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.device import product_dtype
from bertkit.transformer.encoder import Encoder
from bertkit.transformer.few_rows.prepared import FewRows, is_few
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.kernels.dispatch import Kernels, kernels_for
from bertkit.transformer.kernels.row_invariance import row_count
from bertkit.transformer.layer_config import RotaryPositions
from bertkit.transformer.prepared.float_steps import FloatSteps, GenerationSteps, generation_kernels_for
from bertkit.transformer.prepared.int8_steps import Int8Steps
from bertkit.transformer.prepared.layer import Attention, PreparedLayer, PreparedLayers
from bertkit.transformer.prepared.weight_versions import WeightVersions
from bertkit.transformer.rotary import Rotary


class WholeSequences(Attention):
    """Attention within the sequences of a batch.

    Args:
        rotary: angles of the tokens.
    """

    def __init__(self, batch: Batch, rotary: dict[RotaryPositions, Rotary]) -> None:
        self.batch, self.rotary = batch, rotary

    def attend(self, number: int, layer: PreparedLayer, query_key_value: Any) -> Any:
        """As `Attention.attend`."""
        positions = layer.positions
        rotary = self.rotary[positions] if isinstance(positions, RotaryPositions) else None
        return layer.steps.attend(layer, query_key_value, self.batch, rotary)


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
        self.encoder, self._weights = encoder, WeightVersions(encoder)
        with torch.inference_mode():
            self.steps = _steps_for(encoder, precision, kernels)
            self.stack = PreparedLayers(encoder, self.steps)
            self.layers = self.stack.layers
            self.embeddings = self.steps.embeddings(encoder.embeddings, self.stack.is_pre_norm)
            weight = encoder.embeddings.word.weight
            self.rotary = encoder.rotary(torch.arange(encoder.config.max_position_embeddings, device=weight.device))

    def fits(self, encoder: nn.Module) -> bool:
        """True if the weights are unchanged since preparation."""
        return encoder is self.encoder and self._weights.are_unchanged()

    def share(self, other: "PreparedTransformer") -> None:
        """Use the prepared products of another encoder of the same shape and precision where the weights are equal,
        so that they are in memory once; before the first call."""
        layers = zip(self.layers, other.layers, self.encoder.in_order(), other.encoder.in_order(), strict=True)
        for own, others, module, other_module in layers:
            own.share(others, module, other_module)

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """As the encoder's forward in evaluation; hidden states have the dtype of the encoder's weights.

        On the CPU hidden states are bit-identical regardless of the other sequences of the batch.
        """
        num_tokens, filled = len(batch.input_ids), in_row_counts(batch)
        embedded, streams, first_tokens = self.embeddings(filled), [] if with_hidden_states else None, None
        sequences = WholeSequences(
            filled, {kind: angles.at(filled.position_ids) for kind, angles in self.rotary.items()}
        )
        if not with_hidden_states and is_few(filled) and self._few_rows is not None:
            state = self.steps.begin(embedded, self.stack.norms[0])
            last = self._few_rows(
                state.stream, filled, self.steps.floats_of(state.read), list(sequences.rotary.values())
            )
        else:
            first_tokens = batch.first_tokens if first_only and not with_hidden_states and self.layers else None
            state = self.stack(embedded, sequences, last_rows=first_tokens, streams=streams)
            last = self.steps.floats_of(state.read)
        last = self._plain(last, num_tokens)
        if first_tokens is not None:
            last = last.new_zeros(num_tokens, last.shape[1]).index_copy_(0, first_tokens, last)
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

    def _plain(self, hidden: Tensor, num_tokens: int) -> Tensor:
        return hidden[:num_tokens].to(self.encoder.embeddings.word.weight.dtype)


def _steps_for(encoder: Encoder, precision: str, kernels: Kernels | None) -> FloatSteps | Int8Steps:
    weight = encoder.embeddings.word.weight
    precision = "float64" if weight.dtype == torch.float64 else precision
    dtype = product_dtype(precision, weight.dtype)
    layer = encoder.config.layer(0)
    if layer.is_pre_norm and layer.has_norm_biases:  # GPT-2's, with the bits of its steps
        return GenerationSteps(kernels or generation_kernels_for(precision, weight.device), dtype)
    kernels = kernels or kernels_for(precision, weight.device)
    return Int8Steps(kernels) if precision == "int8" else FloatSteps(kernels, dtype)


def in_row_counts(batch: Batch) -> Batch:
    """A batch padded on the CPU to one of the row counts of products."""
    return batch.filled(row_count(len(batch.input_ids))) if batch.input_ids.device.type == "cpu" else batch
