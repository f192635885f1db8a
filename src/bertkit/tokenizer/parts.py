"""Split texts into parts for threads, and concatenate the results."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle, pairwise
from typing import TypeVar

import numpy as np

from bertkit.tokenizer.engine import RING

_BYTES_AT_A_TIME = 1 << 18
"""Bytes of text, or characters, of a part: enough work for a thread, and its results still fit in the processor's
caches when they are concatenated."""

Result = TypeVar("Result")


class Room:
    """Reusable output memory of the engine, as new memory would have to be cleared for each part."""

    def __init__(self) -> None:
        self._ids, self._spans = np.empty(0, np.int32), np.empty((RING, 3), np.int32)

    def arrays(self, num_pieces: int, with_spans: bool) -> tuple[np.ndarray, np.ndarray]:
        """``ids`` and ``spans`` as engine.py describes them, for at least ``num_pieces`` pieces."""
        if len(self._ids) < num_pieces:
            self._ids = np.empty(num_pieces, np.int32)
        if with_spans and len(self._spans) < max(num_pieces, RING + 1):
            self._spans = np.empty((max(num_pieces, RING + 1), 3), np.int32)
        return self._ids, self._spans


class Joined:
    """Growing array of int32 rows, concatenated from parts."""

    def __init__(self, num_parts: int, row_shape: tuple[int, ...] = ()) -> None:
        self.length, self._num_joined, self._num_parts = 0, 0, num_parts
        self._rows = np.empty((0, *row_shape), np.int32)

    def append(self, rows: np.ndarray) -> None:
        start, self.length = self.length, self.length + len(rows)
        self._num_joined += 1
        if self.length > len(self._rows):
            # Enough for the remaining parts if they are like the previous ones, plus an eighth.
            to_come = self.length * (self._num_parts - self._num_joined) * 9 // (8 * self._num_joined)
            longer = np.empty((self.length + to_come, *rows.shape[1:]), np.int32)
            longer[:start] = self._rows[:start]
            self._rows = longer
        self._rows[start : self.length] = rows

    def whole(self) -> np.ndarray:
        """The array without spare capacity; nothing may be appended afterwards."""
        self._rows.resize((self.length, *self._rows.shape[1:]), refcheck=False)
        return self._rows


def borders(starts: np.ndarray) -> list[int]:
    """Indices of texts at which parts start, from 0 to the number of texts; texts are not split.

    Args:
        starts: (num_texts + 1,) int64, first byte or character of each text.
    """
    num_parts = int(starts[-1] - starts[0]) // _BYTES_AT_A_TIME + 1
    if num_parts == 1:
        return [0, len(starts) - 1]
    inner = np.searchsorted(starts, starts[0] + (starts[-1] - starts[0]) * np.arange(1, num_parts) // num_parts)
    return [0, *sorted(set(inner.tolist()) - {0, len(starts) - 1}), len(starts) - 1]


def in_order(work: Callable[[int, int, Room], Result], borders: Sequence[int], num_threads: int) -> Iterator[Result]:
    """``work(first, last, room)`` for each part, in ``num_threads`` threads; results in order.

    A result may use memory of its room, which is reused when the next result is requested.
    """
    if num_threads == 1:
        room = Room()
        yield from (work(first, last, room) for first, last in pairwise(borders))
        return
    rooms = [
        Room() for _ in range(2 * num_threads)
    ]  # a thread continues while its last result waits for an earlier one
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(num_threads) as executor:
        for (first, last), room in zip(pairwise(borders), cycle(rooms)):
            if len(waiting) == len(rooms):
                yield waiting.popleft().result()
            waiting.append(executor.submit(work, first, last, room))
        while waiting:
            yield waiting.popleft().result()
