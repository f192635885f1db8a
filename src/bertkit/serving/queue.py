"""Queue of sequences for the encoder, from which batches are taken.

Clients take turns of a few tokens, so that many texts of one client do not delay a single text of another. Equal texts
that wait at the same time are computed once.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from bertkit.batch import Batch
from bertkit.inference import Runner
from bertkit.serving.ticket import Ticket
from bertkit.tokenizer import Encodings

_TURN_TOKENS = 64
"""Tokens that a client contributes to a batch per turn; at least one sequence."""

SHORT_TOKENS = 128
"""Maximum tokens of a short job, which may be computed while all cores work on long batches."""


@dataclass(eq=False)
class Job:
    """The sequences of one call, and the function to compute."""

    runner: Runner
    encodings: Encodings
    forward: Callable[[Batch, np.ndarray], Tensor]  # as in `Runner.run`
    ticket: Ticket
    started: float | None = None  # start time of the first batch with one of its sequences
    results: list[tuple[np.ndarray, Tensor]] = field(default_factory=list)  # indices of sequences, and their rows
    error: BaseException | None = None
    done: Future[None] = field(default_factory=Future)

    def __post_init__(self) -> None:
        self.bounds: list[int] = self.encodings.cu_seqlens.tolist()
        self.pending = deque(np.argsort(-self.encodings.seqlens, kind="stable").tolist())
        self.is_taken = bytearray(len(self.encodings))
        self.num_missing = len(self.encodings)
        self.num_tokens_waiting = self.bounds[-1]

    @property
    def encoder(self) -> object:
        return self.runner.encoder

    def key(self, index: int) -> tuple[int, bytes, bytes]:
        """Equal for sequences with the same hidden states."""
        tokens = slice(self.bounds[index], self.bounds[index + 1])
        encodings = self.encodings
        return id(self.encoder), encodings.input_ids[tokens].tobytes(), encodings.token_type_ids[tokens].tobytes()

    def length(self, index: int) -> int:
        """Number of tokens of a sequence."""
        return self.bounds[index + 1] - self.bounds[index]

    def add(self, indices: np.ndarray, rows: Tensor) -> None:
        """Store the rows of some sequences; the last ones finish the job."""
        self.results.append((indices, rows))
        self.num_missing -= len(indices)
        if not self.num_missing:
            self._end()

    def fail(self, error: BaseException) -> None:
        """End the job without a result."""
        if not self.done.done():
            self.error = error
            self._end()

    def _end(self) -> None:
        with suppress(InvalidStateError):  # ended by two threads at once
            self.done.set_result(None)


@dataclass
class TakenBatch:
    """Distinct sequences for one run of an encoder, and the jobs that wait for them."""

    sequences: list[tuple[Job, int]] = field(default_factory=list)
    waiting: dict[Job, list[tuple[int, int]]] = field(default_factory=dict)  # (index in the job, index in sequences)
    num_tokens: int = 0

    def add(self, twins: list[tuple[Job, int]], num_tokens: int) -> None:
        """Add a sequence, for all jobs that wait for the same one."""
        for job, index in twins:
            self.waiting.setdefault(job, []).append((index, len(self.sequences)))
        self.sequences.append(twins[0])
        self.num_tokens += num_tokens


class Queue:
    """Jobs of all clients. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[Hashable, deque[Job]] = OrderedDict()  # by client; the next to take a turn first
        self._twins: dict[tuple[int, bytes, bytes], list[tuple[Job, int]]] = {}
        self.num_tokens = 0
        self.num_sequences = 0

    def __len__(self) -> int:
        """Number of sequences."""
        return self.num_sequences

    def put(self, job: Job) -> None:
        """Add a job after the others of its client."""
        self._jobs.setdefault(job.ticket.client, deque()).append(job)
        for index in job.pending:
            self._twins.setdefault(job.key(index), []).append((job, index))
        self.num_tokens += job.num_tokens_waiting
        self.num_sequences += len(job.pending)

    def remove(self, job: Job) -> None:
        """Remove the remaining sequences of a job."""
        waiting = [index for index in job.pending if not job.is_taken[index]]
        for key in {job.key(index) for index in waiting}:
            if others := [twin for twin in self._twins.pop(key) if twin[0] is not job]:
                self._twins[key] = others
        for index in waiting:
            self._leave(job, index)
        job.pending.clear()

    def take(self, budget: Callable[[Job], int], *, short_only: bool = False) -> TakenBatch:
        """Take sequences for one run of an encoder from the clients in turn; empty if none waits.

        Args:
            budget: maximum number of tokens, by the first job; a single sequence may exceed it.
            short_only: skip jobs with more than SHORT_TOKENS.
        """
        taken, most, encoder = TakenBatch(), 0, None
        turns = deque(self._jobs)
        while turns:
            client = turns.popleft()
            jobs = self._jobs[client]
            while jobs and not jobs[0].pending:
                jobs.popleft()
            if not jobs:
                del self._jobs[client]
                continue
            job = jobs[0]
            if (encoder is not None and job.encoder is not encoder) or (
                short_only and job.num_tokens_waiting > SHORT_TOKENS
            ):
                continue  # the client keeps its turn for the next batch
            if encoder is None:
                encoder, most = job.encoder, budget(job)
            if not self._take_turn(job, taken, most):
                break
            self._jobs.move_to_end(client)
            turns.append(client)
        return taken

    def _take_turn(self, job: Job, taken: TakenBatch, most: int) -> bool:
        """Add sequences of a job; False if the batch is full."""
        end = taken.num_tokens + _TURN_TOKENS
        while job.pending:
            index = job.pending[0]
            if job.is_taken[index]:
                job.pending.popleft()
                continue
            length = job.length(index)
            if taken.sequences and taken.num_tokens + length > most:
                return False
            job.pending.popleft()
            twins = self._twins.pop(job.key(index))
            for twin in twins:
                self._leave(*twin)
            taken.add(twins, length)
            if taken.num_tokens >= end:
                break
        return taken.num_tokens < most

    def _leave(self, job: Job, index: int) -> None:
        job.is_taken[index] = True
        job.num_tokens_waiting -= job.length(index)
        self.num_tokens -= job.length(index)
        self.num_sequences -= 1
