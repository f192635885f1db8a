"""A request: its deadline, cancellation, counts and times, and its outcome, which other threads make."""

import asyncio
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from bertkit.errors import BertkitError
from bertkit.inference import InferenceReport
from bertkit.serving.refusals import without_frames

TICKET = "bertkit.ticket"
"""Key of the ticket of a request in its ASGI scope."""

_NICENESS = 10
"""Added to the niceness of the main thread: a tenth of the weight of the event loop. With 4, two fifths of it, /health
waited twice as long at ten times the load; with 19 a thread that holds Python's lock can wait for other programs."""


@dataclass(eq=False)
class Ticket:
    """State of a request, shared by the event loop and the thread that answers it."""

    client: Hashable  # requests of the same client take turns with those of others
    deadline: float  # of time.perf_counter
    request_id: str = ""
    verb: str = "request"  # metrics it counts for: "embed", "predict", or neither
    started: float = field(default_factory=time.perf_counter)
    num_inputs: int = 0
    num_characters: int = 0
    num_tokens: int = 0
    num_inputs_cut: int = 0
    num_tokens_cut: int = 0
    num_tokens_unknown: int = 0  # [UNK]
    num_inputs_empty: int = 0  # without a known token
    num_body_bytes: int = 0
    num_answer_bytes: int = 0  # reserved with `Service.reserve`
    tokenization_seconds: float = 0.0
    queue_seconds: float = 0.0
    inference_seconds: float = 0.0
    is_canceled: bool = False
    make_room: Callable[["Ticket", int], None] = lambda ticket, num_bytes: None  # see `reserve`
    on_disconnect: Callable[[], None] | None = None  # callback when the client closes the connection before its answer

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.perf_counter()

    def reserve(self, num_bytes: int) -> None:
        """`Service.reserve` for this request."""
        self.make_room(self, num_bytes)

    def count(self, num_inputs_cut: int, report: InferenceReport) -> None:
        """Add what was cut of the inputs, and what the model does not know."""
        self.num_inputs_cut += num_inputs_cut
        self.num_tokens_cut += report.num_tokens_cut
        self.num_tokens_unknown += report.num_unknown
        self.num_inputs_empty += report.num_empty

    def cancel(self) -> None:
        """Compute nothing for the request any more."""
        self.is_canceled = True


class Answer:
    """The answer of a request as JSON, or its error; the first of them counts.

    Attributes:
        future: resolved on the event loop.
    """

    def __init__(self, ticket: Ticket, answers: "Answers") -> None:
        self.ticket, self._answers = ticket, answers
        self.future: asyncio.Future[bytes] = answers.loop.create_future()
        self._outcomes: list[tuple[Any, BaseException | None]] = []  # the first one counts

    @property
    def is_ended(self) -> bool:
        return bool(self._outcomes)

    def end(self, make: Callable[[], Any]) -> None:
        """End with the value of ``make``, or its exception, without handing it over."""
        try:
            self._outcomes.append((self._form(make()), None))
        except BaseException as error:  # includes panics of foreign libraries: the thread must survive
            self._note(error)

    def fail(self, error: BaseException) -> None:
        """End with an error, unless it has ended, and hand over what it ended with, from any thread; what still
        computes for the request is canceled."""
        if not self.is_ended:
            self._note(error)
            self.ticket.cancel()  # before it is sent: who releases the room for an answer depends on it
        self.send()

    def _note(self, error: BaseException) -> None:
        is_expected = isinstance(error, BertkitError)  # others are logged with their frames
        self._outcomes.append((None, without_frames(error) if is_expected else error))

    def _form(self, value: Any) -> bytes:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)

    def send(self) -> None:
        """Hand over what it ended with, to the one who waits."""
        self._answers.put(self)

    def resolve(self) -> None:
        """Give the answer, or the error, to the coroutine that waits; on the event loop."""
        if self.future.done():
            return
        body, error = self._outcomes[0]
        if error is None:
            self.future.set_result(body)
        else:
            self.future.set_exception(error)


class Answers:
    """Answers on their way to the event loop, which is woken once for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended: deque[Answer] = deque()
        self._is_woken = False

    def put(self, answer: Answer) -> None:
        """Resolve an answer on the event loop; from any thread."""
        self._ended.append(answer)
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        self._is_woken = False
        while self._ended:
            self._ended.popleft().resolve()


def yield_to_event_loop() -> None:
    """Let the calling thread have the cores only as far as the event loop leaves them, where the system can do that.

    The event loop needs little time, but without delay: it refuses requests under overload, and answers /health.
    """
    if not getattr(_thread, "yields", False):
        _thread.yields = True
        if sys.platform == "linux":
            niceness = min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + _NICENESS)
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)  # there: of the thread


_thread = threading.local()
