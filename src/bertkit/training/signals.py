"""Ctrl-C and SIGTERM during training: finish the step, save, and leave."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from tqdm import tqdm


@contextmanager
def stop_signals(tell: Callable[[str], None] = tqdm.write) -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether the program was told to stop.

    Until it is asked for the first time, which is when training begins, signals do what they did before, and so they
    stop at once; then the first one is noted, and a line of it told; a second one stops at once again.

    Only the main thread of a program may use it.
    """
    told: list[int] = []
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)
        restore()
        with suppress(RuntimeError):  # the stream is being written to at this very moment
            tell("stopping as soon as this step is done and the run is saved; a second signal stops at once")

    def should_stop() -> bool:
        if not before:
            before.update({number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)})
        return bool(told)

    try:
        yield should_stop
    finally:
        restore()
