"""One pass of the encoder for several heads of models with the same trunk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.inference import Runner
from bertkit.model.model import Model
from bertkit.tokenizer import Encodings
from bertkit.transformer import Encoder, PreparedEncoder
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels import inference_kernels

_POOLER = "pooler."
"""Parameters of encoders that belong to heads: each model uses its own."""


class SharedTrunk:
    """Models whose encoders are equal, except poolers, such as those fine-tuned with a frozen trunk.

    Args:
        models: by the names in errors.

    Raises:
        UsageError: a model whose trunk, precision or device differs from that of the first one, by name.
    """

    def __init__(self, models: Mapping[str, Any]) -> None:
        self._models = dict(models)
        (first_name, first), *others = self._models.items()
        self._base: Runner = first._runner
        for name, model in others:
            if difference := _difference(first, model):
                raise UsageError(
                    f"{name} has not the trunk of {first_name}: {difference}; expected heads that were trained over "
                    "the same frozen encoder"
                )

    def one_pass(self) -> dict[str, Model]:
        """Copies of the models that compute each sequence of tokens once, for all of them, with the same bits.

        Hidden states stay in memory as long as the copies.
        """
        states = dict[_Key, Tensor]()
        return {name: _Head(model, self._base, states) for name, model in self._models.items()}


def _difference(first: Model, other: Model) -> str | None:
    """What differs between the trunks of two models."""
    if first.config != other.config:
        return "the configs differ"
    if (first.precision, first.device) != (other.precision, other.device):
        return f"{other.precision} on {other.device} instead of {first.precision} on {first.device}"
    weights = dict(other.encoder.named_parameters())
    for name, weight in first.encoder.named_parameters():
        if not name.startswith(_POOLER) and (name not in weights or not _are_equal(weight, weights[name])):
            return f"the weights {name} differ"
    return None


def _are_equal(weight: Tensor, other: Tensor) -> bool:
    is_same_memory = (weight.data_ptr(), weight.shape, weight.stride()) == (
        other.data_ptr(), other.shape, other.stride()
    )  # fmt: skip
    return is_same_memory or torch.equal(weight, other)


_Key = tuple[bytes, bytes]
"""Ids and token types of a sequence."""


class _Head(Model):
    """A model that reads the hidden states of a pass."""

    def __init__(self, model: Model, base: Runner, states: dict[_Key, Tensor]) -> None:
        super().__init__(model.checkpoint, model.precision, model.precision_reason, model._opened_extractor)
        trunk: Any = _Trunk(base.encoder, model.encoder, states)
        self._reader = _Reader(model.network, model.tokenizer, trunk, base=base, states=states)

    @property
    def _runner(self) -> Runner:
        return self._reader

    @property
    def _array_runner(self) -> Runner:
        return self._reader

    def _runner_for(self, head: str) -> Runner:
        return self._reader


@dataclass(frozen=True)
class _Reader(Runner):
    """A runner that first computes the hidden states that no head has asked for yet, with the runner of the trunk."""

    base: Runner = field(kw_only=True)
    states: dict[_Key, Tensor] = field(kw_only=True, compare=False)  # last hidden states of each sequence

    def run(self, encodings: Encodings, forward: Callable[[Batch, np.ndarray], Tensor], **options: Any) -> Tensor:
        """See `Runner.run`."""
        keys = _keys(encodings.input_ids, encodings.token_type_ids, encodings.cu_seqlens.tolist())
        missing = {key: index for index, key in enumerate(keys) if key not in self.states}
        if missing:
            part = encodings.take(np.array(list(missing.values())))

            def hidden(batch: Batch, indices: np.ndarray) -> Tensor:
                return self.base.encoder(batch, with_pooled=False).last_hidden_state

            rows = self.base.run(part, hidden, rows_per_sequence=part.seqlens)
            self.states.update(zip(missing, rows.split(part.seqlens.tolist()), strict=True))
        return super().run(encodings, forward, **options)


@dataclass(frozen=True, eq=False)
class _Trunk:
    """The hidden states of a pass, with the pooler of one model; see `PreparedEncoder`."""

    prepared: Encoder | PreparedEncoder
    encoder: Encoder
    states: dict[_Key, Tensor]

    def fits(self, encoder: nn.Module) -> bool:
        """See `PreparedEncoder.fits`."""
        return encoder is self.encoder

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """See `PreparedEncoder.__call__`; inner hidden states are computed again."""
        if with_hidden_states:
            output = self.prepared(batch, with_hidden_states=True, with_pooled=False)
            last, inner = output.last_hidden_state, output.hidden_states
        else:
            ids, types = batch.input_ids.cpu().numpy(), batch.token_type_ids.cpu().numpy()
            keys = _keys(ids, types, batch.cu_seqlens.tolist())
            last, inner = torch.cat([self.states[key] for key in keys]), None
        pooler = self.encoder.pooler
        with inference_kernels():
            pooled = None if pooler is None or not with_pooled else pooler(last[batch.first_tokens])
        return EncoderOutput(last, pooled, inner)


def _keys(ids: np.ndarray, types: np.ndarray, bounds: list[int]) -> list[_Key]:
    ids, types = ids.astype(np.int32, copy=False), types.astype(np.int32, copy=False)
    return [(ids[start:end].tobytes(), types[start:end].tobytes()) for start, end in pairwise(bounds)]
