"""Answers that other threads make for the event loop."""

import asyncio
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import orjson

from bertkit.serving.ticket import Ticket, set_current_ticket

_NICENESS = 10
"""Added to the niceness of the main thread: a tenth of the weight of the event loop. With 4, two fifths of it, /health
waited twice as long at ten times the load; with 19 a thread that holds Python's lock can wait for other programs."""


class Answers:
    """Answers on their way to the event loop, which is woken once for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended: deque[Answer] = deque()
        self._is_woken = False

    def put(self, answers: Sequence["Answer"]) -> None:
        """Resolve answers on the event loop; from any thread."""
        self._ended.extend(answers)
        if self._ended and not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        self._is_woken = False
        while self._ended:
            self._ended.popleft().resolve()


class Answer:
    """The answer of a request as JSON, or the error of its computation; the first of them ends it.

    Attributes:
        answers: takes it to the event loop.
        future: resolved there.
        thread: of `work`, if it has been submitted.
    """

    def __init__(self, ticket: Ticket, answers: Answers) -> None:
        self.ticket, self.answers = ticket, answers
        self.future: asyncio.Future[bytes] = answers.loop.create_future()
        self.thread: Future[None] | None = None
        self._outcomes: list[tuple[bytes, BaseException | None]] = []  # the first one counts

    @property
    def is_ended(self) -> bool:
        return bool(self._outcomes)

    def end(self, make: Callable[[], Any]) -> None:
        """End with the value of ``make``, numpy arrays included, or its exception; without waking the event loop."""
        try:
            self._outcomes.append((orjson.dumps(make(), option=orjson.OPT_SERIALIZE_NUMPY), None))
        except BaseException as error:  # includes panics of foreign libraries: the thread must survive
            self._outcomes.append((b"", error))

    def fail(self, error: BaseException) -> None:
        """End with an error, from any thread; what still computes for it is canceled."""
        if not self.is_ended:
            self._outcomes.append((b"", error))
            self.ticket.cancel()
            self.answers.put([self])

    def work(self, make: Callable[[Ticket], Any]) -> None:
        """`end` on a thread of the request, with its ticket as the current one."""
        yield_to_event_loop()
        if self.ticket.is_canceled:
            return
        set_current_ticket(self.ticket)
        self.ticket.work_started = time.perf_counter()
        try:
            self.end(lambda: make(self.ticket))
        finally:
            set_current_ticket(None)
        self.answers.put([self])

    def resolve(self) -> None:
        """Give the answer, or the error, to the coroutine that waits; on the event loop."""
        if self.future.done():
            return
        body, error = self._outcomes[0]
        if error is None:
            self.future.set_result(body)
        else:
            self.future.set_exception(error)


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
