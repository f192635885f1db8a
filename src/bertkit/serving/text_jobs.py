"""Calls whose texts are tokenized on the core that computes them, together with those of equal calls of other requests.

One call of the library for all that wait costs little more Python than one for a single text, and the event loop is
woken once for all of their answers.
"""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from bertkit.inference import Runner
from bertkit.serving.answers import Answer
from bertkit.serving.queue import Queued, TakenBatch
from bertkit.serving.ticket import Ticket
from bertkit.tokenizer import Encodings

Results = Sequence[Any] | np.ndarray
Finish = Callable[[Any, Ticket], Any]
"""From the results of a request's texts, in order, to the body of its answer."""


class Verb(Hashable, Protocol):
    """A method of a model with its options. Calls of equal verbs are computed together."""

    @property
    def runner(self) -> Runner: ...

    @property
    def most_tokens(self) -> int | None:
        """Length to which longer texts are cut; None: all of a text is computed."""

    def compute(self, items: Sequence[Any], ticket: Ticket) -> Results:
        """The result of each text or pair; counts of what was cut are added to the ticket."""


class TextJob(Queued):
    """The texts or pairs of a request.

    Args:
        finish: called on the thread that computed the last text.
        alone: computes the answer without the items of other requests, on another thread.
    """

    def __init__(
        self, verb: Verb, items: Sequence[Any], finish: Finish, answer: Answer, alone: Callable[[], object]
    ) -> None:
        super().__init__(answer.ticket, [_likely_tokens(item, verb.most_tokens) for item in items])
        self.verb, self.items, self.runner, self.answer = verb, items, verb.runner, answer
        self._finish, self._alone, self._joined = finish, alone, time.perf_counter()
        self._is_alone = False
        self._results: list[Any] = [None] * len(items)

    @property
    def group(self) -> Hashable:
        """See `Queued.group`; texts and pairs do not share a batch."""
        return self.verb, isinstance(self.items[0], str)

    @property
    def is_done(self) -> bool:
        return self.answer.is_ended or self._is_alone

    def key(self, index: int) -> Hashable:
        """Equal for equal texts of equal verbs."""
        return self.verb, self.items[index]

    def fail(self, error: BaseException) -> None:
        """See `Queued.fail`."""
        self.answer.fail(error)

    def compute(self, batch: TakenBatch) -> int:
        """See `Queued.compute`."""
        jobs = [job for job in cast(dict[TextJob, list[tuple[int, int]]], batch.waiting) if not job.is_done]
        ended: list[Answer] = []
        num_tokens = self._compute(jobs, batch, ended)
        self.answer.answers.put(ended)
        return num_tokens

    def _compute(self, jobs: list["TextJob"], batch: TakenBatch, ended: list[Answer]) -> int:
        """Compute what some jobs wait for; those whose last items these are end. Returns the number of tokens."""
        numbers = sorted({number for job in jobs for _, number in batch.waiting[job]})
        if not numbers:
            return 0  # all of them were canceled
        run = _Run(len(numbers))
        try:
            results = run.results(
                self.verb, [cast(TextJob, job).items[i] for job, i in map(batch.sequences.__getitem__, numbers)]
            )
        except Exception as error:  # of one of the texts
            if len(jobs) > 1:
                return sum(self._compute([job], batch, ended) for job in jobs)
            jobs[0]._explain(error)
            return run.num_tokens
        rows = dict(zip(numbers, range(len(numbers)), strict=True))
        for job in jobs:
            job._store([(index, rows[number]) for index, number in batch.waiting[job]], results, run)
            if job.have_come(len(batch.waiting[job])) and not job.is_done:
                job._end(run)
                ended.append(job.answer)
        return run.num_tokens

    def _explain(self, error: Exception) -> None:
        """End with an error of an item; if there are several, the whole request is computed, as it names the item."""
        if len(self.items) == 1:
            self.fail(error)
            return
        with self.lock:
            was_alone, self._is_alone = self._is_alone, True
            ticket = self.ticket
            ticket.num_tokens = ticket.num_inputs_cut = ticket.num_tokens_cut = 0
            ticket.num_tokens_unknown = ticket.num_inputs_empty = 0
        if not was_alone:
            self._alone()

    def _store(self, numbers: list[tuple[int, int]], results: Results, run: "_Run") -> None:
        """Store some results, by index in the job and in the run."""
        ticket = self.ticket
        with self.lock:  # several threads compute a job
            if self._is_alone:
                return
            for index, number in numbers:
                self._results[index] = results[number]
                ticket.num_tokens += run.tokens[number]
                ticket.num_inputs_cut += run.tokens_cut[number] > 0
                ticket.num_tokens_cut += run.tokens_cut[number]
                ticket.num_tokens_unknown += run.tokens_unknown[number]
                ticket.num_inputs_empty += run.are_empty[number]
            ticket.tokenization_seconds += run.tokenized - run.started

    def _end(self, run: "_Run") -> None:
        ticket, began = self.ticket, self.started or run.started
        ticket.queue_seconds += began - self._joined
        ticket.inference_seconds += max(0.0, time.perf_counter() - began - ticket.tokenization_seconds)
        self.answer.end(lambda: self._finish(self._results, ticket))


@dataclass
class _Run:
    """One call of a verb on this thread, with the numbers of tokens of its texts."""

    num_items: int
    started: float = 0.0
    tokenized: float = 0.0
    num_tokens: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.tokens_cut = self.tokens_unknown = self.are_empty = [0] * self.num_items

    def results(self, verb: Verb, items: Sequence[Any]) -> Results:
        """The results of the items."""
        self.started = self.tokenized = time.perf_counter()
        _thread.run = self
        try:
            return verb.compute(items, Ticket(None, float("inf")))
        finally:
            _thread.run = None

    def note(self, encodings: Encodings) -> None:
        """Note the tokens of the texts, which are about to be computed."""
        self.tokenized = time.perf_counter()
        self.num_tokens += len(encodings.input_ids)
        counts = [encodings.seqlens, encodings.num_tokens_cut, encodings.num_unknown, encodings.are_empty()]
        if len(encodings) != self.num_items:  # windows
            counts = [np.bincount(encodings.text_index, numbers, self.num_items).astype(np.int64) for numbers in counts]
        self.tokens, self.tokens_cut, self.tokens_unknown, self.are_empty = (numbers.tolist() for numbers in counts)


_thread = threading.local()


def noted_run() -> _Run | None:
    """The run of this thread, None outside of `TextJob.compute`."""
    return getattr(_thread, "run", None)


def _likely_tokens(item: str | Sequence[str], most: int | None) -> int:
    """Number of tokens of a text or pair, before it is tokenized: for the sizes of batches."""
    texts = [item] if isinstance(item, str) else item
    number = 2 + sum(len(text) // 4 + 1 if text.isascii() else len(text) for text in texts)
    return number if most is None else min(number, most)
