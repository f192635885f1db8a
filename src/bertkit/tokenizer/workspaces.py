"""What the engine writes to while it tokenizes, lent to one thread at a time."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from bertkit.tokenizer.engine import ROW_NUMBERS

CACHE_BYTES = 64 << 20
"""Most memory for the caches of one tokenizer together."""
_LARGEST_CACHE_BYTES = 16 << 20  # 131,072 rows; more gained nothing on a hundred novels
_NORMAL_ROWS = 1_024
_ROW_BYTES = 8 * ROW_NUMBERS


@dataclass
class Workspace:
    """Arrays as engine.py describes them. Only the cache means something from one call to the next."""

    cache: np.ndarray  # (a power of 2, 16) int64
    normal: np.ndarray  # (n, 4) int64
    word: np.ndarray  # (longest word, 2) int64

    def shrink(self) -> None:
        """Give back what a text of very many marks in a row needed."""
        if len(self.normal) > _NORMAL_ROWS:
            self.normal = np.empty((_NORMAL_ROWS, 4), np.int64)


class Workspaces:
    """As many workspaces as this process has processors, made when first needed; a thread that finds none free waits.

    A cache for each thread measured better than one for all, which would have to be locked; that the processors are as
    many as the caches keeps both small.
    """

    def __init__(self, longest_word: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._longest_word = longest_word
        number = num_processors()
        rows = min(cache_bytes // number, _LARGEST_CACHE_BYTES) // _ROW_BYTES
        self._num_rows = 1 << max(4, rows.bit_length() - 1)
        self._unused = threading.Semaphore(number)
        self._made: list[Workspace] = []  # and free; the one last used is taken first, being in the processor's caches

    @contextmanager
    def lend(self) -> Iterator[Workspace]:
        with self._unused:
            try:
                workspace = self._made.pop()
            except IndexError:
                workspace = Workspace(
                    np.zeros((self._num_rows, ROW_NUMBERS), np.int64),
                    np.empty((_NORMAL_ROWS, 4), np.int64),
                    np.empty((self._longest_word, 2), np.int64),
                )
            try:
                yield workspace
            finally:
                self._made.append(workspace)


def num_processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
