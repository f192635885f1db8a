"""Ctrl-C and SIGTERM during training: finish the step, save, and leave."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


@contextmanager
def stop_signals(log_line: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once the program was asked to stop.

    Until it is asked for the first time, which is when training begins, signals do what they did before, and so they
    stop at once; then they are noted, and the first one is logged. A Ctrl-C after that stops at once; a SIGTERM
    does not, as some who send it, such as torchrun, send it twice.

    Only the main thread of a program may use it.
    """
    received: list[int] = []
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, before[signal.SIGINT])
        if len(received) == 1:
            with suppress(RuntimeError):  # the stream is being written to at this very moment
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
