"""Ctrl-C and SIGTERM during training: finish the step, save, and leave."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether the program was told to stop; a second Ctrl-C interrupts at once.

    Only the main thread of a program may use it.
    """
    told: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if told and number == signal.SIGINT:
            raise KeyboardInterrupt
        told.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
