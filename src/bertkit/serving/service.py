"""Request handling shared by all routes: admission, threads, deadlines, cancellation, headers with counts."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import orjson
from fastapi import Request, Response

from bertkit.executor import Executor
from bertkit.serving.metrics import Metrics
from bertkit.serving.refusals import Canceled, EmptyInput, InvalidRequest, Overloaded, TimedOut, TooManyInputs
from bertkit.serving.served_models import ServedModels
from bertkit.serving.settings import ServerSettings
from bertkit.serving.shared_batches import SharedBatches
from bertkit.serving.text_jobs import Answers, Finish, TextJob, Verb
from bertkit.serving.ticket import ON_DISCONNECT, Ticket, set_current_ticket
from bertkit.serving.workers import Workers

TICKET = "bertkit.ticket"
"""Key of the request's Ticket in its ASGI scope."""

_FEW_INPUTS, _FEW_CHARACTERS = 64, 20_000
"""Size of a request up to which it shares a thread with others."""

_FEW_CHARACTERS_IN_WINDOWS = 2_000
"""Size of a text encoded in windows up to which a core computes it as a whole. Those of a longer one are queued, to
take turns with other requests, and to be removed if the request ends."""

_SMALL_ANSWER_BYTES = 100_000

_MOST_THREADS = 32
"""Most threads for larger requests and for searches, which wait most of the time."""


