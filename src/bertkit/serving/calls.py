"""Calls: one call of a verb for items of one or several jobs.

A run of an encoder inside the call is computed at once, or ends the first part of the call: then its sequences wait in
the queue. When they have rows, the method is called again, with these rows in place of the run. So each method of the
library shares batches, and none of them knows.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from bertkit.batch import Batch, length_sorted_batches
from bertkit.errors import BertkitError
from bertkit.inference import InferenceReport, Runner
from bertkit.later import Tensor
from bertkit.serving.jobs import Job, Results
from bertkit.serving.queue import Part, TakenBatch
from bertkit.serving.shared_run import SharedRun
from bertkit.serving.ticket import Outcome, Ticket
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
    """A run of an encoder that a call asked for: its sequences, for the queue, and their rows; see `queue.Part`."""

    def __init__(
        self, call: "Call", runner: Runner, encodings: Encodings, forward: Forward, rows_per_sequence: np.ndarray | None
    ) -> None:
        self.call, self.runner, self.group = call, runner, id(runner.encoder)
        self.is_long = call.verb.is_long
        self.rows: dict[int, Tensor] = {}  # of each sequence
        self._encodings, self._forward, self._rows_per_sequence = encodings, forward, rows_per_sequence
        ids, types, bounds = encodings.input_ids, encodings.token_type_ids, encodings.cu_seqlens.tolist()
        self.lengths: list[int] = encodings.seqlens.tolist()
        parts = [slice(start, end) for start, end in pairwise(bounds)]
        self._keys = [(self.group, ids[part].tobytes(), types[part].tobytes()) for part in parts]

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
        most so many tokens; returns the items of the call whose last rows these are."""
        complete: list[int] = []
        lengths = self._encodings.seqlens[indices]
        for step in length_sorted_batches(lengths, most) if lengths.sum() > most else [slice(None)]:
            chosen = indices[step]
            batch = self.runner.collate(self._encodings.take(chosen))
            rows = shared.rows(numbers[step], partial(self._forward, batch, chosen))
            counts = np.ones_like(chosen) if self._rows_per_sequence is None else self._rows_per_sequence[chosen]
            complete += self.call.store(self, chosen.tolist(), split(rows, counts.tolist()))
        return complete

    def together(self, indices: Sequence[int]) -> Tensor:
        """The rows of some sequences."""
        rows = [self.rows[index] for index in indices]
        return library_of(rows[0]).concatenate(rows)


