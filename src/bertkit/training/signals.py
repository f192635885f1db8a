"""Ctrl-C and SIGTERM during training: finish the step, save, and exit."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


@contextmanager
def stop_signals(log_line: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once the program was asked to stop.

    Before its first call, which is when training starts, signals keep their previous handlers and stop the program at
    once. Afterwards they set a flag, and the first one is logged. A second Ctrl-C stops at once; a second SIGTERM does
    not, as some senders, such as torchrun, send it twice.

    Only the main thread of a program may use it.
    """
    received: list[int] = []
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, before[signal.SIGINT])
        if len(received) == 1:
            with suppress(RuntimeError):  # the stream is being written to
                log_line("stopping as soon as this step is done and the run is saved; Ctrl-C now stops at once")

    def should_stop() -> bool:
        if not before:
            before.update({number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)})
        return bool(received)

    try:
        yield should_stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
