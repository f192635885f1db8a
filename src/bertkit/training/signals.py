"""Ctrl-C, SIGTERM and SIGHUP during training: finish the step, save, and exit."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


@contextmanager
def stop_signals(log_line: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once the program was asked to stop.

    Before its first call, which is when training starts, signals keep their previous handlers and stop the program at
    once. Afterwards they set a flag, and the first one is logged. A second Ctrl-C stops at once; a second SIGTERM does
    not, as some senders, such as torchrun, send it twice. SIGHUP, of a terminal that was closed, counts unless it is
    ignored, as under nohup; nothing is written to that terminal afterwards, which would fail.

    Only the main thread of a program may use it.
    """
    received: list[int] = []
    before: dict[signal.Signals, Any] = {}
    hang_up = getattr(signal, "SIGHUP", None)  # which Windows lacks
    terminals = [stream.fileno() for stream in (sys.__stdout__, sys.__stderr__) if stream and stream.isatty()]

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, before[signal.SIGINT])
        if number == hang_up:
            for terminal in terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)
        if len(received) == 1:
            with suppress(RuntimeError):  # the stream is being written to
                log_line("stopping as soon as this step is done and the run is saved; Ctrl-C now stops at once")

    def should_stop() -> bool:
        if not before:
            wanted = [signal.SIGINT, signal.SIGTERM]
            if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
                wanted.append(hang_up)
            before.update({number: signal.signal(number, note) for number in wanted})
        return bool(received)

    try:
        yield should_stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
