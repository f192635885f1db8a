"""One pass of the encoder for several heads of models with the same trunk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bertkit.architectures import Network
from bertkit.batch import Batch, collate
from bertkit.errors import UsageError
from bertkit.later import Tensor
from bertkit.model.model import Model
from bertkit.transformer import Encoder, PreparedEncoder
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.kernels.arrays import are_equal, array, library_of, split
from bertkit.transformer.kernels.inference import without_gradients
from bertkit.transformer.modules import ArrayModule, nn
from bertkit.transformer.prepared.encoder import weight_versions

_POOLER = "pooler."
"""Parameters of encoders that belong to heads: each model uses its own."""


@contextmanager
def one_pass(**models: Model) -> Iterator[None]:
    """Within it, methods of these models compute each sequence of tokens once, for all of them.

    Results have the same bits as without it. Hidden states stay in memory until it ends: give a large collection in
    parts, each in its own ``with``. One at a time for a model.

    Args:
        models: at least two, such as ``tagger=..., topics=...``, fine-tuned with a frozen trunk, so that all weights
            of their encoders, except poolers, are equal.

    Raises:
        UsageError: fewer than two models, or one whose trunk, precision or device differs, by name.
    """
    if len(models) < 2:
        raise UsageError(f"{len(models)} models: expected at least two")
    networks = {name: model.inference_network for name, model in models.items()}
    if not all(isinstance(network, ArrayModule) for network in networks.values()):
        networks = {name: model.network for name, model in models.items()}
    (first_name, first), *others = models.items()
    for name, model in others:
        if difference := _difference(first, model) or _difference_of_weights(networks[first_name], networks[name]):
            raise UsageError(
                f"{name} has not the trunk of {first_name}: {difference}; expected heads that were trained over the "
                "same frozen encoder"
            )
    prepared, states = first._runner_of(networks[first_name]).encoder, dict[_Key, Tensor]()
    before = {name: model._prepared for name, model in models.items()}
    for name, model in models.items():
        encoder = networks[name].encoder
        model._prepared = _Trunk(prepared, encoder, weight_versions(encoder), states)
    try:
        yield
    finally:
        for name, model in models.items():
            model._prepared = before[name]


def _difference(first: Model, other: Model) -> str | None:
    """What differs between the settings of two models."""
    if first.config != other.config:
        return "the configs differ"
    if (first.precision, first.device) != (other.precision, other.device):
        return f"{other.precision} on {other.device} instead of {first.precision} on {first.device}"
    return None


def _difference_of_weights(first: Network, other: Network) -> str | None:
    """The weights that differ between the trunks of two networks."""
    weights = dict(other.encoder.named_parameters())
    for name, weight in first.encoder.named_parameters():
        if not name.startswith(_POOLER) and not are_equal(weight, weights.get(name)):
            return f"the weights {name} differ"
    return None


_Key = tuple[bytes, bytes]
"""Ids and token types of a sequence."""


@dataclass(frozen=True)
class _Sequence:
    """A sequence for `collate`."""

    input_ids: np.ndarray
    token_type_ids: np.ndarray

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, eq=False)
class _Trunk:
    """The prepared encoder of the first model with the pooler of one model; see `PreparedEncoder`."""

    prepared: Encoder | PreparedEncoder
    encoder: Encoder
    weights: Any  # `WeightVersions`; None for arrays
    states: dict[_Key, Tensor]  # last hidden states of each sequence that was computed

    def fits(self, encoder: nn.Module) -> bool:
        """See `PreparedEncoder.fits`."""
        return encoder is self.encoder and (self.weights is None or self.weights.are_unchanged())

    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """See `PreparedEncoder.__call__`; all hidden states are computed, for the other heads."""
        with without_gradients():
            return self._output(batch, with_hidden_states, with_pooled)

    def _output(self, batch: Batch, with_hidden_states: bool, with_pooled: bool) -> EncoderOutput:
        if with_hidden_states:
            output = self.prepared(batch, with_hidden_states=True, with_pooled=False)
            last, inner = output.last_hidden_state, output.hidden_states
        else:
            last, inner = self._last(batch), None
        pooler = self.encoder.pooler
        with inference_kernels():
            pooled = None if pooler is None or not with_pooled else pooler(last[batch.first_tokens])
        return EncoderOutput(last, pooled, inner)

    def _last(self, batch: Batch) -> Tensor:
        ids, types = (
            array(row if batch.is_in_arrays else row.cpu()) for row in (batch.input_ids, batch.token_type_ids)
        )
        parts = [slice(start, end) for start, end in pairwise(batch.cu_seqlens.tolist())]
        sequences = {(ids[part].tobytes(), types[part].tobytes()): _Sequence(ids[part], types[part]) for part in parts}
        missing = {key: each for key, each in sequences.items() if key not in self.states}
        if missing:
            packed = collate(list(missing.values()), in_arrays=batch.is_in_arrays)
            packed = packed if batch.is_in_arrays else packed.to(batch.input_ids.device)
            hidden = self.prepared(packed, with_pooled=False).last_hidden_state
            self.states.update(zip(missing, split(hidden, [len(each) for each in missing.values()]), strict=True))
        states = [self.states[ids[part].tobytes(), types[part].tobytes()] for part in parts]
        return library_of(states[0]).concatenate(states)
