"""Calls whose texts are tokenized on the core that computes them, together with those of equal calls of other requests.

Most requests have a short text. One call of the library for all that wait costs little more Python than one for a
single text, and the event loop is woken once for all of their answers.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import orjson

from bertkit.inference import Runner
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
    """

    def __init__(self, verb: Verb, items: Sequence[Any], finish: Finish, ticket: Ticket, answers: "Answers") -> None:
        super().__init__(ticket, [_likely_tokens(item, verb.most_tokens) for item in items])
        self.verb, self.items, self.runner = verb, items, verb.runner
        self.joined = time.perf_counter()
        self.answer = b""  # JSON
        self.future: asyncio.Future[bytes] = answers.loop.create_future()
        self._finish, self._answers, self._is_done = finish, answers, False
        self._results: list[Any] = [None] * len(items)

    @property
    def group(self) -> Hashable:
        """See `Queued.group`."""
        return self.verb

    @property
    def is_done(self) -> bool:
        return self._is_done

    def key(self, index: int) -> Hashable:
        """Equal for equal texts of equal verbs."""
        return self.verb, self.items[index]

    def fail(self, error: BaseException) -> None:
        """See `Queued.fail`."""
        if not self._is_done:
            self._is_done, self.error = True, error
            self._answers.put([self])

    def compute(self, batch: TakenBatch) -> int:
        """See `Queued.compute`."""
        jobs = [job for job in cast(dict[TextJob, list[tuple[int, int]]], batch.waiting) if not job.is_done]
        if not jobs:
            return 0  # all of them were canceled
        items = [cast(TextJob, job).items[index] for job, index in batch.sequences]
        run = _Run(len(items))
        try:
            results = run.results(self.verb, items)
        except Exception:  # of which text?
            for job in jobs:
                job._compute_alone()
        else:
            for job in jobs:
                job._store(batch.waiting[job], results, run)
                if job.have_come(len(batch.waiting[job])):
                    job._make_answer(run)
        self._answers.put([job for job in jobs if job.is_done])
        return run.num_tokens

    def _compute_alone(self) -> None:
        """Compute all items of this job without those of others."""
        run, ticket = _Run(len(self.items)), self.ticket
        ticket.num_tokens = ticket.num_inputs_cut = ticket.num_tokens_cut = 0
        ticket.num_tokens_unknown = ticket.num_inputs_empty = 0
        try:
            results = run.results(self.verb, self.items)
        except BaseException as error:
            self.error, self._is_done = error, True
        else:
            self._store([(index, index) for index in range(len(self.items))], results, run)
            self._make_answer(run)

    def _store(self, numbers: list[tuple[int, int]], results: Results, run: "_Run") -> None:
        """Store some results, by index in the job and in the run."""
        ticket = self.ticket
        for index, number in numbers:
            self._results[index] = results[number]
            ticket.num_tokens += run.tokens[number]
            ticket.num_inputs_cut += run.tokens_cut[number] > 0
            ticket.num_tokens_cut += run.tokens_cut[number]
            ticket.num_tokens_unknown += run.tokens_unknown[number]
            ticket.num_inputs_empty += run.are_empty[number]
        ticket.tokenization_seconds += run.tokenized - run.started

    def _make_answer(self, run: "_Run") -> None:
        ticket = self.ticket
        began = self.started or run.started
        ticket.queue_seconds += began - self.joined
        ticket.inference_seconds += max(0.0, time.perf_counter() - began - ticket.tokenization_seconds)
        try:
            self.answer = orjson.dumps(self._finish(self._results, ticket), option=orjson.OPT_SERIALIZE_NUMPY)
        except BaseException as error:  # includes panics of foreign libraries: the thread must survive
            self.error = error
        self._is_done = True

    def resolve(self) -> None:
        """Give the answer, or the error, to the coroutine that waits; on the event loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.answer)
        else:
            self.future.set_exception(self.error)


class Answers:
    """Finished jobs on their way to the event loop, which is woken once for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._jobs: deque[TextJob] = deque()
        self._is_woken = False

    def put(self, jobs: Sequence[TextJob]) -> None:
        """Resolve the jobs on the event loop; from any thread."""
        self._jobs.extend(jobs)
        if self._jobs and not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        self._is_woken = False
        while self._jobs:
            self._jobs.popleft().resolve()


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
