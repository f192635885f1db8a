"""Calls: one call of a verb for items of one or several jobs.

A run of an encoder inside the call is computed at once, or ends the first part of the call: then its sequences wait in
the queue. When they have rows, the method is called again, with these rows in place of the run. So each method of the
library shares batches, and none of them knows.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np

from bertkit.batch import Batch, length_sorted_batches
from bertkit.errors import BertkitError
from bertkit.inference import InferenceReport, Runner
from bertkit.later import Tensor
from bertkit.serving.jobs import Job, Results
from bertkit.serving.queue import Part, TakenBatch
from bertkit.serving.shared_run import SharedRun
from bertkit.serving.ticket import Answer, Ticket
from bertkit.tokenizer import Encodings
from bertkit.transformer.kernels.arrays import library_of, split

Slice = tuple[Job, int, int]
"""A job, and the first and the end of some of its items."""

Forward = Callable[[Batch, np.ndarray], Tensor]


@dataclass
class _Sequence:
    """A sequence for `collate`."""

    input_ids: np.ndarray
    token_type_ids: np.ndarray

    def __len__(self) -> int:
        return len(self.input_ids)


class _Waits(BaseException):
    """Ends a part of a call: its rows are not there yet."""


class Run:
    """A run of an encoder that a call asked for: its sequences, for the queue, and their rows; see `queue.Part`.

    Args:
        identity: by which a call that is made again finds the rows; see `Call.run`.
        bounds: the first sequence of each unit, and the end: of an item, or in a whole call of all items together.
    """

    def __init__(
        self, call: "Call", identity: Hashable, runner: Runner, encodings: Encodings, forward: Forward,
        rows_per_sequence: np.ndarray | None, bounds: list[int],
    ) -> None:  # fmt: skip
        self.call, self.identity, self.runner, self.group = call, identity, runner, id(runner.encoder)
        self.is_long = call.verb.is_long
        self._encodings, self._forward, self._rows_per_sequence = encodings, forward, rows_per_sequence
        ids, types, ends = encodings.input_ids, encodings.token_type_ids, encodings.cu_seqlens.tolist()
        self.lengths: list[int] = encodings.seqlens.tolist()
        self._keys = [
            (self.group, ids[start:end].tobytes(), types[start:end].tobytes()) for start, end in pairwise(ends)
        ]
        self._rows: dict[int, Tensor] = {}  # of each sequence
        self._sequences = [range(start, end) for start, end in pairwise(bounds)]  # of each unit
        self.unit_of = [unit for unit, sequences in enumerate(self._sequences) for _ in sequences]
        self._num_missing, self._lock = list(map(len, self._sequences)), threading.Lock()

    def key(self, index: int) -> Hashable:
        """Equal for sequences with the same hidden states."""
        return self._keys[index]

    @property
    def is_distinct(self) -> bool:
        """Whether no two sequences are equal."""
        return len(set(self._keys)) == len(self._keys)

    def sequence(self, index: int) -> _Sequence:
        """A sequence, for `collate`."""
        encodings = self._encodings
        tokens = slice(*encodings.cu_seqlens[index : index + 2].tolist())
        return _Sequence(encodings.input_ids[tokens], encodings.token_type_ids[tokens])

    def compute(self, indices: np.ndarray, numbers: np.ndarray, shared: SharedRun, most: int) -> list[int]:
        """Compute the rows of some sequences from those with the ``numbers`` in a run of the encoder, in steps of at
        most so many tokens; returns the units whose last rows these are."""
        complete: list[int] = []
        lengths = self._encodings.seqlens[indices]
        for step in length_sorted_batches(lengths, most) if lengths.sum() > most else [slice(None)]:
            chosen = indices[step]
            batch = self.runner.collate(self._encodings.take(chosen))
            rows = shared.rows(numbers[step], partial(self._forward, batch, chosen))
            counts = np.ones_like(chosen) if self._rows_per_sequence is None else self._rows_per_sequence[chosen]
            complete += self._store(chosen.tolist(), split(rows, counts.tolist()))
        return complete

    def _store(self, indices: list[int], rows: Sequence[Tensor]) -> list[int]:
        complete = []
        with self._lock:
            for index, part in zip(indices, rows, strict=True):
                self._rows[index] = part
                unit = self.unit_of[index]
                self._num_missing[unit] -= 1
                if not self._num_missing[unit]:
                    complete.append(unit)
        return complete

    def rows_of(self, units: Sequence[int]) -> Tensor:
        """The rows of some units."""
        rows = [self._rows[index] for unit in units for index in self._sequences[unit]]
        return library_of(rows[0]).concatenate(rows)

    def forget(self, units: Sequence[int]) -> None:
        """Free the rows of some units."""
        for unit in units:
            for index in self._sequences[unit]:
                del self._rows[index]


class Call:
    """Items of jobs of one kind, and how far the call of their verb for them has come.

    Args:
        slices: one of each job; of a whole verb, one.
        is_literal: the items of the only slice as the request gives them, with those that are equal, so that an error
            names one by its index there.

    Attributes:
        waiting: the run whose sequences are to wait, if any, until `parts` takes it: it refers to the call.
        computed: numbers of sequences and tokens of each run that was computed at once.
    """

    def __init__(self, slices: Sequence[Slice], *, is_literal: bool = False) -> None:
        self.jobs = [job for job, _, _ in slices]
        self.verb = self.jobs[0].verb
        self.waiting: Run | None = None
        self.computed: list[tuple[int, int]] = []
        self._slices, self._has_run = slices, False
        job, first, end = slices[0]
        self._first = job.positions[first]  # position of the first item in its request
        if is_literal:
            self._owners = [(job, number) for number in job.number_at[self._first : job.positions[end - 1] + 1]]
        else:
            self._owners = [(job, number) for job, first, end in slices for number in range(first, end)]
        self.items = [job.items[number] for job, number in self._owners]
        self._counts = [(0, 0, 0, 0)] * len(self.items)
        self._known: dict[Hashable, Tensor] = {}  # the rows of the runs of a whole call

    @property
    def ticket(self) -> Ticket:
        """That of the only job."""
        (job,) = self.jobs
        return job.ticket

    def start(self, may_run: Callable[[Run], bool]) -> list[Answer] | None:
        """Compute the items, as far as runs of encoders may be computed at once; the answers that this ended.

        Returns:
            None if sequences have to wait, or steps are left.

        Raises:
            BertkitError: an item that the verb does not accept.
        """
        for job in self.jobs:
            job.start()
        self._began = time.perf_counter()
        ended = self._called(range(len(self.items)), _Invocation(self, may_run, self._known))
        if ended is not None or self.waiting is None or not self.verb.is_whole:
            self._settle()
        return ended

    def resume(self, run: Run, units: list[int]) -> list[Answer] | None:
        """Call the verb again for items of a run that have all of their rows now; the answers that this ended; None if
        it waits again. An error reaches only the job of its item."""
        known, items = {run.identity: run.rows_of(units)}, units
        if self.verb.is_whole:
            self._known |= known
            known, items = self._known, list(range(len(self.items)))
        try:
            ended = self._called(items, _Invocation(self, lambda run: False, known))
        except Exception as error:
            if self.verb.is_whole:
                self._settle(error)
            elif len(units) > 1:
                return [answer for unit in units for answer in self.resume(run, [unit]) or ()]
            else:
                self._owners[units[0]][0].outcome.fail(error)
            return []
        run.forget(units)
        if self.verb.is_whole and ended is not None:
            self._settle()
        return ended

    def _settle(self, error: Exception | None = None) -> None:
        for job, first, _ in self._slices:
            job.settle(first, error)

    def _called(self, items: Sequence[int], invocation: "_Invocation") -> list[Answer] | None:
        report = InferenceReport(num_texts=self._first)
        _thread.invocation = invocation
        try:
            results = self.verb.compute([self.items[item] for item in items], report)
        except _Waits:
            return None
        finally:
            _thread.invocation = None
        if results is None:
            return None
        if not self._has_run or self.verb.is_whole:
            if len(self.jobs) > 1:
                raise LookupError("the counts of each job are unknown")
            self.ticket.num_tokens += 0 if self._has_run else report.num_tokens
            self.ticket.count(report.num_texts_cut, report)
        return self._spread(items, results)

    def run(
        self,
        runner: Runner,
        encodings: Encodings,
        forward: Forward,
        rows_per_sequence: np.ndarray | None,
        compute: Callable[[], Tensor],
    ) -> Tensor:
        """`Runner.run` inside the call, which ``compute`` does at once.

        When the call is made again, a run is known by its number. In a whole call it is known by its sequences, not by
        its place among the runs: an index can change in between.
        """
        invocation, is_whole = _thread.invocation, self.verb.is_whole
        assert invocation is not None
        sequences = (
            (id(runner.encoder), encodings.input_ids.tobytes(), encodings.seqlens.tobytes()) if is_whole else None
        )
        identity = invocation.identity(sequences)
        if identity in invocation.known:
            return invocation.known[identity]
        if not self._has_run:
            for job in self.jobs:
                job.ticket.tokenization_seconds += time.perf_counter() - self._began
        elif not is_whole:  # another run than the first of the verb
            return compute()
        self._has_run = True
        bounds = self._note(encodings)
        run = Run(self, identity, runner, encodings, forward, rows_per_sequence, bounds)
        if not invocation.may_run(run):
            self.waiting = run
            raise _Waits
        self.computed.append((len(run.lengths), sum(run.lengths)))
        rows = compute()
        if is_whole:
            self._known[identity] = rows
        return rows

    def _note(self, encodings: Encodings) -> list[int]:
        """Count the tokens of a run; its bounds."""
        if self.verb.is_whole:
            self.ticket.num_tokens += len(encodings.input_ids)
            return [0, len(encodings)]
        counts = [encodings.seqlens, encodings.num_tokens_cut, encodings.num_unknown, encodings.are_empty()]
        numbers = range(len(self.items) + 1)
        bounds = [*numbers]
        if len(encodings) != len(self.items):  # windows
            bounds = np.searchsorted(encodings.text_index, numbers).tolist()
            counts = [np.bincount(encodings.text_index, row, numbers[-1]).astype(np.int64) for row in counts]
        self._counts = list(zip(*(row.tolist() for row in counts), strict=True))  # of each item
        if self.verb.bytes_per_token:
            self._reserve()
        return bounds

    def _reserve(self) -> None:
        """Make room for the answers, or end the jobs for which there is none."""
        sizes = Counter[Job]()
        for (job, number), (num_tokens, *_) in zip(self._owners, self._counts, strict=True):
            if number not in job.with_room:  # of an earlier call, which failed for another item
                job.with_room.add(number)
                sizes[job] += job.copies[number] * num_tokens * self.verb.bytes_per_token
        for job, size in sizes.items():
            try:
                job.ticket.reserve(size)
            except BertkitError as error:
                job.outcome.fail(error)

    def parts(self) -> Iterator[tuple[Job, Part]]:
        """The waiting sequences of each job."""
        run, self.waiting = self.waiting, None
        assert run is not None
        wanted: dict[Job, list[int]] = {}
        for index, unit in enumerate(run.unit_of):
            wanted.setdefault(self._owners[unit][0], []).append(index)
        for job, indices in wanted.items():
            yield job, Part(job, run, indices)

    def _spread(self, items: Sequence[int], results: Results) -> list[Answer]:
        ended = []
        for item, result in zip(items, results, strict=True):
            job, number = self._owners[item]
            if job.store(number, result, self._counts[item]) and not job.is_done:
                job.end()
                ended.append(job.outcome)
        return ended


def compute(batch: TakenBatch, most: int) -> tuple[list[Answer], list[Call]]:
    """Run the encoder once for all sequences of a batch for which a job still waits, and the calls for their own.

    Args:
        most: tokens that a call computes at a time. Equal sequences of calls share one of the batch, and could have
            any number of tokens together.

    Returns:
        The answers that this ended, and the calls that wait again.
    """
    wanted: dict[Run, dict[int, int]] = {}  # numbers in the batch, by run and index
    for part, index, number in batch.waiting:
        if not part.job.is_done:
            part.job.start()
            wanted.setdefault(part.call, {})[index] = number
    ended: list[Answer] = []
    others: list[Call] = []
    if not wanted:
        return ended, others
    needed = sorted({number for numbers in wanted.values() for number in numbers.values()})
    sequences = [(part.call, index) for part, index in map(batch.sequences.__getitem__, needed)]
    shared = SharedRun(sequences[0][0].runner.collate([run.sequence(index) for run, index in sequences]))
    for run, numbers in wanted.items():
        indices, at = np.array(list(numbers.items())).T
        try:
            complete = run.compute(indices, np.searchsorted(needed, at), shared, max(most, batch.num_tokens))
        except Exception as error:
            for part, _, _ in batch.waiting:
                if part.call is run:
                    part.job.outcome.fail(error)
            continue
        if complete:
            outcomes = run.call.resume(run, complete)
            ended += outcomes or ()
            others += [run.call] if outcomes is None else []
    return ended, others


@dataclass
class _Invocation:
    """An invocation of a verb: its call, which runs it may compute at once, and the rows of those that are there."""

    call: Call
    may_run: Callable[[Run], bool]
    known: Mapping[Hashable, Tensor]
    _num_asked: Counter[Hashable] = field(default_factory=Counter)

    def identity(self, sequences: Hashable) -> Hashable:
        """That of a run: its sequences, and how many runs of them there were so far."""
        self._num_asked[sequences] += 1
        return sequences, self._num_asked[sequences]


class _Thread(threading.local):
    invocation: _Invocation | None = None


_thread = _Thread()


def current_call() -> Call | None:
    """The call in progress on this thread."""
    return None if _thread.invocation is None else _thread.invocation.call
