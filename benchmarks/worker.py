"""One system in a process of its own, which stays alive between its turns: what it holds is its own."""

import importlib
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

_REST_SECONDS = 0.5  # after a turn: some thread pools keep spinning for a while


@dataclass(frozen=True)
class Turn:
    """One call over all the texts."""

    seconds: float
    vectors: np.ndarray  # (num_texts, D) float32
    peak_bytes: int  # the most memory its process has held so far


class Worker:
    """A process that loads a system and embeds when asked.

    Raises:
        RuntimeError: the system cannot be loaded; the first line of its reason.
    """

    def __init__(
        self, module: str, folder: Path, precision: str, threads: int, setting: dict, texts: Sequence[str]
    ) -> None:
        limit_threads(threads)
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, module, folder, precision, threads, setting, list(texts))
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._receive()
        except RuntimeError:
            self.close()
            raise

    def embed(self) -> Turn:
        self._connection.send("embed")
        turn = self._receive()
        time.sleep(_REST_SECONDS)
        return turn

    def close(self) -> None:
        self._connection.close()
        self._process.join()

    def _receive(self):
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"its process ended with exit code {self._process.exitcode}") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


def limit_threads(threads: int) -> None:
    """For processes started from here on, before their libraries are loaded."""
    for name in ("OMP", "MKL", "OPENBLAS", "NUMBA", "RAYON"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    os.environ |= {"TOKENIZERS_PARALLELISM": "true", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def _serve(
    connection: Connection, module: str, folder: Path, precision: str, threads: int, setting: dict, texts: list[str]
) -> None:
    try:
        embed = importlib.import_module(f"peers.{module}").load(folder, precision, threads, **setting)
        connection.send(None)
        while True:
            connection.recv()
            start = time.perf_counter()
            vectors = embed(texts)
            connection.send(Turn(time.perf_counter() - start, np.asarray(vectors, np.float32), _peak_bytes()))
    except EOFError:  # closed by the other side
        return
    except Exception as error:
        connection.send(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def _peak_bytes() -> int:
    """Of this program alone: getrusage's figure also counts the process it was forked from."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
