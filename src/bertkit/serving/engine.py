"""The engine: one queue for all models of a process, and the cores that encode and compute what waits there. No other
thread works for a request, or waits for one.

A job that arrives is encoded by the next free core, together with others of its kind. Its sequences are computed at
once if nothing else waits, or else queued, and taken in batches as soon as a core is free, without a timer. Vectors are
bit-identical to those of each text alone. A batch does not use several cores, since threads that share a product wait
for each other, and for the thread that reads the next request; only a text that has the machine to itself does.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from bertkit.executor import Executor, executor
from bertkit.inference.runner import inferred
from bertkit.serving.calls import Call, Run, Slice, compute
from bertkit.serving.jobs import Job
from bertkit.serving.queue import SHORT_TOKENS, Queue, TakenBatch
from bertkit.serving.refusals import Overloaded, TimedOut
from bertkit.serving.settings import ServerSettings
from bertkit.serving.ticket import Answer, yield_to_event_loop

_LONG_TOKENS = 2 * SHORT_TOKENS
"""Token count above which a batch is long. While all cores work on long batches, an extra thread computes short
jobs."""

LONE_TOKENS = 64
"""Most tokens of a text that is computed on all cores; memory of products grows with them."""

_SHARE_UNDISTURBED = 0.8
"""A text that arrives alone is computed on all cores if at least this share of such texts stayed alone until they were
computed: all cores finish it sooner, but use more processor time for it."""

_SMALL_BATCH_TOKENS = 192
"""Minimum token limit of a batch: a core may take this number even if few tokens wait."""

_MOST_ITEMS, _MOST_LIKELY_TOKENS = 256, 4_096
"""Size of what a core encodes at a time; at least one item."""


@dataclass
class _Work:
    """What a core does next: encode some items, and compute a batch."""

    slices: list[Slice]
    batch: TakenBatch
    is_long: bool = False
    is_extra: bool = False  # on the extra thread
    num_cores: int = 1
    came_alone: int = 0  # its number if nothing else was there


class Engine:
    """The queue of a process, and its workers.

    Args:
        on_batch: called with the number of sequences and of tokens of every batch.
    """

    def __init__(self, settings: ServerSettings, on_batch: Callable[[int, int], object] = lambda *_: None) -> None:
        self.settings, self._on_batch = settings, on_batch
        self.cores = executor()
        self._extra = Executor(1)  # shares the cores with long batches by preemption
        self.all_cores = ThreadPoolExecutor(1, "bertkit")  # for a text that has the machine to itself
        self._arrived: OrderedDict[Hashable, deque[Job]] = OrderedDict()  # jobs to encode, by client
        self._num_arrived = self._num_arrived_tokens = 0  # items, and their likely tokens
        self._queue, self._lock = Queue(), threading.Lock()
        self._num_running, self._num_long, self._is_extra_running = 0, 0, False
        self.num_batches = 0  # so far
        self._num_started = 0  # works on cores
        self._share_undisturbed = 1.0  # of texts that came alone: those beside which no other came; a moving average
        self._seconds_per_token = 1e-4  # of all cores together, a moving average

    @property
    def num_waiting(self) -> int:
        """Number of waiting items and sequences."""
        return self._num_arrived + self._queue.num_sequences

    @property
    def num_tokens_waiting(self) -> int:
        """Number of tokens of waiting sequences, of items that are not encoded yet, and of texts to generate."""
        return self._num_arrived_tokens + self._queue.num_tokens

    @property
    def is_busy(self) -> bool:
        """Whether a core computes something."""
        return bool(self._num_running or self._is_extra_running)

    @property
    def seconds_waiting(self) -> float:
        """Expected seconds to compute what waits."""
        return self.num_tokens_waiting * self._seconds_per_token

    def put(self, job: Job) -> None:
        """Add a job, and return.

        Raises:
            Overloaded: the queue is full; nothing was added.
        """
        with self._lock:
            waiting, num_tokens = self.num_tokens_waiting, sum(job.likely_tokens)
            if waiting and waiting + num_tokens > self.settings.max_queue_tokens:
                raise Overloaded("Model is overloaded", self.seconds_waiting)
            self._line_up(job)
        self._start()

    def _line_up(self, job: Job) -> None:
        """Put a job at the end of those of its client. Call it with the lock."""
        self._arrived.setdefault(job.ticket.client, deque()).append(job)
        self._num_arrived += len(job.items) - job.num_encoded
        self._num_arrived_tokens += sum(job.likely_tokens[job.num_encoded :])

    def remove(self, job: Job) -> None:
        """Remove what waits of a job."""
        with self._lock:
            jobs = self._arrived.get(job.ticket.client, deque())
            if job in jobs:
                self._encode(job, len(job.items))
                jobs.remove(job)
            for part in job.parts:
                self._queue.remove(part)
            job.parts.clear()  # ends the reference cycle of job, call and part, which would keep a replaced model

    def _start(self) -> None:
        """Give free cores something to do."""
        while True:
            with self._lock:
                if not self.num_waiting:
                    return
                if self._num_running < self.cores.num_threads:
                    work = self._taken(is_extra=False)
                elif self._num_long == self._num_running and not self._is_extra_running:
                    work = self._taken(is_extra=True)
                else:
                    return
            if work is None:
                return
            threads = self._extra if work.is_extra else self.cores if work.num_cores == 1 else self.all_cores
            threads.submit(self._do, work)

    def _taken(self, *, is_extra: bool) -> _Work | None:
        """The next work, counted as running; None if there is none. Call it with the lock."""
        num_others = self._num_running + self._is_extra_running + self.num_waiting
        slices = self._taken_slices(short_only=is_extra)
        work = _Work(slices, TakenBatch() if slices else self._taken_batch(is_extra), is_extra=is_extra)
        num_tokens = sum(sum(job.likely_tokens[first:end]) for job, first, end in slices)
        if is_extra and (slices or work.batch.sequences):
            self._is_extra_running = True
        elif slices or work.batch.sequences:
            self._num_started += 1
            verb = slices[0][0].verb if slices else None
            if verb is not None and verb.is_wide and not (self._num_running or self.num_waiting):
                work.num_cores = self.cores.num_threads
            elif verb is not None and not verb.is_long and num_others == 1 and num_tokens <= LONE_TOKENS:
                work.came_alone = self._num_started
                if self._share_undisturbed >= _SHARE_UNDISTURBED:
                    work.num_cores = self.cores.num_threads
            self._num_running += work.num_cores
            self._note_length(work, max(num_tokens, work.batch.num_tokens_waiting))
        else:
            return None
        return work

    def _note_length(self, work: _Work, num_tokens: int) -> None:
        """Note whether a work on a core is long. Call it with the lock."""
        has_long = any(job.verb.is_long for job, _, _ in work.slices)
        is_long = not work.is_extra and (
            num_tokens > _LONG_TOKENS or has_long or any(part.call.is_long for part, _ in work.batch.sequences)
        )
        self._num_long += (is_long - work.is_long) * work.num_cores
        work.is_long = is_long

    def _taken_slices(self, *, short_only: bool) -> list[Slice]:
        """Items of one kind to encode, from the clients in turn; none if none waits. Call it with the lock."""
        slices: list[Slice] = []
        kind, num_items, num_tokens = None, 0, 0
        for client in list(self._arrived):
            jobs = self._arrived[client]
            is_taken = False
            while jobs and (num_items < _MOST_ITEMS and num_tokens < _MOST_LIKELY_TOKENS):
                job, likely = jobs[0], jobs[0].likely_tokens
                if slices and job.kind != kind:
                    break
                if short_only and (job.verb.is_long or sum(likely) > SHORT_TOKENS):
                    break
                kind, first, is_taken = job.kind, job.num_encoded, True
                end = first
                while end < len(likely) and num_items < _MOST_ITEMS and num_tokens < _MOST_LIKELY_TOKENS:
                    num_items, num_tokens, end = num_items + 1, num_tokens + likely[end], end + 1
                self._encode(job, end)
                job.begin(first)
                slices.append((job, first, end))
                if end < len(likely):
                    break
                jobs.popleft()
            if not jobs:
                del self._arrived[client]
            elif is_taken:
                self._arrived.move_to_end(client)
        return slices

    def _encode(self, job: Job, end: int) -> None:
        """Note that the items of a job up to this end wait no more to be encoded. Call it with the lock."""
        self._num_arrived -= end - job.num_encoded
        self._num_arrived_tokens -= sum(job.likely_tokens[job.num_encoded : end])
        job.num_encoded = end

    def _taken_batch(self, is_extra: bool) -> TakenBatch:
        return self._queue.take((lambda _: _LONG_TOKENS) if is_extra else self._budget, short_only=is_extra)

    def _budget(self, run: Run) -> int:
        """Maximum tokens of a batch: one core's share of the queue. Batches are small while the queue is short, so that
        the next requests start soon."""
        runner, num_tokens = run.runner, self._queue.num_tokens + self._num_arrived_tokens
        most = runner.tokens_per_batch(num_tokens)
        share = max(_SMALL_BATCH_TOKENS, -(-num_tokens // self.cores.num_threads))
        return min(most, share) if runner.device.type == "cpu" else most

    def _do(self, work: _Work) -> None:
        yield_to_event_loop()
        started, num_tokens = time.perf_counter(), 0
        try:
            num_tokens = inferred(lambda: self._encoded(work) + self._computed(work))
        except BaseException as error:  # includes panics of foreign libraries: the thread must survive
            for job in {job for job, _, _ in work.slices} | {part.job for part, _, _ in work.batch.waiting}:
                job.outcome.fail(error)
        seconds = time.perf_counter() - started
        with self._lock:
            self.num_batches += 1
            if work.came_alone:
                was_undisturbed = work.came_alone == self._num_started and not self.num_waiting
                self._share_undisturbed += 0.1 * (was_undisturbed - self._share_undisturbed)
            if work.is_extra:
                self._is_extra_running = False
            else:
                self._num_running -= work.num_cores
                self._num_long -= work.is_long * work.num_cores
                per_token = seconds / max(1, num_tokens) * work.num_cores / self.cores.num_threads
                self._seconds_per_token += 0.1 * (per_token - self._seconds_per_token) * bool(num_tokens)
        self._start()

    def _encoded(self, work: _Work) -> int:
        """Encode items, compute them or queue them and take a batch; the number of computed tokens."""
        if not work.slices:
            return 0
        num_tokens, waiting = 0, []
        for call, ended in self._calls(work.slices, partial(self._may_run, work)):
            for size in call.computed:
                num_tokens += size[1]
                self._on_batch(*size)
            for answer in ended or ():
                answer.send()
            if ended is None:
                waiting.append(call)
        with self._lock:
            self._wait(waiting)
            if not num_tokens:
                work.batch = self._taken_batch(work.is_extra)
                self._note_length(work, work.batch.num_tokens_waiting)
        self._start()
        return num_tokens

    def _wait(self, calls: Iterable[Call]) -> None:
        """Queue the sequences of calls, or the next steps of those without any. Call it with the lock."""
        for call in calls:
            if call.waiting is None and not (job := call.jobs[0]).is_done:
                job.resume(job.num_encoded - len(call.items))
                self._line_up(job)
            for job, part in call.parts() if call.waiting is not None else ():
                if not job.is_done:
                    job.parts.append(part)
                    self._queue.put(part)

    def _calls(
        self, slices: Sequence[Slice], may_run: Callable[[Run], bool], *, is_literal: bool = False
    ) -> list[tuple[Call, list[Answer] | None]]:
        """Calls for items, with the answers that they ended; if one of the items has an error, each job has its own
        call, and ends with the error of its items."""
        slices = [(job, first, end) for job, first, end in slices if job.is_wanted(first)]
        if not slices:
            return []
        call = Call(slices, is_literal=is_literal)
        try:
            return [(call, call.start(may_run))]
        except Exception as error:
            if is_literal or call.verb.is_whole:
                job, first, _ = slices[0]
                job.settle(first, error)
                return []
        return [pair for one in slices for pair in self._calls([one], may_run, is_literal=True)]

    def _may_run(self, work: _Work, run: Run) -> bool:
        """Whether a run is computed at once: its sequences are few, none waits, and none of its jobs has ended."""
        num_tokens = sum(run.lengths)
        most = _LONG_TOKENS if run.runner.device.type == "cpu" else run.runner.tokens_per_batch(num_tokens)
        has_ended = any(job.is_done for job in run.call.jobs)
        is_long = num_tokens > most and len(run.lengths) > 1
        with self._lock:
            if has_ended or is_long or self._queue.num_sequences or not run.is_distinct:
                return False
            self._note_length(work, num_tokens)
        if work.is_long:
            self._start()
        return True

    def _computed(self, work: _Work) -> int:
        """Compute the batch of a work; its number of tokens."""
        batch = work.batch
        if batch.sequences:
            ended, others = compute(batch, batch.sequences[0][0].call.runner.tokens_per_batch(batch.num_tokens))
            for answer in ended:
                answer.send()
            self._on_batch(len(batch.sequences), batch.num_tokens)
            with self._lock:
                self._wait(others)
        return batch.num_tokens


def late(seconds_waiting: float) -> TimedOut:
    """The refusal of a request that missed its deadline."""
    return TimedOut("the request took longer than its deadline allows", seconds_waiting)