class Call:
    """Items of jobs of one kind, encoded together, and their rows, in one run of an encoder.

    Args:
        slices: one of each job.
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
        self._has_run, self._lock = False, threading.Lock()
        job, first, end = slices[0]
        self._first = job.positions[first]  # position of the first item in its request
        if is_literal:
            self._owners = [(job, number) for number in job.number_at[self._first : job.positions[end - 1] + 1]]
        else:
            self._owners = [(job, number) for job, first, end in slices for number in range(first, end)]
        self.items = [job.items[number] for job, number in self._owners]
        self._counts = [(0, 0, 0, 0)] * len(self.items)

    @property
    def ticket(self) -> Ticket:
        """That of the only job."""
        (job,) = self.jobs
        return job.ticket

    def start(self, may_run: Callable[[Run], bool]) -> list[Outcome] | None:
        """Compute the items, as far as runs of encoders may be computed at once; the outcomes of the jobs that this
        ended.

        Returns:
            None if sequences have to wait, or steps are left.

        Raises:
            BertkitError: an item that the verb does not accept.
        """
        for job in self.jobs:
            job.start()
        self._may_run, self._began = may_run, time.perf_counter()
        try:
            results = self._all_results()
        except _Waits:
            return None
        finally:
            del self._may_run  # which knows the work that may compute this call
        return None if results is None else self._spread(range(len(self.items)), results)

    def _all_results(self) -> Results | None:
        report = InferenceReport(num_texts=self._first)
        results = self._results(self.items, report, None)
        if not self._has_run:
            if len(self.jobs) > 1:
                raise LookupError("the counts of each job are unknown")
            self.ticket.num_tokens += report.num_tokens
            self.ticket.count(report.num_texts_cut, report)
        return results

    def _results(
        self, items: Sequence[Any], report: InferenceReport, known: tuple[Run, list[int]] | None
    ) -> Results | None:
        """The results of some items, in a run of the encoder, or from the rows of a known one with these items."""
        _thread.call, _thread.known = self, known
        try:
            return self.verb.compute(items, report)
        finally:
            _thread.call = _thread.known = None

    def run(
        self,
        runner: Runner,
        encodings: Encodings,
        forward: Forward,
        rows_per_sequence: np.ndarray | None,
        compute: Callable[[], Tensor],
    ) -> Tensor:
        """`Runner.run` inside the call, which ``compute`` does at once."""
        known, _thread.known = _thread.known, None
        if known is not None:
            run, items = known
            return run.together([index for item in items for index in self._sequences_of(item)])
        if self._has_run:  # another run than the first of the verb
            return compute()
        self._has_run = True
        self._note(encodings)
        self._end_tokenization()
        if self.verb.bytes_per_token:
            self._reserve()
        return self._at_once(Run(self, runner, encodings, forward, rows_per_sequence), compute)

    def _end_tokenization(self) -> None:
        for job in self.jobs:
            job.ticket.tokenization_seconds += time.perf_counter() - self._began

    def _at_once(self, run: Run, compute: Callable[[], Tensor]) -> Tensor:
        """The rows of a run; if it may not be computed at once, it waits."""
        if not self._may_run(run):
            self.waiting = run
            raise _Waits
        self.computed.append((len(run.lengths), sum(run.lengths)))
        return compute()

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

    def _note(self, encodings: Encodings) -> None:
        counts = [encodings.seqlens, encodings.num_tokens_cut, encodings.num_unknown, encodings.are_empty()]
        numbers = range(len(self.items) + 1)
        self._item_of, self._bounds = [*numbers[:-1]], [*numbers]  # of each sequence, and of each item
        if len(encodings) != len(self.items):  # windows
            self._item_of = encodings.text_index.tolist()
            self._bounds = np.searchsorted(encodings.text_index, numbers).tolist()
            counts = [np.bincount(encodings.text_index, row, numbers[-1]).astype(np.int64) for row in counts]
        self._counts = list(zip(*(row.tolist() for row in counts), strict=True))  # of each item
        self._missing = [end - start for start, end in pairwise(self._bounds)]

    def _sequences_of(self, item: int) -> range:
        return range(self._bounds[item], self._bounds[item + 1])

    def parts(self) -> Iterator[tuple[Job, Part]]:
        """The waiting sequences of each job."""
        wanted: dict[Job, list[int]] = {}
        for index, item in enumerate(self._item_of):
            wanted.setdefault(self._owners[item][0], []).append(index)
        run, self.waiting = self.waiting, None
        for job, indices in wanted.items():
            yield job, Part(job, run, indices)

    def store(self, run: Run, indices: list[int], rows: Sequence[Tensor]) -> list[int]:
        """Store the rows of some sequences; the items that have all of theirs now."""
        complete = []
        with self._lock:
            for index, part in zip(indices, rows, strict=True):
                item = self._item_of[index]
                run.rows[index] = part
                self._missing[item] -= 1
                if not self._missing[item]:
                    complete.append(item)
        return complete

    def finish(self, run: Run, items: list[int]) -> list[Outcome] | None:
        """Compute the results of items that have all of their rows; the outcomes of the jobs that this ended; None if
        it waits again. An error reaches only the job of its item."""
        try:
            results = self._results([self.items[item] for item in items], InferenceReport(), (run, items))
        except Exception as error:
            if len(items) > 1:
                return [outcome for item in items for outcome in self.finish(run, [item]) or ()]
            self._owners[items[0]][0].outcome.fail(error)
            return []
        assert results is not None
        for item in items:
            for index in self._sequences_of(item):
                del run.rows[index]
        return self._spread(items, results)

    def _spread(self, items: Sequence[int], results: Results) -> list[Outcome]:
        ended = []
        for item, result in zip(items, results, strict=True):
            job, number = self._owners[item]
            if job.store(number, result, self._counts[item]) and not job.is_done:
                job.end()
                ended.append(job.outcome)
        return ended


class WholeCall(Call):
    """Items of one job, with any number of runs of encoders. The rows of each are found again by its sequences, not by
    its place among the runs: an index can change in between."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        super().__init__(slices)
        self._known: dict[Hashable, Tensor] = {}

    def _all_results(self) -> Results | None:
        self._num_asked = Counter[Hashable]()
        report = InferenceReport(num_texts=self._first)
        results = self._results(self.items, report, None)
        self.ticket.count(report.num_texts_cut, report)
        return results

    def run(
        self,
        runner: Runner,
        encodings: Encodings,
        forward: Forward,
        rows_per_sequence: np.ndarray | None,
        compute: Callable[[], Tensor],
    ) -> Tensor:
        """See `Call.run`."""
        sequences = id(runner.encoder), encodings.input_ids.tobytes(), encodings.seqlens.tobytes()
        self._num_asked[sequences] += 1
        key = sequences, self._num_asked[sequences]
        if key not in self._known:
            if not self._has_run:
                self._end_tokenization()
            self._has_run = True
            self.ticket.num_tokens += len(encodings.input_ids)
            self._key = key
            self._known[key] = self._at_once(Run(self, runner, encodings, forward, rows_per_sequence), compute)
        return self._known[key]

    def parts(self) -> Iterator[tuple[Job, Part]]:
        """See `Call.parts`."""
        run, self.waiting = self.waiting, None
        assert run is not None
        yield self.jobs[0], Part(self.jobs[0], run, list(range(len(run.lengths))))

    def store(self, run: Run, indices: list[int], rows: Sequence[Tensor]) -> list[int]:
        """See `Call.store`."""
        with self._lock:
            run.rows.update(zip(indices, rows, strict=True))
            return [0] if len(run.rows) == len(run.lengths) else []

    def finish(self, run: Run, items: list[int]) -> list[Outcome] | None:
        """Call the verb again, now that the run that it waited for has its rows; see `Call.finish`."""
        self._known[self._key] = run.together(range(len(run.lengths)))
        try:
            return self.start(lambda run: False)
        except Exception as error:
            self.jobs[0].outcome.fail(error)
            return []


def compute(batch: TakenBatch, most: int) -> tuple[list[Outcome], list[Call]]:
    """Run the encoder once for all sequences of a batch for which a job still waits, and the calls for their own.

    Args:
        most: tokens that a call computes at a time. Equal sequences of calls share one of the batch, and could have
            any number of tokens together.

    Returns:
        The outcomes of the jobs that this ended, and the calls that wait again.
    """
    wanted: dict[Run, dict[int, int]] = {}  # numbers in the batch, by run and index
    for part, index, number in batch.waiting:
        if not part.job.is_done:
            part.job.start()
            wanted.setdefault(part.call, {})[index] = number
    ended: list[Outcome] = []
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
            outcomes = run.call.finish(run, complete)
            ended += outcomes or ()
            others += [run.call] if outcomes is None else []
    return ended, others


class _Thread(threading.local):
    call: Call | None = None
    known: tuple[Run, list[int]] | None = None  # a run of the call, and its items whose rows are there


_thread = _Thread()


def current_call() -> Call | None:
    """The call in progress on this thread."""
    return _thread.call
