"""A system in a separate process, which stays alive between its turns and shares no memory with other systems."""

import ctypes
import importlib
import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Turn:
    """One call, as measured in the process of the worker."""

    seconds: float
    result: Any
    peak_bytes: int  # the most memory its process has held since `Worker.forget_peak`, else since its start


class Worker:
    """A process that calls ``function(*arguments)`` of a module of this folder once, and in each turn the function that
    this call returned.

    Args:
        module: dotted name of the module, such as "peers.bertkit".
        rest_seconds: pause after a turn, because some thread pools keep spinning for a while.

    Raises:
        RuntimeError: the first call fails; the message is the first line of its error.
    """

    def __init__(self, module: str, function: str, *arguments: Any, rest_seconds: float = 0.25) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._rest_seconds = rest_seconds
        self._process = context.Process(target=_serve, args=(theirs, module, function, arguments), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._receive()
        except RuntimeError:
            self.close()
            raise

    def turn(self, *arguments: Any, **named: Any) -> Turn:
        """Call the function that the first call returned.

        Raises:
            RuntimeError: it fails; the message is the first line of its error.
        """
        self._connection.send((arguments, named))
        turn = self._receive()
        time.sleep(self._rest_seconds)
        return turn

    def forget_peak(self) -> None:
        """Reset the peak of memory, and return free memory to the system; no effect where the system lacks this."""
        self._connection.send(None)
        self._receive()

    def close(self) -> None:
        self._connection.close()
        self._process.join()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"its process ended with exit code {self._process.exitcode}") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


def limit_threads(threads: int) -> None:
    """Limit the threads of libraries in processes that are started from now on."""
    for name in ("OMP", "MKL", "OPENBLAS", "NUMBA", "RAYON"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    os.environ |= {"TOKENIZERS_PARALLELISM": "true", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def _serve(connection: Connection, module: str, function: str, arguments: tuple) -> None:
    try:
        call = getattr(importlib.import_module(module), function)(*arguments)
        connection.send(None)
        while True:
            request = connection.recv()
            if request is None:
                _forget_peak()
                connection.send(None)
                continue
            start = time.perf_counter()
            result = call(*request[0], **request[1])
            connection.send(Turn(time.perf_counter() - start, result, _peak_bytes()))
    except EOFError:  # closed by the other side
        return
    except Exception as error:
        connection.send(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def _forget_peak() -> None:
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return


def _peak_bytes() -> int:
    """Peak memory of this process alone: the figure of getrusage also counts the process that it was forked from."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
