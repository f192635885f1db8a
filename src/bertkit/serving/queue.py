"""Queue of sequences and texts for the encoder, from which batches are taken.

Clients take turns of a few tokens, so that many texts of one client do not delay a single text of another. Equal texts
that wait at the same time are computed once.
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from bertkit.inference import Runner
from bertkit.serving.ticket import Ticket

_TURN_TOKENS = 64
"""Tokens that a client contributes to a batch per turn; at least one sequence."""

SHORT_TOKENS = 128
"""Maximum tokens of a short job, which may be computed while all cores work on long batches."""


class Queued(ABC):
    """The sequences or texts of one call, as the queue sees them: items with numbers of tokens."""

    runner: Runner
    ticket: Ticket

    def __init__(self, ticket: Ticket, lengths: Sequence[int]) -> None:
        self.ticket, self.lengths = ticket, lengths
        self.started: float | None = None  # start time of the first batch with one of its items
        self.error: BaseException | None = None
        self.pending = deque(sorted(range(len(lengths)), key=lambda index: -lengths[index]))  # the longest first
        self.is_taken = bytearray(len(lengths))
        self.is_queued = False
        self.num_tokens_waiting = sum(lengths)
        self._num_missing, self.lock = len(lengths), threading.Lock()

    def has_pending(self) -> bool:
        """True if an item waits; those that were taken with an equal one of another job are forgotten."""
        while self.pending and self.is_taken[self.pending[0]]:
            self.pending.popleft()
        return bool(self.pending)

    def have_come(self, num_items: int) -> bool:
        """Count items with a result, from any thread; True if they were the last ones."""
        with self.lock:
            self._num_missing -= num_items
            return self._num_missing == 0

    @property
    @abstractmethod
    def group(self) -> Hashable:
        """Equal for calls whose items may share a batch."""

    @property
    @abstractmethod
    def is_done(self) -> bool: ...

    @abstractmethod
    def key(self, index: int) -> Hashable:
        """Equal for items with the same result, over all calls."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """End the call without a result."""

    @abstractmethod
    def compute(self, batch: "TakenBatch") -> int:
        """Compute a batch of calls with the group of this one, and return its number of tokens."""


@dataclass
class TakenBatch:
    """Distinct sequences for one run of an encoder, and the jobs that wait for them."""

    sequences: list[tuple[Queued, int]] = field(default_factory=list)
    waiting: dict[Queued, list[tuple[int, int]]] = field(default_factory=dict)  # (index in the job, index in sequences)
    num_tokens: int = 0
    num_tokens_waiting: int = 0  # of all items that wait, equal ones included

    def add(self, twins: list[tuple[Queued, int]], num_tokens: int) -> None:
        """Add a sequence, for all jobs that wait for the same one."""
        for job, index in twins:
            self.waiting.setdefault(job, []).append((index, len(self.sequences)))
        self.sequences.append(twins[0])
        self.num_tokens += num_tokens
        self.num_tokens_waiting += num_tokens * len(twins)


class Queue:
    """Jobs of all clients. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[Hashable, deque[Queued]] = OrderedDict()  # by client; the next to take a turn first
        self._twins: dict[Hashable, list[tuple[Queued, int]]] = {}
        self.num_tokens = 0
        self.num_sequences = 0

    def __len__(self) -> int:
        """Number of sequences."""
        return self.num_sequences

    def put(self, job: Queued) -> None:
        """Add a job after the others of its client."""
        self._jobs.setdefault(job.ticket.client, deque()).append(job)
        job.is_queued = True
        for index in job.pending:
            self._twins.setdefault(job.key(index), []).append((job, index))
        self.num_tokens += job.num_tokens_waiting
        self.num_sequences += len(job.pending)

    def remove(self, job: Queued) -> None:
        """Remove the remaining sequences of a job, if it was put."""
        if not job.is_queued:
            return
        waiting = [index for index in job.pending if not job.is_taken[index]]
        for key in {job.key(index) for index in waiting}:
            if others := [twin for twin in self._twins.pop(key) if twin[0] is not job]:
                self._twins[key] = others
        for index in waiting:
            self._leave(job, index)
        job.pending.clear()

    def take(self, budget: Callable[[Queued], int], *, short_only: bool = False) -> TakenBatch:
        """Take sequences for one run of an encoder from the clients in turn; empty if none waits.

        Args:
            budget: maximum number of tokens, by the first job; a single sequence may exceed it.
            short_only: skip jobs with more than SHORT_TOKENS.
        """
        taken, most, group = TakenBatch(), 0, None
        turns = deque(self._jobs)
        while turns:
            client = turns.popleft()
            jobs = self._jobs[client]
            while jobs and not jobs[0].has_pending():
                jobs.popleft()
            if not jobs:
                del self._jobs[client]
                continue
            job = jobs[0]
            if (group is not None and job.group != group) or (short_only and job.num_tokens_waiting > SHORT_TOKENS):
                continue  # the client keeps its turn for the next batch
            if group is None:
                group, most = job.group, budget(job)
            if not self._take_turn(job, taken, most):
                break
            self._jobs.move_to_end(client)
            turns.append(client)
        return taken

    def _take_turn(self, job: Queued, taken: TakenBatch, most: int) -> bool:
        """Add sequences of a job; False if the batch is full."""
        end = taken.num_tokens + _TURN_TOKENS
        while job.has_pending():
            index = job.pending[0]
            length = job.lengths[index]
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

    def _leave(self, job: Queued, index: int) -> None:
        job.is_taken[index] = True
        job.num_tokens_waiting -= job.lengths[index]
        self.num_tokens -= job.lengths[index]
        self.num_sequences -= 1
