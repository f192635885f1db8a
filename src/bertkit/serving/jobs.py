"""Jobs: what one request asks of a model, encoded and computed together with others.

A verb is a method of the library with its options. A `Call` is one call of it for items of several jobs, in two parts:
up to its run of the encoder, which gives the sequences for the queue; and, when their rows have been computed, again,
with these rows in place of the run. So each method shares batches, and none of them knows.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from bertkit.batch import Batch, length_sorted_batches
from bertkit.errors import BertkitError
from bertkit.inference import InferenceReport, Runner
from bertkit.later import Tensor
from bertkit.serving.queue import Part, TakenBatch
from bertkit.serving.shared_run import SharedRun
from bertkit.serving.ticket import Outcome, Ticket
from bertkit.tokenizer import Encodings
from bertkit.transformer.kernels.arrays import library_of, split

Results = Sequence[Any] | np.ndarray
Finish = Callable[[Any, Ticket], Any]
"""From the results of a request's items, in order, to its answer."""


class Verb(Hashable, Protocol):
    """A method of a model with its options. Items of equal verbs are encoded together."""

    @property
    def runner(self) -> Runner: ...

    def likely_tokens(self, item: Any) -> int:
        """Number of tokens of an item, before it is encoded."""

    @property
    def bytes_per_token(self) -> int:
        """About the size of an answer, for verbs whose answers are far larger than their requests; else 0."""

    def compute(self, items: Sequence[Any], report: InferenceReport) -> Results:
        """The result of each item, with one run of the encoder."""


class Job:
    """The items of a request for a verb; equal ones are computed once.

    Args:
        finish: called on the thread that computed the last item.
        is_encoded: the items are sequences, which need not be encoded a few at a time.
    """

    def __init__(
        self,
        verb: Verb,
        items: Sequence[Any],
        finish: Finish,
        outcome: Outcome,
        *,
        is_encoded: bool = False,
    ) -> None:
        self.verb, self.outcome, self.ticket = verb, outcome, outcome.ticket
        self.positions: list[int] = []  # of distinct items
        self.number_at: list[int] = []  # of each position: the number of its item
        numbers: dict[Hashable, int] = {}
        for position, item in enumerate(items):
            key = item if isinstance(item, str | tuple) else (id(item), position)
            self.number_at.append(numbers.setdefault(key, len(numbers)))
            if len(numbers) > len(self.positions):
                self.positions.append(position)
        self.items = [items[position] for position in self.positions]
        self.copies = Counter(self.number_at)  # by number
        self.likely_tokens = [verb.likely_tokens(item) for item in self.items]
        self.num_encoded = 0  # items
        self.parts: list[Part] = []
        self.is_encoded = is_encoded
        self.with_room = set[int]()  # items for whose results there is room
        self._finish, self._lock = finish, threading.Lock()
        self._results: list[Any] = [None] * len(self.items)
        self._missing = set(range(len(self.items)))
        self._joined, self._started = time.perf_counter(), 0.0

    @property
    def is_done(self) -> bool:
        return self.outcome.is_ended or self.ticket.is_canceled

    @property
    def kind(self) -> Hashable:
        """Equal for jobs that share calls: texts and pairs do not."""
        return self.verb, type(self.items[0])

    def start(self) -> None:
        """Note the time at which a core begins with it."""
        self._started = self._started or time.perf_counter()

    def store(self, number: int, result: Any, counts: Sequence[int]) -> bool:
        """Store the result of an item, and count its tokens; True if it was the last one that was missing."""
        num_tokens, num_cut, num_unknown, is_empty = counts
        ticket, copies = self.ticket, self.copies[number]
        with self._lock:
            if number not in self._missing:
                return False
            self._missing.remove(number)
            self._results[number] = result
            ticket.num_tokens += copies * num_tokens
            ticket.num_inputs_cut += copies * (num_cut > 0)
            ticket.num_tokens_cut += copies * num_cut
            ticket.num_tokens_unknown += copies * num_unknown
            ticket.num_inputs_empty += copies * (is_empty > 0)
            return not self._missing

    def end(self) -> None:
        """Make the answer of the results."""
        ticket, began = self.ticket, self._started
        ticket.queue_seconds += began - self._joined
        ticket.inference_seconds += max(0.0, time.perf_counter() - began - ticket.tokenization_seconds)
        results = [self._results[number] for number in self.number_at]
        self.outcome.end(lambda: self._finish(results, ticket))


Slice = tuple[Job, int, int]
"""A job, and the first and the end of some of its items."""


@dataclass
class _Sequence:
    """A sequence for `collate`."""

    input_ids: np.ndarray
    token_type_ids: np.ndarray

    def __len__(self) -> int:
        return len(self.input_ids)


