"""Reloading: on SIGHUP the models are opened again, and replace the current ones once they are warm."""

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from bertkit.errors import BertkitError
from bertkit.serving.memory import exempt_from_collection, return_free_memory
from bertkit.serving.served_models import ServedModels
from bertkit.serving.service import Service

_LOG = logging.getLogger("bertkit.serving")
_THREAD_NAME = "bertkit models"
_POLL_SECONDS = 1.0

Result = TypeVar("Result")


class Reload:
    """Reloads of a server, one at a time; several signals during one are answered by one more.

    Args:
        open_models: opens the models and warms them up; called in a thread.
    """

    def __init__(self, open_models: Callable[[], ServedModels]) -> None:
        self._open_models = open_models
        self._is_wanted, self._state = asyncio.Event(), "while the models are opened for the first time"

    def ask(self) -> None:
        """Ask for a reload; from the event loop."""
        if self._is_wanted.is_set():
            _LOG.warning("SIGHUP ignored: a reload is waiting already")
            return
        if self._state:
            _LOG.warning("SIGHUP %s: another reload follows", self._state)
        self._is_wanted.set()

    async def run(self, service: Service, is_warm: asyncio.Future[None]) -> None:
        """Reload whenever it is asked for, once the first models are warm; until canceled."""
        await asyncio.wait({is_warm})
        while True:
            self._state = ""
            await self._is_wanted.wait()
            self._is_wanted.clear()
            self._state = "while the models are opened again"
            try:
                models = await in_thread(self._open_models)
            except Exception as error:  # of any kind: the current models are served on
                kind = "" if isinstance(error, BertkitError) else f"{type(error).__name__}: "
                names, reason = ", ".join(service.models.all), " ".join(str(error).split())
                _LOG.error("not reloaded, %s served as before: %s%s", names, kind, reason)
                service.metrics.count("bertkit_reload_count", 'result="failure"')
                continue
            replaced = [*service.models.all.values(), service.models.index]
            used = [weakref.ref(each) for each in replaced if each is not None]
            service.models = models  # requests in progress keep those that they began with
            del replaced
            _LOG.warning("reloaded %s", ", ".join(models.all))
            service.metrics.count("bertkit_reload_count", 'result="success"')
            del models
            self._state = "while requests use the replaced models"
            await self._release(used, service.settings.request_timeout_seconds)

    @staticmethod
    async def _release(used: Sequence[weakref.ref[Any]], most_seconds: float) -> None:
        """Return the memory of replaced models when no request uses them any more."""
        loop = asyncio.get_running_loop()
        end = loop.time() + most_seconds
        while any(model() is not None for model in used) and loop.time() < end:
            await asyncio.sleep(_POLL_SECONDS)
        await in_thread(exempt_from_collection)
        await in_thread(return_free_memory)


def in_thread(work: Callable[[], Result]) -> asyncio.Future[Result]:
    """Call ``work()`` in a thread that ends, and with it those that OpenMP started for it, and that no exit waits for.

    If OpenMP keeps more threads than there are cores, it puts those of a lone text to sleep after each product.
    """
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=_THREAD_NAME, daemon=True).start()
    return asyncio.wrap_future(future)


def has_threads() -> bool:
    """Whether a thread of `in_thread` is not done."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())
