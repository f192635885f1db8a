"""HTTP connections with limits on the headers of a request: uvicorn's protocol over httptools."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bertkit.serving.ticket import ON_DISCONNECT

_MOST_HEADER_BYTES = 65_536


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection whose client sends too many header bytes, or does not finish them in time (slow loris).

    After a response, uvicorn's own limit on idle connections applies until the next request.
    """

    header_timeout_seconds = 10.0
    _header_timer: asyncio.TimerHandle | None = None
    _num_header_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Start the timer of the first request."""
        super().connection_made(transport)
        self._start()

    def on_message_begin(self) -> None:
        """Start the timer of a request with its first byte."""
        super().on_message_begin()
        if self._header_timer is None:
            self._start()

    def on_headers_complete(self) -> None:
        """Stop the timer."""
        self._stop()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, and count those of unfinished headers."""
        super().data_received(data)
        if self._header_timer is not None:
            self._num_header_bytes += len(data)
            if self._num_header_bytes > _MOST_HEADER_BYTES:
                self._give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and tell the request in progress."""
        self._stop()
        super().connection_lost(exc)
        if self.cycle is not None and self.cycle.disconnected:
            on_disconnect: Callable[[], object] | None = self.cycle.scope.get(ON_DISCONNECT)  # type: ignore[assignment]
            if on_disconnect is not None:
                on_disconnect()

    def _start(self) -> None:
        self._num_header_bytes = 0
        self._header_timer = self.loop.call_later(self.header_timeout_seconds, self._give_up)

    def _stop(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
