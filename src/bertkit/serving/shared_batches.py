"""Shared batches: sequences of several requests that wait when a core becomes free are computed in one encoder run.

Requests in progress call the methods of a `SharedModel` like those of any Model. Instead of running the
encoder, a method adds its sequences to the queue; batches run on single cores of the executor, as soon as one is free,
without a timer. Vectors are bit-identical to those of each text alone. A batch does not use several cores, since
threads that share a product wait for each other, and for the thread that reads the next request; only a text that has
the machine to itself does.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from bertkit.batch import collate
from bertkit.executor import Executor, executor
from bertkit.inference.runner import inferred
from bertkit.model import Model
from bertkit.serving.answers import yield_to_event_loop
from bertkit.serving.encoded_jobs import Job
from bertkit.serving.queue import SHORT_TOKENS, Queue, Queued, TakenBatch
from bertkit.serving.refusals import Canceled, Overloaded, TimedOut
from bertkit.serving.settings import ServerSettings
from bertkit.serving.ticket import Ticket
from bertkit.tokenizer import Vocabulary
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.row_invariance import ROW_COUNTS

Result = TypeVar("Result")

_LONG_TOKENS = 2 * SHORT_TOKENS
"""Token count above which a batch is long. While all cores work on long batches, an extra thread computes short
jobs."""

_LONE_TOKENS = 64
"""Most tokens of a text that is computed on all cores; memory of products grows with them."""

_SHARE_UNDISTURBED = 0.8
"""A text that arrives alone is computed on all cores if at least this share of such texts stayed alone until they were
computed: all cores finish it sooner, but use more processor time for it."""

_SMALL_BATCH_TOKENS = 192
"""Minimum token limit of a batch: a core may take this number even if few tokens wait."""


class Turns:
    """A context that few threads enter at the same time, in the order in which they come."""

    def __init__(self, num_threads: int) -> None:
        self.num_wanted = 0  # threads inside or waiting
        self._num_threads, self._lock = num_threads, threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        gate = threading.Lock()
        with self._lock:
            self.num_wanted += 1
            if self.num_wanted <= self._num_threads:
                return
            gate.acquire()
            self._waiting.append(gate)
        gate.acquire()  # until it is released by a thread that leaves

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.num_wanted -= 1
            if self._waiting:
                self._waiting.popleft().release()


class SharedBatches:
    """The queue of a process, and its workers.

    Args:
        on_batch: called with the number of sequences and of tokens of every batch.
    """

    def __init__(self, settings: ServerSettings, on_batch: Callable[[int, int], object] = lambda *_: None) -> None:
        self.settings, self._on_batch = settings, on_batch
        self.cores = executor()
        self._extra = Executor(1)  # shares the cores with long batches by preemption
        self._all_cores = ThreadPoolExecutor(1, "bertkit")  # for a text that has the machine to itself
        self._queue, self._lock = Queue(), threading.Lock()
        self._num_running, self._num_long, self._is_extra_running = 0, 0, False
        self.passes = Executor(self.cores.num_threads)  # of searches; share the cores by preemption
        self._turns = Turns(self.cores.num_threads)  # of generation; share the cores by preemption
        self._num_reserved = 0  # tokens of texts being generated
        self.num_batches = 0  # so far
        self._num_started = 0  # batches on cores
        self._share_undisturbed = 1.0  # of texts that came alone: those beside which no other came; a moving average
        self._seconds_per_token = 1e-4  # of all cores together, a moving average

    @property
    def num_waiting(self) -> int:
        """Number of waiting sequences."""
        return len(self._queue)

    @property
    def is_busy(self) -> bool:
        """Whether a core computes a batch, or a step of a text."""
        return bool(self._num_running or self._turns.num_wanted or self._is_extra_running)

    @property
    def seconds_waiting(self) -> float:
        """Expected seconds to compute the waiting sequences."""
        return (self._queue.num_tokens + self._num_reserved) * self._seconds_per_token

    def run(self, job: Job) -> list[tuple[np.ndarray, Tensor]]:
        """Compute a job; returns the rows of its sequences, in parts.

        Raises:
            Overloaded: the queue is full; nothing was computed.
            TimedOut, Canceled: the request ended before the job.
        """
        ticket = job.ticket
        joined = _join(ticket)
        ticket.on_cancel = lambda: job.fail(Canceled("the client closed the connection"))
        if ticket.is_canceled:  # meanwhile
            ticket.on_cancel()
        self.put(job)
        in_time = job.done.wait(max(0.0, min(ticket.seconds_left, threading.TIMEOUT_MAX)))
        if not in_time or job.error is not None:
            self.remove(job)
        ended = time.perf_counter()
        began = ended if job.started is None else job.started
        ticket.queue_seconds += began - joined
        ticket.inference_seconds += ended - began
        if job.error is not None:
            raise job.error
        if not in_time:
            raise TimedOut("the request waited for longer than its deadline allows", self.seconds_waiting)
        return job.results

    def put(self, job: Queued) -> None:
        """Add a call to the queue, and return.

        Raises:
            Overloaded: the queue is full; nothing was added.
        """
        with self._lock:
            self._admit(job.num_tokens_waiting)
            self._queue.put(job)
        self._start_batches()

    def remove(self, job: Queued) -> None:
        """Remove what is left of a call."""
        if job.pending:
            with self._lock:
                self._queue.remove(job)

    def _admit(self, num_tokens: int) -> None:
        waiting = self._queue.num_tokens + self._num_reserved
        if waiting and waiting + num_tokens > self.settings.max_queue_tokens:
            raise Overloaded("Model is overloaded", self.seconds_waiting)

    @contextmanager
    def reserved(self, num_tokens: int) -> Iterator[None]:
        """Room in the queue for a text to generate.

        Raises:
            Overloaded: there is none.
        """
        with self._lock:
            self._admit(num_tokens)
            self._num_reserved += num_tokens
        try:
            yield
        finally:
            with self._lock:
                self._num_reserved -= num_tokens

    def turn(self, work: Callable[[], Result], ticket: Ticket) -> Result:
        """``work()`` on this thread, in turns with the steps of other texts.

        Raises:
            TimedOut, Canceled: the request ended; nothing was computed.
        """
        joined = _join(ticket)
        if ticket.seconds_left <= 0:
            raise TimedOut("the request took longer than its deadline allows", self.seconds_waiting)
        with self._turns:
            began = time.perf_counter()
            try:
                return inferred(work)
            finally:
                ticket.queue_seconds += began - joined
                ticket.inference_seconds += time.perf_counter() - began

    def warm_up(self, model: Model) -> None:
        """Run batches of every shape, so that kernels are compiled and products checked before the first request."""
        runner = model._runner
        word = some_word(runner.tokenizer.vocabulary)
        most = min(64, runner.max_positions)

        def run(num_tokens: int, on: Callable[..., Future[Any]] = self.cores.submit) -> Future[EncoderOutput]:
            num_full, rest = divmod(num_tokens, most)
            lengths = [most] * num_full + [rest] * (rest > 2)
            texts = [" ".join([word] * (length - 2)) for length in lengths]
            batch = collate(runner.tokenizer.encode_batch(texts, max_length=most, on_long="truncate"))
            return on(inferred, partial(runner.encoder, batch.to(runner.device)))

        counts = ROW_COUNTS if runner.device.type == "cpu" else ROW_COUNTS[-1:]
        run(counts[0]).result()  # loads and compiles what all of them need
        for future in [run(count) for count in reversed(counts)]:
            future.result()
        for count in counts:
            if count <= _LONE_TOKENS:
                run(count, self._all_cores.submit).result()

    def _start_batches(self) -> None:
        """Start batches from the queue on free cores."""
        while True:
            with self._lock:
                if not len(self._queue):
                    return
                if self._num_running < self.cores.num_threads:
                    submit, *arguments = self._taken_for_cores()
                elif self._num_long == self._num_running and not self._is_extra_running:
                    batch = self._queue.take(lambda _: _LONG_TOKENS, short_only=True)
                    if not batch.sequences:
                        return
                    self._is_extra_running = True
                    submit, arguments = self._extra.submit, [batch, True, 1, 0]
                else:
                    return
            submit(self._compute, *arguments)

    def _taken_for_cores(self) -> tuple[Callable[..., Any], TakenBatch, bool, int, int]:
        """The next batch for free cores, counted as running: the function that starts it, and the arguments of
        `_compute`. Call it with the lock."""
        batch, submit = self._queue.take(self._budget), self.cores.submit
        num_used, came_alone = 1, 0  # cores; its number if no other text is there
        others = self._num_running + self._turns.num_wanted + self._is_extra_running + len(self._queue)
        self._num_started += 1
        if not others and len(batch.sequences) == 1 and batch.num_tokens_waiting <= _LONE_TOKENS:
            came_alone = self._num_started
            if self._share_undisturbed >= _SHARE_UNDISTURBED:
                submit, num_used = self._all_cores.submit, self.cores.num_threads
        self._num_running += num_used
        self._num_long += batch.num_tokens_waiting > _LONG_TOKENS
        return submit, batch, False, num_used, came_alone

    def _budget(self, job: Queued) -> int:
        """Maximum tokens of a batch: one core's share of the queue. Batches are small while the queue is short, so that
        the next requests start soon."""
        most = job.runner.tokens_per_batch(self._queue.num_tokens)
        share = max(_SMALL_BATCH_TOKENS, -(-self._queue.num_tokens // self.cores.num_threads))
        return min(most, share) if job.runner.device.type == "cpu" else most

    def _compute(self, batch: TakenBatch, is_extra: bool, num_cores: int, came_alone: int) -> None:
        yield_to_event_loop()
        started, num_tokens = time.perf_counter(), batch.num_tokens
        for job in batch.waiting:
            if job.started is None:
                job.started = started
        try:
            num_tokens = inferred(lambda: next(iter(batch.waiting)).compute(batch))
        except BaseException as error:  # includes panics of foreign libraries: the thread must survive
            for job in batch.waiting:
                job.fail(error)
        seconds = time.perf_counter() - started
        with self._lock:
            self.num_batches += 1
            if came_alone:
                was_undisturbed = came_alone == self._num_started and not len(self._queue)
                self._share_undisturbed += 0.1 * (was_undisturbed - self._share_undisturbed)
            if is_extra:
                self._is_extra_running = False
            else:
                self._num_running -= num_cores
                self._num_long -= batch.num_tokens_waiting > _LONG_TOKENS
                per_token = seconds / max(1, num_tokens) * num_cores / self.cores.num_threads
                self._seconds_per_token += 0.1 * (per_token - self._seconds_per_token)
        self._on_batch(len(batch.sequences), num_tokens)
        self._start_batches()


def some_word(vocabulary: Vocabulary) -> str:
    """A word of a vocabulary; of one without words, such as of numbers, any token."""
    return next((token for token in vocabulary.tokens if token.isalpha()), vocabulary.tokens[-1])


def _join(ticket: Ticket) -> float:
    """End the tokenization of a request that wants a core; the time of now, from `time.perf_counter`.

    Raises:
        Canceled: the client is gone.
    """
    joined = time.perf_counter()
    if ticket.work_started is not None:
        ticket.tokenization_seconds += joined - ticket.work_started
        ticket.work_started = None
    if ticket.is_canceled:
        raise Canceled("the client closed the connection")
    return joined
