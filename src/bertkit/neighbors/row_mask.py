"""Mask of the rows that a search compares."""

from typing import NamedTuple

import numpy as np

from bertkit.neighbors.block_sizes import LANES


class RowMask(NamedTuple):
    """Mask of the rows to compare; without compiled code, as stores use it in searches by words, too."""

    bits: np.ndarray  # (ceil(num_rows / 16),) uint16: a bit for every row to compare
    num_rows: int  # number of rows to compare

    @classmethod
    def of(cls, num_rows: int, is_counted: np.ndarray | None = None) -> "RowMask":
        """Mask of (num_rows,) bool; None: all rows."""
        flags = np.zeros(-(-num_rows // LANES) * LANES, bool)
        flags[:num_rows] = True if is_counted is None else is_counted
        return cls(np.packbits(flags, bitorder="little").view("<u2"), int(np.count_nonzero(flags)))

    def at(self, positions: np.ndarray) -> np.ndarray:
        """(n,) bool: whether the rows at (n,) int64 positions are compared."""
        return (self.bits[positions // LANES] >> (positions % LANES).astype(np.uint16) & 1).astype(bool)
