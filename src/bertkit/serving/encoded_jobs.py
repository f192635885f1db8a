"""Calls with tokenized texts: their sequences share a run of the encoder with those of other calls, and each call
computes its results from its part of the run."""

import threading
from collections.abc import Callable, Hashable
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch, collate, length_sorted_batches
from bertkit.inference import Runner
from bertkit.serving.queue import Queued, TakenBatch
from bertkit.serving.ticket import Ticket
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.ragged import ranges
from bertkit.transformer import PreparedEncoder
from bertkit.transformer.interface import EncoderOutput


class Job(Queued):
    """The sequences of one call, and the function to compute.

    Args:
        forward: as in `Runner.run`.
    """

    def __init__(
        self, runner: Runner, encodings: Encodings, forward: Callable[[Batch, np.ndarray], Tensor], ticket: Ticket
    ) -> None:
        super().__init__(ticket, encodings.seqlens.tolist())
        self.runner, self.encodings, self.forward = runner, encodings, forward
        self.bounds: list[int] = encodings.cu_seqlens.tolist()
        self.results: list[tuple[np.ndarray, Tensor]] = []  # indices of sequences, and their rows
        self.done = threading.Event()

    @property
    def group(self) -> Hashable:
        """See `Queued.group`."""
        return id(self.runner.encoder)

    @property
    def is_done(self) -> bool:
        return self.done.is_set()

    def key(self, index: int) -> Hashable:
        """Equal for sequences with the same hidden states."""
        tokens = slice(self.bounds[index], self.bounds[index + 1])
        encodings = self.encodings
        return self.group, encodings.input_ids[tokens].tobytes(), encodings.token_type_ids[tokens].tobytes()

    def add(self, indices: np.ndarray, rows: Tensor) -> None:
        """Store the rows of some sequences; the last ones finish the job."""
        self.results.append((indices, rows))
        if self.have_come(len(indices)):
            self._end()

    def fail(self, error: BaseException) -> None:
        """End the job without a result."""
        if not self.is_done:
            self.error = error
            self._end()

    def compute(self, batch: TakenBatch) -> int:
        """See `Queued.compute`."""
        _compute(batch)
        return batch.num_tokens

    def _end(self) -> None:
        self.done.set()


def _compute(batch: TakenBatch) -> None:
    """Run the encoder once for all sequences of a batch, and each job's ``forward`` for its own.

    Equal sequences of a job share a sequence of the batch, and could have any number of tokens together: ``forward``
    computes them in parts of at most as many tokens as a batch may have.
    """
    jobs = [job for job in cast(dict[Job, list[tuple[int, int]]], batch.waiting) if not job.is_done]
    if not jobs:
        return  # all of them were canceled
    first, needed = jobs[0], sorted({number for job in jobs for _, number in batch.waiting[job]})
    if len(jobs) == 1 and len(batch.waiting[first]) == len(needed):  # nothing is shared
        indices = np.array([index for index, _ in batch.waiting[first]])
        packed = collate(first.encodings.take(indices)).to(first.runner.device)
        _add_rows(first, packed, indices, None)
        return
    sequences = cast(list[tuple[Job, int]], [batch.sequences[number] for number in needed])
    packed = collate([_Sequence(job, index) for job, index in sequences]).to(first.runner.device)
    shared = _SharedRun(packed)
    most = max(batch.num_tokens, first.runner.tokens_per_batch(batch.num_tokens))
    for job in jobs:
        indices, numbers = np.array(batch.waiting[job]).T
        numbers = np.searchsorted(needed, numbers)
        for part in length_sorted_batches(job.encodings.seqlens[indices], most):
            if job.is_done:
                break  # canceled, or a part failed
            shared.choose(numbers[part])
            part_batch = collate(job.encodings.take(indices[part])).to(first.runner.device)
            _add_rows(job, part_batch, indices[part], shared)


def _add_rows(job: Job, batch: Batch, indices: np.ndarray, shared: "_SharedRun | None") -> None:
    _thread.shared = shared
    try:
        job.add(indices, job.forward(batch, indices))
    except Exception as error:
        job.fail(error)
    finally:
        _thread.shared = None


class _Sequence:
    """A sequence for `collate`."""

    def __init__(self, job: Job, index: int) -> None:
        tokens = slice(job.bounds[index], job.bounds[index + 1])
        self.input_ids, self.token_type_ids = job.encodings.input_ids[tokens], job.encodings.token_type_ids[tokens]

    def __len__(self) -> int:
        return len(self.input_ids)


class _SharedRun:
    """One encoder run over a packed batch; each job reads its own sequences."""

    def __init__(self, packed: Batch) -> None:
        self._packed = packed
        self._outputs: dict[tuple[tuple[str, bool], ...], EncoderOutput] = {}
        self._bounds = packed.cu_seqlens.cpu().numpy().astype(np.int64)

    def choose(self, numbers: np.ndarray) -> None:
        """Choose the sequences of `output`, in order."""
        starts, ends = self._bounds[numbers], self._bounds[numbers + 1]
        is_run = bool((starts[1:] == ends[:-1]).all())
        device = self._packed.input_ids.device
        self._tokens = (
            slice(int(starts[0]), int(ends[-1]))
            if is_run
            else torch.from_numpy(ranges(starts, ends - starts)).to(device)
        )
        self._sequences = torch.from_numpy(numbers).to(device)

    def output(self, encoder: PreparedEncoder, **options: bool) -> EncoderOutput:
        """The encoder's output for the chosen sequences; computed for all sequences at the first call with these
        options."""
        key = tuple(sorted(options.items()))
        if key not in self._outputs:
            self._outputs[key] = encoder(self._packed, **options)
        whole, tokens = self._outputs[key], self._tokens
        return EncoderOutput(
            whole.last_hidden_state[tokens],
            None if whole.pooled is None else whole.pooled[self._sequences],
            None if whole.hidden_states is None else [hidden[tokens] for hidden in whole.hidden_states],
        )


_thread = threading.local()


class SharedEncoder:
    """A prepared encoder that, inside a shared batch, returns each job's part of the shared run."""

    def __init__(self, prepared: PreparedEncoder) -> None:
        self._prepared = prepared

    def fits(self, encoder: nn.Module) -> bool:
        """See `PreparedEncoder.fits`."""
        return self._prepared.fits(encoder)

    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """See `PreparedEncoder.__call__`."""
        shared = getattr(_thread, "shared", None)
        options = {"with_hidden_states": with_hidden_states, "with_pooled": with_pooled, "first_only": first_only}
        return self._prepared(batch, **options) if shared is None else shared.output(self._prepared, **options)
