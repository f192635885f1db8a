"""Time limit for the headers of a request, as a protocol of uvicorn."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedProtocol(H11Protocol):
    """Closes a connection whose client does not finish the headers of a request in time (slow loris).

    After a response, uvicorn's own limit on idle connections applies until the next request.
    """

    header_timeout_seconds = 10.0
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer of the first request."""
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Start the timer at the first byte of a request, and stop it at the last byte of its headers."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._header_timer is None and not self.transport.is_closing():
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop."""
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._header_timer = self.loop.call_later(self.header_timeout_seconds, self._give_up)

    def _stop(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
