"""Few threads for many requests: while one waits, its thread runs others.

Each request is a greenlet. Hundreds of requests that wait for the encoder hold some memory each, but no threads,
which would all wake up at once and keep the event loop from its turn.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from greenlet import getcurrent, greenlet

from bertkit.executor import compute_on_one_core

Result = TypeVar("Result")

_NICENESS = 10
"""Added to the niceness of the main thread: a tenth of the weight of the event loop. With 4, two fifths of it, /health
waited twice as long at ten times the load; with 19 a thread that holds Python's lock can wait for other programs."""


def yield_to_event_loop() -> None:
    """Let the calling thread have the cores only as far as the event loop leaves them, where the system can do that.

    The event loop needs little time, but without delay: it refuses requests under overload, and answers /health.
    """
    if sys.platform == "linux":
        niceness = min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + _NICENESS)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)  # there: of the thread


class _Worker:
    """A thread that starts requests, and resumes those that waited."""

    def __init__(self) -> None:
        self.ready: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self.is_busy = False
        threading.Thread(target=self._run, name="requests", daemon=True).start()

    @property
    def num_ready(self) -> int:
        """Number of requests that can continue, including the running one."""
        return self.ready.qsize() + self.is_busy

    def _run(self) -> None:
        compute_on_one_core()
        yield_to_event_loop()
        with torch.inference_mode():  # of the thread; requests that enter and leave it in any order change nothing
            while True:
                step = self.ready.get()
                self.is_busy = True
                step()
                self.is_busy = False
                del step  # what a request holds is released before the next one comes


class _Request(greenlet):
    """A request in progress, on the thread of its worker."""

    worker: _Worker


class Workers:
    """A pool of threads for functions that call `wait`."""

    def __init__(self, num_threads: int) -> None:
        self._workers = [_Worker() for _ in range(num_threads)]

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Call ``work(*arguments)`` on one of the threads."""
        future: Future[Result] = Future()
        worker = min(self._workers, key=lambda one: one.num_ready)

        def run() -> None:
            try:
                future.set_result(work(*arguments))
            except BaseException as error:  # includes panics of foreign libraries: the thread must survive
                future.set_exception(error)

        def start() -> None:
            request = _Request(run)
            request.worker = worker
            request.switch()

        worker.ready.put(start)
        return future


def wait(future: Future[Any], seconds: float | None = None) -> bool:
    """Wait for a future; the thread of a worker runs other requests meanwhile. Returns whether it is done.

    Args:
        seconds: most seconds to wait on any other thread; a request of a worker waits until the future is done, and
            whoever set a deadline fails the future.
    """
    request = getcurrent()
    if isinstance(request, _Request):
        if not future.done():
            assert request.parent is not None
            future.add_done_callback(lambda _: request.worker.ready.put(request.switch))
            request.parent.switch()
        return True
    try:
        future.exception(seconds)
    except TimeoutError:
        return False
    return True
