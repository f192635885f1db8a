"""One pass of the encoder for several heads of models with the same trunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.architectures import Network
from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.inference import Runner
from bertkit.later import Tensor
from bertkit.model.model import Model
from bertkit.tokenizer import Encodings
from bertkit.transformer import Encoder, PreparedEncoder
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.kernels.arrays import are_equal, array, library_of, split
from bertkit.transformer.kernels.inference import without_gradients
from bertkit.transformer.modules import ArrayModule, nn

if TYPE_CHECKING:
    from bertkit.extraction import Entity

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
        self._networks: dict[str, Network] = {name: model.inference_network for name, model in models.items()}
        in_arrays = all(isinstance(network, ArrayModule) for network in self._networks.values())
        if not in_arrays:
            self._networks = {name: model.network for name, model in models.items()}
        (first_name, first), *others = self._models.items()
        for name, model in others:
            if difference := _difference(first, model) or _difference_of_weights(
                self._networks[first_name], self._networks[name]
            ):
                raise UsageError(
                    f"{name} has not the trunk of {first_name}: {difference}; expected heads that were trained over "
                    "the same frozen encoder"
                )
        self._base: Runner = first._runner if in_arrays else first._torch_runner

    def one_pass(self) -> dict[str, Model]:
        """Copies of the models that compute each sequence of tokens once, for all of them, with the same bits.

        Hidden states stay in memory as long as the copies.
        """
        states = dict[_Key, Tensor]()
        return {name: _Head(model, self._networks[name], self._base, states) for name, model in self._models.items()}


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


class _Head(Model):
    """A model that reads the hidden states of a pass."""

    def __init__(self, model: Model, network: Network, base: Runner, states: dict[_Key, Tensor]) -> None:
        super().__init__(model.checkpoint, model.precision, model.precision_reason, model._opened_extractor)
        trunk: Any = _Trunk(base.encoder, network.encoder, states)
        self._reader = _Reader(network, model.tokenizer, trunk, base=base, states=states)
        self._entities: dict[Any, dict[str, tuple[Entity, ...]]] = {}

    @property
    def _runner(self) -> Runner:
        return self._reader

    def extract(self, texts: Any, labels: Any = None, *, threshold: float | None = None, **others: Any) -> Any:
        """As `ModelFinding.extract`; the entities of a text are decided once, for themselves and for redactions."""
        if isinstance(texts, str) or others:
            return super().extract(texts, labels, threshold=threshold, **others)
        described = tuple(labels.items()) if isinstance(labels, Mapping) else ()
        known = self._entities.setdefault((self.entity_labels(labels), described, threshold), {})
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(missing, super().extract(missing, labels, threshold=threshold), strict=True))
        return [known[text] for text in texts]


@dataclass(frozen=True)
class _Reader(Runner):
    """A runner that first computes the hidden states that no head has asked for yet, with the runner of the trunk."""

    base: Runner = field(kw_only=True)
    states: dict[_Key, Tensor] = field(kw_only=True, compare=False)  # last hidden states of each sequence

    def run(self, encodings: Encodings, forward: Callable[[Batch, np.ndarray], Tensor], **options: Any) -> Tensor:
        keys = _keys(encodings.input_ids, encodings.token_type_ids, encodings.cu_seqlens.tolist())
        missing = {key: index for index, key in enumerate(keys) if key not in self.states}
        if missing:
            part = encodings.take(np.array(list(missing.values())))

            def hidden(batch: Batch, indices: np.ndarray) -> Tensor:
                return self.base.encoder(batch, with_pooled=False).last_hidden_state

            rows = self.base.run(part, hidden, rows_per_sequence=part.seqlens)
            self.states.update(zip(missing, split(rows, part.seqlens.tolist()), strict=True))
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

    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False,
        rows: Any = None,
    ) -> EncoderOutput:  # fmt: skip
        """See `PreparedEncoder.__call__`; inner hidden states are computed again."""
        with without_gradients():
            return self._output(batch, with_hidden_states, with_pooled)

    def _output(self, batch: Batch, with_hidden_states: bool, with_pooled: bool) -> EncoderOutput:
        if with_hidden_states:
            output = self.prepared(batch, with_hidden_states=True, with_pooled=False)
            last, inner = output.last_hidden_state, output.hidden_states
        else:
            ids, types = array(batch.input_ids), array(batch.token_type_ids)
            states = [self.states[key] for key in _keys(ids, types, batch.cu_seqlens.tolist())]
            last, inner = library_of(states[0]).concatenate(states), None
        pooler = self.encoder.pooler
        with inference_kernels():
            pooled = None if pooler is None or not with_pooled else pooler(last[batch.first_tokens])
        return EncoderOutput(last, pooled, inner)


def _keys(ids: np.ndarray, types: np.ndarray, bounds: list[int]) -> list[_Key]:
    ids, types = ids.astype(np.int32, copy=False), types.astype(np.int32, copy=False)
    return [(ids[start:end].tobytes(), types[start:end].tobytes()) for start, end in pairwise(bounds)]
