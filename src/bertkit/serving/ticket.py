"""State of a request: deadline, cancellation, counts and times."""

import time
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertkit.inference import InferenceReport

TICKET = "bertkit.ticket"
"""Key of the ticket of a request in its ASGI scope."""


@dataclass(eq=False)
class Ticket:
    """State of a request, shared by the event loop and the thread that answers it."""

    client: Hashable  # requests of the same client take turns with those of others
    deadline: float  # of time.perf_counter
    request_id: str = ""
    verb: str = "request"  # metrics it counts for: "embed", "predict", or neither
    work_started: float | None = None  # when a thread started it
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
    on_cancel: Callable[[], None] | None = None  # callback of the current waiter
    on_disconnect: Callable[[], None] | None = None  # callback when the client closes the connection before its answer

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.perf_counter()

    def count(self, num_inputs_cut: int, report: "InferenceReport") -> None:
        """Add what was cut of the inputs, and what the model does not know."""
        self.num_inputs_cut += num_inputs_cut
        self.num_tokens_cut += report.num_tokens_cut
        self.num_tokens_unknown += report.num_unknown
        self.num_inputs_empty += report.num_empty

    def cancel(self) -> None:
        """Cancel the request and its waiter."""
        self.is_canceled = True
        if self.on_cancel is not None:
            self.on_cancel()


_current: ContextVar[Ticket | None] = ContextVar("ticket", default=None)  # of a thread


def current_ticket() -> Ticket:
    """The ticket of the request in progress; outside of requests, a ticket without limits."""
    return _current.get() or Ticket(client=None, deadline=float("inf"))


def set_current_ticket(ticket: Ticket | None) -> None:
    """Set the ticket of the request in progress."""
    _current.set(ticket)
