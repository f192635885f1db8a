"""One pass of the encoder for several heads of models with the same trunk."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch, collate
from bertkit.errors import UsageError
from bertkit.model.model import Model
from bertkit.transformer import Encoder, PreparedEncoder
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.prepared.weight_versions import WeightVersions

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
    (first_name, first), *others = models.items()
    for name, model in others:
        if difference := _difference(first, model):
            raise UsageError(
                f"{name} has not the trunk of {first_name}: {difference}; expected heads that were trained over the "
                "same frozen encoder"
            )
    prepared = first._runner.encoder
    states, before = dict[_Key, Tensor](), [(model, model._prepared) for model in models.values()]
    for model, _ in before:
        model._prepared = _Trunk(prepared, model.encoder, WeightVersions(model.encoder), states)
    try:
        yield
    finally:
        for model, own in before:
            model._prepared = own


def _difference(first: Model, other: Model) -> str | None:
    """What differs between the trunks of two models."""
    if first.config != other.config:
        return "the configs differ"
    if (first.precision, first.device) != (other.precision, other.device):
        return f"{other.precision} on {other.device} instead of {first.precision} on {first.device}"
    weights = dict(other.encoder.named_parameters())
    for name, weight in first.encoder.named_parameters():
        if not name.startswith(_POOLER) and (name not in weights or not torch.equal(weight, weights[name])):
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
    weights: WeightVersions
    states: dict[_Key, Tensor]  # last hidden states of each sequence that was computed

    def fits(self, encoder: nn.Module) -> bool:
        """See `PreparedEncoder.fits`."""
        return encoder is self.encoder and self.weights.are_unchanged()

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """See `PreparedEncoder.__call__`; all hidden states are computed, for the other heads."""
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
        ids, types = batch.input_ids.cpu().numpy(), batch.token_type_ids.cpu().numpy()
        parts = [slice(start, end) for start, end in pairwise(batch.cu_seqlens.tolist())]
        sequences = {(ids[part].tobytes(), types[part].tobytes()): _Sequence(ids[part], types[part]) for part in parts}
        missing = {key: each for key, each in sequences.items() if key not in self.states}
        if missing:
            packed = collate(list(missing.values())).to(batch.input_ids.device)
            hidden = self.prepared(packed, with_pooled=False).last_hidden_state
            self.states.update(zip(missing, hidden.split([len(each) for each in missing.values()]), strict=True))
        return torch.cat([self.states[ids[part].tobytes(), types[part].tobytes()] for part in parts])
