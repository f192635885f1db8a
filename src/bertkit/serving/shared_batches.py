"""Shared batches: sequences of several requests that wait when a core becomes free are computed in one encoder run.

Requests in progress call the methods of a `SharedModel` like those of any Model. Instead of running the
encoder, a method adds its sequences to the queue; batches run on single cores of the executor, as soon as one is free,
without a timer. Vectors are bit-identical to those of each text alone. A batch does not use several cores, since
threads that share a product wait for each other, and for the thread that reads the next request; only a text that has
the machine to itself does.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch, collate
from bertkit.executor import Executor, executor
from bertkit.inference import Runner
from bertkit.inference.runner import inferred, rows_in_order
from bertkit.model import Model
from bertkit.serving.queue import SHORT_TOKENS, Job, Queue, TakenBatch
from bertkit.serving.refusals import Canceled, Overloaded, TimedOut
from bertkit.serving.settings import ServerSettings
from bertkit.serving.ticket import Ticket, current_ticket
from bertkit.serving.workers import wait, yield_to_event_loop
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.ragged import ranges
from bertkit.transformer import PreparedEncoder
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.row_invariance import ROW_COUNTS

Result = TypeVar("Result")

_LONG_TOKENS = 2 * SHORT_TOKENS
"""Token count above which a batch is long. While all cores work on long batches, an extra thread computes short
jobs."""

_LONE_TOKENS = 64
"""Most tokens of a text that is computed on all cores; memory of products grows with them."""

_SMALL_BATCH_TOKENS = 192
"""Token count that a core may always take, however little waits."""


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
        self._steps = Executor(self.cores.num_threads)  # of generation; shares the cores by preemption
        self._num_turns = 0  # in progress
        self._num_reserved = 0  # tokens of texts being generated
        self.num_batches = 0  # so far
        self._seconds_per_token = 1e-4  # of all cores together, a moving average

    @property
    def num_waiting(self) -> int:
        """Number of waiting sequences."""
        return len(self._queue)

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
        with self._lock:
            self._admit(job.num_tokens_waiting)
            self._queue.put(job)
        ticket.on_cancel = lambda: job.fail(Canceled("the client closed the connection"))
        if ticket.is_canceled:  # meanwhile
            ticket.on_cancel()
        self._start_batches()
        in_time = wait(job.done, max(0.0, min(ticket.seconds_left, threading.TIMEOUT_MAX)))
        if not in_time or job.error is not None:
            with self._lock:
                self._queue.remove(job)
        ended = time.perf_counter()
        began = ended if job.started is None else job.started
        ticket.queue_seconds += began - joined
        ticket.inference_seconds += ended - began
        if job.error is not None:
            raise job.error
        if not in_time:
            raise TimedOut("the request waited for longer than its deadline allows", self.seconds_waiting)
        return job.results

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
        """``work()`` on one core, in turns with the steps of other texts.

        Raises:
            TimedOut, Canceled: the request ended; nothing was computed.
        """
        joined, began = _join(ticket), 0.0
        if ticket.seconds_left <= 0:
            raise TimedOut("the request took longer than its deadline allows", self.seconds_waiting)

        def timed() -> Result:
            nonlocal began
            began = time.perf_counter()
            return inferred(work)

        with self._lock:
            self._num_turns += 1
        future = self._steps.submit(timed)
        wait(future)
        try:
            return future.result()
        finally:
            with self._lock:
                self._num_turns -= 1
            ticket.queue_seconds += began - joined
            ticket.inference_seconds += time.perf_counter() - began

    def warm_up(self, model: Model) -> None:
        """Run batches of every shape, so that kernels are compiled and products checked before the first request."""
        runner = model._runner
        word = next(token for token in runner.tokenizer.vocabulary.tokens if token.isalpha())
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
                num_used = 1  # cores
                if self._num_running < self.cores.num_threads:
                    batch, submit, is_extra = self._queue.take(self._budget), self.cores.submit, False
                    others = self._num_running + self._num_turns + self._is_extra_running + len(self._queue)
                    if not others and len(batch.sequences) == 1 and batch.num_tokens <= _LONE_TOKENS:
                        submit, num_used = self._all_cores.submit, self.cores.num_threads
                    self._num_running += num_used
                    self._num_long += batch.num_tokens > _LONG_TOKENS
                elif self._num_long == self._num_running and not self._is_extra_running:
                    batch = self._queue.take(lambda _: _LONG_TOKENS, short_only=True)
                    submit, is_extra = self._extra.submit, True
                    if not batch.sequences:
                        return
                    self._is_extra_running = True
                else:
                    return
            submit(self._compute, batch, is_extra, num_used)

    def _budget(self, job: Job) -> int:
        """One core's share of what waits: small batches while little waits, so that what comes next starts soon."""
        most = job.runner.tokens_per_batch(self._queue.num_tokens)
        share = max(_SMALL_BATCH_TOKENS, -(-self._queue.num_tokens // self.cores.num_threads))
        return min(most, share) if job.runner.device.type == "cpu" else most

    def _compute(self, batch: TakenBatch, is_extra: bool, num_cores: int) -> None:
        if not getattr(_thread, "yields", False):
            _thread.yields = True
            yield_to_event_loop()
        started = time.perf_counter()
        for job in batch.waiting:
            if job.started is None:
                job.started = started
        try:
            inferred(lambda: _compute_parts(batch))
        except BaseException as error:  # includes panics of foreign libraries: the thread must survive
            for job in batch.waiting:
                job.fail(error)
        seconds = time.perf_counter() - started
        with self._lock:
            self.num_batches += 1
            if is_extra:
                self._is_extra_running = False
            else:
                self._num_running -= num_cores
                self._num_long -= batch.num_tokens > _LONG_TOKENS
                per_token = seconds / batch.num_tokens * num_cores / self.cores.num_threads
                self._seconds_per_token += 0.1 * (per_token - self._seconds_per_token)
        self._on_batch(len(batch.sequences), batch.num_tokens)
        self._start_batches()


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


def _compute_parts(batch: TakenBatch) -> None:
    """Run the encoder for all sequences of a batch, and each job's ``forward`` for its own."""
    jobs = [job for job in batch.waiting if not job.done.done()]
    if not jobs:
        return  # all of them were canceled
    if len(batch.waiting) == 1:
        (job,) = jobs
        indices = np.array([index for index, _ in batch.waiting[job]])
        packed = collate(job.encodings.take(indices)).to(job.runner.device)
        _add_rows(job, packed, indices, None)
        return
    first = batch.sequences[0][0]
    packed = collate([_Sequence(job, index) for job, index in batch.sequences]).to(first.runner.device)
    shared = _SharedRun(packed)
    for job in jobs:
        indices, numbers = np.array(batch.waiting[job]).T
        shared.choose(numbers)
        part = collate(job.encodings.take(indices)).to(first.runner.device)
        _add_rows(job, part, indices, shared)


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


@dataclass(frozen=True)
class SharedRunner(Runner):
    """A Runner that uses the shared batches of the process."""

    batches: SharedBatches

    def run(
        self,
        encodings: Encodings,
        forward: Callable[[Batch, np.ndarray], Tensor],
        *,
        rows_per_sequence: np.ndarray | None = None,
        tokens_per_batch: int | None = None,
        on_batch: Callable[[np.ndarray], object] = lambda indices: None,
    ) -> Tensor:
        """As `Runner.run`; the queue decides on the batches."""
        ticket = current_ticket()
        ticket.num_tokens += len(encodings.input_ids)
        results = self.batches.run(Job(self, encodings, forward, ticket))
        for indices, _ in results:
            on_batch(indices)
        return rows_in_order([rows for _, rows in results], [indices for indices, _ in results], rows_per_sequence)

    def one(self, work: Callable[[], Result]) -> Result:
        """As `Runner.one`, on one core."""
        future = self.batches.cores.submit(inferred, work)
        wait(future)
        return future.result()


class SharedModel(Model):
    """A Model whose methods share batches across threads."""

    def __init__(self, model: Model, batches: SharedBatches) -> None:
        super().__init__(model.checkpoint, model.precision, model.precision_reason)
        runner = model._runner
        encoder = SharedEncoder(cast(PreparedEncoder, runner.encoder))
        self._shared = SharedRunner(runner.network, runner.tokenizer, encoder, batches=batches)

    @property
    def _runner(self) -> Runner:
        return self._shared

    def last_hidden_states(self, encodings: Encodings) -> np.ndarray:
        """(T, D) float32: the last hidden state of every token."""

        def forward(batch: Batch, indices: np.ndarray) -> Tensor:
            return self._shared.encoder(batch, with_pooled=False).last_hidden_state.float().cpu()

        return self._shared.run(encodings, forward, rows_per_sequence=encodings.seqlens).numpy()