class _Waits(BaseException):
    """Ends the first part of a call: its rows are not there yet."""


class Call:
    """Items of jobs of one kind, encoded together, and their rows.

    Args:
        slices: one of each job.
        is_literal: the items of the only slice as the request gives them, with those that are equal, so that an error
            names one by its index there.
    """

    def __init__(self, slices: Sequence[Slice], *, is_literal: bool = False) -> None:
        self.jobs = [job for job, _, _ in slices]
        self.verb = self.jobs[0].verb
        self.lengths: list[int] = []  # of the sequences
        self._rows: dict[int, Tensor] = {}  # of each sequence
        self._encodings: Encodings | None = None
        self._lock = threading.Lock()
        job, first, end = slices[0]
        self._first = job.positions[first]  # position of the first item in its request
        if is_literal:
            self._owners = [(job, number) for number in job.number_at[self._first : job.positions[end - 1] + 1]]
        else:
            self._owners = [(job, number) for job, first, end in slices for number in range(first, end)]
        self.items = [job.items[number] for job, number in self._owners]

    @property
    def group(self) -> Hashable:
        """See `queue.Part`."""
        return id(self.verb.runner.encoder)

    def key(self, index: int) -> Hashable:
        """See `queue.Part`."""
        return self._keys[index]

    @property
    def runner(self) -> Runner:
        return self.verb.runner

    @property
    def is_distinct(self) -> bool:
        """Whether no two sequences are equal."""
        return len(set(self._keys)) == len(self._keys)

    def start(self, may_run: Callable[["Call"], bool]) -> list[Outcome] | None:
        """Encode the items, and compute them if they may run at once; the outcomes of the jobs that this ended.

        Returns:
            None if the sequences have to wait.

        Raises:
            BertkitError: an item that the verb does not accept.
        """
        for job in self.jobs:
            job.start()
        self._may_run, self._began = may_run, time.perf_counter()
        report = InferenceReport(num_texts=self._first)
        try:
            results = self._results(self.items, report, None)
        except _Waits:
            return None
        finally:
            del self._may_run  # which knows the work that may compute this call
        if self._encodings is None:  # the verb computes without the encoder
            if len(self.jobs) > 1:
                raise LookupError("the counts of each job are unknown")
            (job,) = self.jobs
            job.ticket.num_tokens += report.num_tokens
            job.ticket.count(report.num_texts_cut, report)
            self._counts = [(0, 0, 0, 0)] * len(self.items)
        return self._spread(range(len(self.items)), results)

    def _results(self, items: Sequence[Any], report: InferenceReport, chosen: list[int] | None) -> Results:
        """The results of some items, in a run of the encoder, or from the rows of the chosen ones in its place."""
        _thread.call, _thread.chosen = self, chosen
        try:
            return self.verb.compute(items, report)
        finally:
            _thread.call = None

    def run(
        self,
        encodings: Encodings,
        forward: Callable[[Batch, np.ndarray], Tensor],
        rows_per_sequence: np.ndarray | None,
        compute: Callable[[], Tensor],
    ) -> Tensor:
        """`Runner.run` inside the call, which ``compute`` does at once."""
        chosen, _thread.chosen = _thread.chosen, None
        if chosen is not None:
            rows = [self._rows[index] for item in chosen for index in self._sequences_of(item)]
            return library_of(rows[0]).concatenate(rows)
        if self._encodings is not None:  # another run than the first of the verb
            return compute()
        self._forward, self._rows_per_sequence = forward, rows_per_sequence
        self._note(encodings)
        for job in self.jobs:
            job.ticket.tokenization_seconds += time.perf_counter() - self._began
        if self.verb.bytes_per_token:
            self._reserve()
        if self._may_run(self):
            return compute()
        raise _Waits

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
        self._encodings = encodings
        bounds, ids, types = encodings.cu_seqlens.tolist(), encodings.input_ids, encodings.token_type_ids
        self.lengths = encodings.seqlens.tolist()
        parts = [slice(start, end) for start, end in pairwise(bounds)]
        self._keys = [(self.group, ids[part].tobytes(), types[part].tobytes()) for part in parts]
        counts = [encodings.seqlens, encodings.num_tokens_cut, encodings.num_unknown, encodings.are_empty()]
        numbers = range(len(self.items) + 1)
        self._item_of, self._bounds = [*numbers[:-1]], [*numbers]  # of each sequence, and of each item
        if len(encodings) != len(self.items):  # windows
            self._item_of = encodings.text_index.tolist()
            self._bounds = np.searchsorted(encodings.text_index, numbers).tolist()
            counts = [np.bincount(encodings.text_index, row, numbers[-1]).astype(np.int64) for row in counts]
        self._counts = list(zip(*(row.tolist() for row in counts), strict=True))  # of each item
        self._missing = [end - start for start, end in pairwise(self._bounds)]

    def sequence(self, index: int) -> "_Sequence":
        """A sequence, for `collate`."""
        encodings = self._encodings
        assert encodings is not None
        tokens = slice(*encodings.cu_seqlens[index : index + 2].tolist())
        return _Sequence(encodings.input_ids[tokens], encodings.token_type_ids[tokens])

    def _sequences_of(self, item: int) -> range:
        return range(self._bounds[item], self._bounds[item + 1])

    def parts(self) -> Iterator[tuple[Job, Part]]:
        """The sequences of each job, for which there is room in its answer."""
        wanted: dict[Job, list[int]] = {}
        for index, item in enumerate(self._item_of):
            wanted.setdefault(self._owners[item][0], []).append(index)
        for job, indices in wanted.items():
            yield job, Part(job, self, indices)

    def compute(self, indices: np.ndarray, numbers: np.ndarray, shared: "SharedRun", most: int) -> list[int]:
        """Compute the rows of some sequences from those with the ``numbers`` in a run of the encoder, in steps of at
        most so many tokens; returns the items whose last rows these are."""
        assert self._encodings is not None
        complete: list[int] = []
        lengths = self._encodings.seqlens[indices]
        for step in length_sorted_batches(lengths, most) if lengths.sum() > most else [slice(None)]:
            chosen = indices[step]
            batch = self.runner.collate(self._encodings.take(chosen))
            rows = shared.rows(numbers[step], partial(self._forward, batch, chosen))
            counts = np.ones_like(chosen) if self._rows_per_sequence is None else self._rows_per_sequence[chosen]
            with self._lock:
                for index, part in zip(chosen.tolist(), split(rows, counts.tolist()), strict=True):
                    item = self._item_of[index]
                    self._rows[index] = part
                    self._missing[item] -= 1
                    if not self._missing[item]:
                        complete.append(item)
        return complete

    def finish(self, items: list[int]) -> list[Outcome]:
        """Compute the results of items that have all of their rows; the outcomes of the jobs that this ended. An error
        reaches only the job of its item."""
        try:
            results = self._results([self.items[item] for item in items], InferenceReport(), items)
        except Exception as error:
            if len(items) > 1:
                return [outcome for item in items for outcome in self.finish([item])]
            self._owners[items[0]][0].outcome.fail(error)
            return []
        for item in items:
            for index in self._sequences_of(item):
                del self._rows[index]
        return self._spread(items, results)

    def _spread(self, items: Sequence[int], results: Results) -> list[Outcome]:
        ended = []
        for item, result in zip(items, results, strict=True):
            job, number = self._owners[item]
            if job.store(number, result, self._counts[item]) and not job.is_done:
                job.end()
                ended.append(job.outcome)
        return ended


