"""Request handling shared by all routes: admission, deadlines, cancellation, headers with counts."""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bertkit.serving.engine import Engine, late
from bertkit.serving.jobs import Finish, Job, Verb
from bertkit.serving.metrics import Metrics
from bertkit.serving.refusals import Canceled, EmptyInput, InvalidRequest, Overloaded, TooManyInputs
from bertkit.serving.served_models import ServedModels
from bertkit.serving.settings import ServerSettings
from bertkit.serving.ticket import TICKET, Answer, Answers, Ticket

_SMALL_ANSWER_BYTES = 100_000


def as_they_are(results: Any, ticket: Ticket) -> Any:
    """The results of a verb as an answer."""
    return results


@dataclass(frozen=True)
class Question:
    """What a request asks of a model: the results of a verb for some items. Those that wait together share batches."""

    verb: Verb
    items: Sequence[Any]  # texts, pairs or others for the verb
    finish: Finish = as_they_are  # from the results to what is sent as JSON, including numpy arrays
    is_one: bool = False  # of the list that this makes, the only element is sent
    texts: Sequence[str] | None = None  # to count them and their characters; None: the items
    metrics: str = "predict"  # or "embed", for which it counts, or "request", of its own none
    num_bytes: int = 0  # to reserve for the answer

    def answer(self, results: Any, ticket: Ticket) -> Any:
        """What is sent."""
        made = self.finish(results, ticket)
        return made[0] if self.is_one else made


class Service:
    """The models of a server, and the requests in progress. Everything except ``finish`` runs on the event loop."""

    def __init__(self, models: ServedModels, engine: Engine, metrics: Metrics) -> None:
        self.models, self.engine, self.metrics = models, engine, metrics
        self.settings: ServerSettings = engine.settings
        self.is_ready = False
        self.is_draining = False
        self._answers: Answers | None = None  # to the loop of the last request
        self._num_requests = self._num_inputs = 0  # in progress
        self._num_answer_bytes, self._lock = 0, threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether as many requests are in progress as the settings allow."""
        return self._num_requests >= self.settings.max_concurrent_requests

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress."""
        return self._num_requests > 0

    async def respond(self, request: Request, asked: Question) -> Response:
        """The answer as JSON.

        Raises:
            Refusal: too many inputs, no room in the queue, a missed deadline, or a refusal of ``asked``.
            BertkitError: as the verb and ``finish``.
        """
        answer = self._enter(request, asked)
        ticket, job = answer.ticket, Job(asked.verb, asked.items, asked.answer, answer)
        timer = asyncio.get_running_loop().call_later(
            ticket.seconds_left, lambda: answer.fail(late(self.engine.seconds_waiting))
        )
        ticket.on_disconnect = lambda: answer.fail(Canceled("the client closed the connection"))
        try:
            ticket.reserve(asked.num_bytes)
            self.engine.put(job)
            body = await answer.future
        finally:
            ticket.on_disconnect = None
            timer.cancel()
            if not answer.is_ended:
                ticket.cancel()  # the server stops, or has no room for the request
            self.engine.remove(job)
            self._leave(ticket)
        return Response(body, media_type="application/json", headers=self._headers(ticket))

    def _enter(self, request: Request, asked: Question) -> Answer:
        """Admit a request, or raise a Refusal."""
        ticket: Ticket = request.scope[TICKET]
        texts = asked.items if asked.texts is None else asked.texts
        ticket.num_inputs, ticket.num_characters = len(texts), sum(map(len, texts))
        ticket.verb, ticket.make_room = asked.metrics, self.reserve
        self._admit(ticket.num_inputs)
        self._num_requests += 1
        self._num_inputs += ticket.num_inputs
        if asked.metrics != "request":
            self.metrics.count(f"te_{asked.metrics}_count", number=ticket.num_inputs)
        loop = asyncio.get_running_loop()
        if self._answers is None or self._answers.loop is not loop:
            self._answers = Answers(loop)
        return Answer(ticket, self._answers)

    def _admit(self, num_inputs: int) -> None:
        if not num_inputs:
            raise EmptyInput("`inputs` cannot be empty")
        if num_inputs > self.settings.max_inputs:
            raise TooManyInputs(f"batch size {num_inputs} > maximum allowed batch size {self.settings.max_inputs}")
        has_no_room = self._num_inputs and self._num_inputs + num_inputs > self.settings.max_queue_inputs
        if has_no_room or self.is_full:
            raise Overloaded("Model is overloaded", self.engine.seconds_waiting)

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
        most, own = self.settings.max_answer_bytes, ticket.num_answer_bytes + num_bytes
        if own > most:
            raise InvalidRequest(
                f"the answer would have about {own:,} bytes or more, expected at most {most:,}: send fewer or shorter "
                "inputs, or ask for fewer results"
            )
        with self._lock:
            if ticket.is_canceled:
                raise Canceled("the client closed the connection")
            if own > _SMALL_ANSWER_BYTES and self._num_answer_bytes + num_bytes > most:
                raise Overloaded("Model is overloaded", self.engine.seconds_waiting)
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


def _milliseconds(seconds: float) -> str:
    return str(round(1e3 * seconds))
