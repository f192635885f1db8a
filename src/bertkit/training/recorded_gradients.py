"""CUDA graphs of training: loss and gradients of a part of a batch are recorded once for each shape, and replayed.

A small part is computed in less time than its kernels take to be started one by one. So that parts repeat their
shapes, labeled ones are filled up to one of a few numbers of tokens. What is recorded reads no number of the GPU.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.architectures import Network
from bertkit.batch import IGNORED, LabeledBatch
from bertkit.device import free_bytes
from bertkit.tasks import Loss, Task
from bertkit.training.gradients import gradients_of
from bertkit.training.ranks import is_sharded
from bertkit.transformer.cuda_graphs import can_be_recorded, record_graph_of

Gradients = Sequence[Tensor | None]

_BEFORE, _MOST, _MOST_SEEN = 2, 32, 1_000
"""Parts of a shape that are computed before it is recorded; number of shapes that are recorded, and looked at."""
_MEMORY_SHARE = 4
"""A shape is recorded while the gradients, which each recording keeps, take at most 1 / 4 of the free memory."""


@dataclass
class _Recording:
    inputs: list[Tensor]  # of the part and its totals, read by every replay
    result: tuple[Loss, Gradients]  # written by every replay
    replay: Callable[[], object]


class RecordedGradients:
    """Loss and gradients of parts from recordings.

    Args:
        loss_of: part and totals to the loss of the network, or the same compiled.
    """

    def __init__(self, network: Network, loss_of: Callable[[Any, Tensor], Loss], dtype: torch.dtype) -> None:
        self._loss_of, self._dtype = loss_of, dtype
        self._parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self._device = self._parameters[0].device
        self._max_positions = network.config.max_position_embeddings
        self._bytes = sum(parameter.numel() * parameter.element_size() for parameter in self._parameters)
        self._seen: Counter[Any] = Counter()
        self._recordings: dict[Any, _Recording] = {}
        self._pool: Any = None

    def filled(self, part: Any) -> Any:
        """The part in one of a few shapes, recorded or not: dropout masks depend on the shape. See `in_few_shapes`."""
        return in_few_shapes(part, self._max_positions)

    def __call__(self, part: Any, totals: Tensor, *, is_kept: bool) -> tuple[Loss, Gradients]:
        """Loss and gradients of a `filled` part on the device, computed or replayed.

        Args:
            is_kept: copy the gradients, which the next replay overwrites.
        """
        given = [*_tensors(part), totals]
        key = (_constants(part), *((tuple(one.shape), one.dtype) for one in given))
        if key not in self._recordings:
            if not self._is_worth_recording(key):
                return self._compute(part, totals)
            self._recordings[key] = self._record(part, totals)
        recording = self._recordings[key]
        torch._foreach_copy_(recording.inputs, given)
        recording.replay()
        loss, gradients = recording.result
        loss = Loss(loss.value.clone(), loss.sums.clone())
        return loss, [None if one is None else one.clone() for one in gradients] if is_kept else gradients

    def _is_worth_recording(self, key: Any) -> bool:
        if len(self._recordings) == _MOST or len(self._seen) == _MOST_SEEN:
            return False
        self._seen[key] += 1
        return self._seen[key] > _BEFORE and _MEMORY_SHARE * self._bytes < free_bytes(self._device)

    def _record(self, part: Any, totals: Tensor) -> _Recording:
        inputs = [one.clone() for one in (*_tensors(part), totals)]
        work = partial(self._compute, _with_tensors(part, iter(inputs)), inputs[-1])
        with torch.random.fork_rng([self._device]):  # so that the first replay has the same dropout as later ones
            result, replay, self._pool = record_graph_of(work, self._device, self._pool)
        return _Recording(inputs, result, replay)

    def _compute(self, part: Any, totals: Tensor) -> tuple[Loss, Gradients]:
        # Without the cache: it would keep rounded weights from before the recording.
        with torch.autocast("cuda", self._dtype, cache_enabled=False):
            of_part = self._loss_of(part, totals)
        with torch.autograd.set_multithreading_enabled(False):  # a graph records this thread
            gradients = gradients_of(of_part.value, self._parameters)
        return Loss(of_part.value.detach(), of_part.sums), gradients


def recorder_of(
    network: nn.Module, loss_of: Callable[[Any, Tensor], Loss], task: Task, precision: str
) -> RecordedGradients | None:
    """The recorder of a network on a CUDA device with products in 16 bits; None where nothing can be recorded."""
    if not isinstance(network, Network) or is_sharded(network) or task.of_vectors or not task.is_recordable:
        return None
    if network.encoder.gradient_checkpointing or not can_be_recorded(network.encoder, precision):
        return None
    return RecordedGradients(network, loss_of, getattr(torch, precision))


def in_few_shapes(part: Any, max_positions: int) -> Any:
    """A labeled part with filler up to one of a few numbers of tokens; others as they are, such as a `StaticBatch`'s.

    >>> [shape_of(number) for number in (1, 128, 129, 1000, 1100, 9000)]
    [128, 128, 256, 1024, 1152, 9216]
    """
    if not isinstance(part, LabeledBatch):
        return part
    num_tokens, longest = part.num_tokens, min(shape_of(part.batch.max_seqlen), max_positions)
    num_rows = min(shape_of(num_tokens), num_tokens + longest)
    batch = replace(
        part.batch.filled(num_rows), has_filler=True, max_seqlen=longest,
        num_positions=max(part.batch.num_positions, longest),
    )  # fmt: skip
    labels = part.labels
    if part.of_tokens:
        labels = F.pad(labels, (0, 0) * (labels.dim() - 1) + (0, num_rows - num_tokens), value=IGNORED)
    return replace(part, batch=batch, labels=labels)


def shape_of(number: int) -> int:
    """The number rounded up to a multiple of 128, above 2,048 of 1 / 8 of the power of two below it."""
    step = max(128, 1 << max(0, number.bit_length() - 4))
    return -(-number // step) * step


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of a part, in order."""
    for field in fields(value):
        one = getattr(value, field.name)
        if isinstance(one, Tensor):
            yield one
        elif is_dataclass(one):
            yield from _tensors(one)


def _with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The part with other tensors, as in `_tensors`."""
    changed = {}
    for field in fields(value):
        one = getattr(value, field.name)
        if isinstance(one, Tensor):
            changed[field.name] = next(tensors)
        elif is_dataclass(one):
            changed[field.name] = _with_tensors(one, tensors)
    return replace(value, **changed)


def _constants(value: Any) -> tuple[Any, ...]:
    """The type of a part, and its values that are no tensors."""
    ours = (getattr(value, field.name) for field in fields(value))
    return type(value), *(_constants(one) if is_dataclass(one) else one for one in ours if not isinstance(one, Tensor))