class Service:
    """The models of a server and the threads that answer its requests.

    Everything except ``_work`` runs on the event loop.
    """

    def __init__(self, models: ServedModels, batches: SharedBatches, metrics: Metrics) -> None:
        self.models, self.batches, self.metrics = models, batches, metrics
        self.settings: ServerSettings = batches.settings
        self.is_ready = False
        self.is_draining = False
        self._workers = Workers(batches.cores.num_threads)
        self._threads = Executor(_MOST_THREADS, Executor(batches.cores.num_threads))  # passes of searches use all cores
        self._answers: Answers | None = None  # to the loop of the last request
        self._num_requests = self._num_inputs = 0  # in progress
        self._num_answer_bytes, self._lock = 0, threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether as many requests are in progress as the settings allow."""
        return self._num_requests >= self.settings.max_concurrent_requests

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress, or a thread still works for one that has ended."""
        return self._num_requests > 0

    async def answer(
        self,
        request: Request,
        inputs: Sequence[str],
        work: Callable[[Ticket], Any],
        *,
        verb: str = "request",
        blocks: bool = False,
    ) -> Response:
        """Run ``work`` outside of the event loop and send its result as JSON, including numpy arrays.

        Args:
            inputs: the texts, to count them and their characters.
            work: called with the request's ticket.
            verb: "embed" or "predict", which have their own metrics.
            blocks: it waits for more than the encoder, and gets its own thread, as do many inputs, which are
                tokenized for long.

        Raises:
            Refusal: too many inputs, no room in the queue, a missed deadline, or a refusal from ``work``.
        """
        ticket = self._enter(request, inputs, verb)
        pool = self._threads if blocks or _is_large(ticket) else self._workers
        future = asyncio.wrap_future(pool.submit(self._work, ticket, work))
        future.add_done_callback(lambda _: self._leave(ticket))
        gone = asyncio.ensure_future(_disconnected(request.receive))
        try:
            await asyncio.wait({future, gone}, timeout=ticket.seconds_left, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return Response(future.result(), media_type="application/json", headers=self._headers(ticket))
            if gone.done():
                raise Canceled("the client closed the connection")
            raise late(self.batches.seconds_waiting)
        finally:
            gone.cancel()
            if not future.done():
                ticket.cancel()
                future.add_done_callback(asyncio.Future.exception)  # its result is no longer needed

    async def compute(
        self, request: Request, inputs: Sequence[str], verb: Verb, items: Sequence[Any], finish: Finish, name: str
    ) -> Response:
        """Answer with a verb's results for some items; like `answer`, but few short items share a batch with others.

        Args:
            items: texts or pairs for the verb.
            finish: from the results to what is sent as JSON.
            name: as ``verb`` of `answer`.

        Raises:
            Refusal: as `answer`.
        """
        in_windows = verb.most_tokens is None and max(map(len, inputs), default=0) > _FEW_CHARACTERS_IN_WINDOWS
        if in_windows or _is_large(_counted(request, inputs, name)):
            work = partial(_computed, verb, items, finish)
            return await self.answer(request, inputs, work, verb=name)
        ticket, loop = self._enter(request, inputs, name), asyncio.get_running_loop()
        if self._answers is None or self._answers.loop is not loop:
            self._answers = Answers(loop)
        job = TextJob(verb, items, finish, ticket, self._answers)
        try:
            self.batches.put(job)  # refused, it must not be removed
            request.scope[ON_DISCONNECT] = lambda: job.fail(Canceled("the client closed the connection"))
            timer = loop.call_later(ticket.seconds_left, lambda: job.fail(late(self.batches.seconds_waiting)))
            try:
                body = await job.future
            finally:
                request.scope.pop(ON_DISCONNECT, None)
                timer.cancel()
                if job.pending:
                    self.batches.remove(job)
        finally:
            self._leave(ticket)
        return Response(body, media_type="application/json", headers=self._headers(ticket))

    def _enter(self, request: Request, inputs: Sequence[str], verb: str) -> Ticket:
        """Admit a request, or raise a Refusal."""
        ticket = _counted(request, inputs, verb)
        self._admit(len(inputs))
        self._num_requests += 1
        self._num_inputs += len(inputs)
        if verb != "request":
            self.metrics.count(f"te_{verb}_count", number=len(inputs))
        return ticket

    def _admit(self, num_inputs: int) -> None:
        if not num_inputs:
            raise EmptyInput("`inputs` cannot be empty")
        if num_inputs > self.settings.max_inputs:
            raise TooManyInputs(f"batch size {num_inputs} > maximum allowed batch size {self.settings.max_inputs}")
        has_no_room = self._num_inputs and self._num_inputs + num_inputs > self.settings.max_queue_inputs
        if has_no_room or self.is_full:
            raise Overloaded("Model is overloaded", self.batches.seconds_waiting)

    def _leave(self, ticket: Ticket) -> None:
        self._num_requests -= 1
        self._num_inputs -= ticket.num_inputs
        if ticket.is_canceled:
            self.release(ticket)

    def release(self, ticket: Ticket) -> None:
        """Give back what `reserve` took: when an answer has been sent, or nothing is computed for it any more."""
        with self._lock:
            self._num_answer_bytes -= ticket.num_answer_bytes
            ticket.num_answer_bytes = 0

    def reserve(self, ticket: Ticket, num_bytes: int) -> None:
        """Make room for more of an answer, about so many bytes, until `release`; from the thread of the request.

        Small answers get it even if large ones, which are read slowly, have all of it.

        Raises:
            InvalidRequest: the answer would be larger than allowed.
            Overloaded: answers of other requests leave too little room.
            Canceled: the request has ended.
        """
        if ticket.is_canceled:
            raise Canceled("the client closed the connection")
        most, own = self.settings.max_answer_bytes, ticket.num_answer_bytes + num_bytes
        if own > most:
            raise InvalidRequest(
                f"the answer would have about {own:,} bytes or more, expected at most {most:,}: send fewer or shorter "
                "inputs, or ask for fewer results"
            )
        with self._lock:
            if own > _SMALL_ANSWER_BYTES and self._num_answer_bytes + num_bytes > most:
                raise Overloaded("Model is overloaded", self.batches.seconds_waiting)
            self._num_answer_bytes += num_bytes
            ticket.num_answer_bytes = own

    def _headers(self, ticket: Ticket) -> dict[str, str]:
        """Response headers, named as in text-embeddings-inference: counts, milliseconds, and numbers of cut inputs and
        tokens, of [UNK] tokens, and of inputs without a known token."""
        headers = {
            "x-compute-type": "cpu" if self.models.first.device.type == "cpu" else "gpu",
            "x-compute-time": _milliseconds(ticket.tokenization_seconds + ticket.inference_seconds),
            "x-compute-characters": str(ticket.num_characters),
            "x-compute-tokens": str(ticket.num_tokens),
            "x-total-time": _milliseconds(time.perf_counter() - ticket.started),
            "x-tokenization-time": _milliseconds(ticket.tokenization_seconds),
            "x-queue-time": _milliseconds(ticket.queue_seconds),
            "x-inference-time": _milliseconds(ticket.inference_seconds),
        }
        if ticket.num_inputs_cut:
            headers |= {"x-inputs-cut": str(ticket.num_inputs_cut), "x-tokens-cut": str(ticket.num_tokens_cut)}
        if ticket.num_tokens_unknown:
            headers["x-tokens-unknown"] = str(ticket.num_tokens_unknown)
        if ticket.num_inputs_empty:
            headers["x-inputs-empty"] = str(ticket.num_inputs_empty)
        return headers

    def _work(self, ticket: Ticket, work: Callable[[Ticket], Any]) -> bytes:
        if ticket.is_canceled:
            raise Canceled("the client closed the connection")
        set_current_ticket(ticket)
        ticket.work_started = time.perf_counter()
        try:
            return orjson.dumps(work(ticket), option=orjson.OPT_SERIALIZE_NUMPY)
        finally:
            set_current_ticket(None)


def late(seconds_waiting: float) -> TimedOut:
    """The refusal of a request that missed its deadline."""
    return TimedOut("the request took longer than its deadline allows", seconds_waiting)


def _counted(request: Request, inputs: Sequence[str], verb: str) -> Ticket:
    ticket: Ticket = request.scope[TICKET]
    ticket.num_inputs, ticket.num_characters, ticket.verb = len(inputs), sum(map(len, inputs)), verb
    return ticket


def _is_large(ticket: Ticket) -> bool:
    """Whether a request gets its own thread: its texts are tokenized for long."""
    return ticket.num_inputs > _FEW_INPUTS or ticket.num_characters > _FEW_CHARACTERS


def _computed(verb: Verb, items: Sequence[Any], finish: Finish, ticket: Ticket) -> Any:
    return finish(verb.compute(items, ticket), ticket)


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _milliseconds(seconds: float) -> str:
    return str(round(1e3 * seconds))
