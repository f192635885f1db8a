"""Rows of an array on a GPU, and the largest of their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from bertkit.device import free_bytes, send_each
from bertkit.later import Tensor, torch

QUERIES_AT_ONCE = 1024
VALUES_AT_ONCE = 2**25  # 128 MiB of float32
ELEMENTS_AT_ONCE = 2**28  # of the rows that are multiplied at once: 1 GiB of float32
BYTES_SENT = 2**26
"""Bytes of the rows in one copy to the device."""


class DeviceRows:
    """Rows of an array on a device, kept there between calls if they take at most a third of its free memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._kept: Tensor | None = None

    def parts(self, rows: np.ndarray, num_queries: int) -> Iterator[Tensor]:
        """All rows in order, in parts of bounded size, which is smaller for more queries: those that are kept, or else
        copies that are sent one after another.

        Args:
            rows: (n, dimensions), of a dtype as in `kept`.
        """
        at_once = max(1, min(VALUES_AT_ONCE // num_queries, ELEMENTS_AT_ONCE // max(1, rows.shape[1])))
        kept = self.kept(rows)
        return _sent(rows, at_once, self.device) if kept is None else iter(kept.split(at_once))

    def kept(self, rows: np.ndarray) -> Tensor | None:
        """All rows on the device, in their own dtype; None if they do not fit. Only those that are not there yet are
        copied.

        Args:
            rows: (n, dimensions), at least one; float16, float32 or float64, may be mapped into memory. Those of one
                call are the first ones of the next, or the other way round.
        """
        kept = self._kept
        if kept is None or len(kept) < len(rows):
            before = [] if kept is None else [kept]
            num_before = sum(map(len, before))
            free = free_bytes(self.device) + sum(part.nbytes for part in before)
            if 3 * rows.nbytes > free:  # old rows, new ones, and all of them in one tensor
                self._kept = None
                return None
            kept = self._kept = torch.cat([*before, *_sent(rows[num_before:], len(rows), self.device)])
        return kept[: len(rows)]


def largest(parts: Iterable[Tensor], number: int) -> tuple[Tensor, Tensor]:
    """The largest values of each query, and their columns.

    Args:
        parts: (num_queries, n) values, at least one part. Column numbers continue from part to part.

    Returns:
        (num_queries, min(number, all columns)) values, in descending order, and int64 columns. Which of equal values
        are returned, and their order, is not defined.
    """
    start = 0
    best: tuple[Tensor, Tensor] | None = None
    for part in parts:
        values, columns = part.topk(min(number, part.shape[1]))
        columns += start
        start += part.shape[1]
        if best is not None:
            values, columns = torch.cat([best[0], values], 1), torch.cat([best[1], columns], 1)
            values, order = values.topk(min(number, values.shape[1]))
            columns = columns.gather(1, order)
        best = values, columns
    assert best is not None
    return best


def queries_at_once(number: int) -> int:
    """Number of queries to compute at once, if each has this number of results."""
    return max(1, min(QUERIES_AT_ONCE, VALUES_AT_ONCE // number))


def as_integers(*columns: Tensor) -> Tensor:
    """(num_queries, n) tensors as one int64 tensor with the bits of floats, so that one copy returns all."""
    bits = {torch.float32: torch.int32, torch.float64: torch.int64}
    return torch.cat([part.view(bits.get(part.dtype, part.dtype)).long() for part in columns], 1)


def _sent(rows: np.ndarray, at_once: int, device: torch.device) -> Iterator[Tensor]:
    at_once = max(1, min(at_once, BYTES_SENT // max(1, rows.itemsize * rows.shape[1])))
    return send_each((_staged(rows[start : start + at_once], device) for start in range(0, len(rows), at_once)), device)


def _staged(rows: np.ndarray, device: torch.device) -> Tensor:
    """A copy of the rows, in memory from which a GPU copies without waiting."""
    dtype = getattr(torch, rows.dtype.name)
    staged = torch.empty(rows.shape, dtype=dtype, pin_memory=device.type == "cuda")
    staged.numpy()[:] = rows
    return staged
