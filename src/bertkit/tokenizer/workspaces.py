"""Workspaces of the tokenizing engine, each used by one thread at a time."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakSet

import numpy as np

from bertkit.tokenizer.engine import ROW_NUMBERS

CACHE_BYTES = 64 << 20
"""Maximum total memory for the caches of one tokenizer."""
_LARGEST_CACHE_BYTES = 16 << 20  # 131,072 rows; more gained nothing on a hundred novels
_NORMAL_ROWS = 1_024
_ROW_BYTES = 8 * ROW_NUMBERS


@dataclass
class Workspace:
    """Arrays described in engine.py. Only the cache keeps its content between calls."""

    cache: np.ndarray  # (a power of 2, 16) int64
    normal: np.ndarray  # (n, 4) int64
    word: np.ndarray  # (longest word, 2) int64

    def shrink(self) -> None:
        """Free memory that a text with very many consecutive marks needed."""
        if len(self.normal) > _NORMAL_ROWS:
            self.normal = np.empty((_NORMAL_ROWS, 4), np.int64)


class Workspaces:
    """One workspace per processor, created on demand; a thread waits if none is free.

    Separate caches per thread are faster than one shared cache, which would need a lock; limiting them to the number of
    processors keeps both small.
    """

    def __init__(self, longest_word: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._longest_word = longest_word
        self._number = num_processors()
        rows = min(cache_bytes // self._number, _LARGEST_CACHE_BYTES) // _ROW_BYTES
        self._num_rows = 1 << max(4, rows.bit_length() - 1)
        self._made: list[Workspace] = []  # free ones; the last used is taken first, as it is in the processor's caches
        self.free_all()
        _of_this_process.add(self)

    def free_all(self) -> None:
        """Count every workspace as unused."""
        self._unused = threading.Semaphore(self._number)

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


_of_this_process: WeakSet[Workspaces] = WeakSet()


def _after_fork() -> None:
    """Free all workspaces in a forked child, which lacks the threads that would return those lent at the fork."""
    for workspaces in _of_this_process:
        workspaces.free_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
