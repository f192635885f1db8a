"""HTTP connections with limits on what surrounds the bodies of requests, and on the time of each part, and cheap
refusals: uvicorn's protocol over httptools."""

import asyncio
import inspect
import math
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from bertkit.errors import DependencyError
from bertkit.serving.guard import Reply
from bertkit.serving.settings import ServerSettings
from bertkit.serving.ticket import TICKET, Ticket

_MOST_HEADER_BYTES = 65_536
"""Most bytes of headers, and of anything else in a row that is not a body: trailers and extensions of its chunks."""


_TESTED = "0.54"
"""The version of uvicorn whose private parts these are."""


def limited_protocol(settings: ServerSettings, refuse: Callable[[Any], Reply | None]) -> type["LimitedProtocol"]:
    """The protocol of a server.

    Args:
        refuse: see `LimitedProtocol`.

    Raises:
        DependencyError: a uvicorn without the private parts that the protocol overrides and uses.
    """
    start = getattr(HttpToolsProtocol, "_start_asgi_task", lambda: None)
    cycle, missing = inspect.signature(RequestResponseCycle).parameters, not hasattr(uvicorn.Server, "capture_signals")
    missing |= not {"default_headers", "keep_alive", "on_response"} <= cycle.keys()
    if missing or list(inspect.signature(start).parameters) != ["self", "cycle", "app"]:
        raise DependencyError(
            f"uvicorn {uvicorn.__version__} has another inside than {_TESTED}, with which bertkit serve was tested: "
            f"pip install 'uvicorn=={_TESTED}.*'"
        )
    limits = {
        "header_timeout_seconds": settings.receive_timeout_seconds,
        "send_timeout_seconds": settings.send_timeout_seconds,
        "send_bytes_per_second": settings.send_bytes_per_second,
        "refuse": staticmethod(refuse),
    }
    return type("LimitedProtocol", (LimitedProtocol,), limits)


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection whose client sends too many header bytes, or does not finish them in time (slow loris).

    After a response, uvicorn's own limit on idle connections applies until the next request; but the rest of a body
    that nobody reads has to come, and the response has to be read, in time.

    Attributes:
        header_timeout_seconds: of all headers, and of the rest of a body.
        send_timeout_seconds: in which a part of a response has to be read.
        send_bytes_per_second: size of this part.
        refuse: returns the response to a request that is refused before its body is read, None to accept it. Such a
            request gets no task of the event loop: hundreds of them can arrive at once.
    """

    header_timeout_seconds = 10.0
    send_timeout_seconds = 60.0
    send_bytes_per_second = 10_000
    refuse: Callable[[Any], Reply | None] = staticmethod(lambda scope: None)
    _header_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _awaits_headers = False
    _num_other_bytes = 0  # since the last part of a body, or the last end of headers

    def connection_made(self, transport: Any) -> None:
        """Start the timer of the first request."""
        super().connection_made(transport)
        self._awaits_headers = True
        self._start()

    def on_message_begin(self) -> None:
        """Note the first byte of a request."""
        super().on_message_begin()
        self._awaits_headers, self._num_other_bytes = True, 0

    def on_headers_complete(self) -> None:
        """Stop the timer.

        Raises:
            ValueError: too many bytes, which arrived together; the parser then answers with status 400.
        """
        self._awaits_headers, self._num_other_bytes = False, 0
        self._stop()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > _MOST_HEADER_BYTES:
            raise ValueError(f"more than {_MOST_HEADER_BYTES:,} bytes of headers")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Note a part of a body."""
        self._num_other_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer of the rest of a body."""
        super().on_message_complete()
        self._stop()

    def on_response_complete(self) -> None:
        """Start the timer of the rest of a body."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and self._header_timer is None:
            self._start()

    def data_received(self, data: bytes) -> None:
        """Parse and count the bytes; if headers are unfinished after them, start the timer."""
        self._num_other_bytes += len(data)
        super().data_received(data)
        if self._awaits_headers and self._header_timer is None:
            self._start()
        if self._num_other_bytes > _MOST_HEADER_BYTES:
            self._give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and cancel the request in progress."""
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)
        if self.cycle is not None and self.cycle.disconnected:
            ticket: Ticket | None = self.cycle.scope.get(TICKET)  # type: ignore[assignment]
            if ticket is not None and ticket.on_disconnect is not None:
                ticket.on_disconnect()

    def pause_writing(self) -> None:
        """Start the timer of an answer that waits for its reader."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Stop the timer: all but a few bytes have been read."""
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _expect_reading(self, before: float = math.inf) -> None:
        """Abort the connection if too little was read since there were ``before`` bytes, else wait again."""
        left = self.transport.get_write_buffer_size()
        if before - left >= self.send_bytes_per_second * self.send_timeout_seconds:
            self._send_timer = self.loop.call_later(self.send_timeout_seconds, self._expect_reading, left)
        else:
            self.transport.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        reply = None
        if cycle.keep_alive and not self.pipeline:  # pipelined requests would be refused in a recursion
            reply = self.refuse(cycle.scope)
        if reply is None:
            super()._start_asgi_task(cycle, app)
            return
        cycle.response_started = cycle.response_complete = True
        lines = [b"%s: %s\r\n" % line for line in [*cycle.default_headers, *reply.lines]]
        body = b"" if cycle.scope["method"] == "HEAD" else reply.body
        self.transport.write(b"".join([STATUS_LINE[reply.status], *lines, b"\r\n", body]))
        cycle.on_response()
        cycle.on_response = lambda: None  # the reference cycle of connection and request

    def _start(self) -> None:
        self._header_timer = self.loop.call_later(self.header_timeout_seconds, self._give_up)

    def _stop(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