def compute(batch: TakenBatch, most: int) -> list[Outcome]:
    """Run the encoder once for all sequences of a batch for which a job still waits, and the calls for their own; the
    outcomes of the jobs that this ended.

    Args:
        most: tokens that a call computes at a time. Equal sequences of calls share one of the batch, and could have
            any number of tokens together.
    """
    wanted: dict[Call, dict[int, int]] = {}  # numbers in the batch, by call and index
    for part, index, number in batch.waiting:
        if not part.job.is_done:
            part.job.start()
            wanted.setdefault(part.call, {})[index] = number
    if not wanted:
        return []
    needed = sorted({number for numbers in wanted.values() for number in numbers.values()})
    sequences = [(part.call, index) for part, index in map(batch.sequences.__getitem__, needed)]
    shared = SharedRun(sequences[0][0].runner.collate([call.sequence(index) for call, index in sequences]))
    ended: list[Outcome] = []
    for call, numbers in wanted.items():
        indices, at = np.array(list(numbers.items())).T
        try:
            complete = call.compute(indices, np.searchsorted(needed, at), shared, max(most, batch.num_tokens))
        except Exception as error:
            for part, _, _ in batch.waiting:
                if part.call is call:
                    part.job.outcome.fail(error)
            continue
        if complete:
            ended += call.finish(complete)
    return ended


class _Thread(threading.local):
    call: Call | None = None
    chosen: list[int] | None = None  # items of the call whose rows are there


_thread = _Thread()


def current_call() -> Call | None:
    """The call in progress on this thread."""
    return _thread.call


def likely_tokens(item: Any, most: int | None) -> int:
    """Number of tokens of a text, or of texts together, that are cut to ``most``, if it is given."""
    texts = [item] if isinstance(item, str) else map(str, item)
    number = 2 + sum(len(text) // 4 + 1 if text.isascii() else len(text) for text in texts)
    return number if most is None else min(number, most)
