"""The vectors of a store after a commit, mapped into memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bertkit import neighbors
from bertkit.neighbors.row_mask import RowMask
from bertkit.search.filters import Filter
from bertkit.search.store.generation import Generation
from bertkit.search.store.state import State

if TYPE_CHECKING:
    import torch

    from bertkit.neighbors import DeviceScan

MASKS_KEPT = 16
"""Number of filters whose rows a view caches."""


class View:
    """The vectors of one commit, mapped into memory. Threads may share it."""

    def __init__(
        self, folder: Path, state: State, connection: sqlite3.Connection, device_scan: DeviceScan | None = None
    ) -> None:
        """Raises FileNotFoundError or ValueError if the files are not those of the commit.

        Args:
            device_scan: of the vectors of this generation, if a GPU scans them.
        """
        generation = Generation.of(folder, state.generation, state.identity, state.scan)
        self.state, self.device_scan = state, device_scan
        self.vectors = generation.vectors.rows(  # (num_positions, dimensions) float32
            state.num_positions, at_random=state.scan != "float32" and device_scan is None
        )
        self.numbers = generation.numbers.rows(state.num_positions)[:, 0]  # (num_positions,) int64, ascending
        self.blocks = generation.encoded(state.num_positions)
        self.is_live = np.ones(state.num_positions, bool)
        self.is_live[[position for (position,) in connection.execute("SELECT position FROM removed")]] = False
        self._masks: dict[str, RowMask] = {}  # by the text of the filter, as True and 1 would be equal keys

    def positions(self, numbers: np.ndarray) -> np.ndarray:
        """Positions of live records by number."""
        return np.searchsorted(self.numbers, numbers)

    def mask(self, where: Filter | None, numbers: Callable[[], np.ndarray]) -> RowMask:
        """The rows that a filter matches; cached for the most recent filters.

        Args:
            numbers: returns the numbers of the matching records.
        """
        mask = self._masks.get(repr(where))
        if mask is None:
            if where is None:
                is_counted = self.is_live
            else:
                is_counted = np.zeros(len(self.numbers), bool)
                is_counted[self.positions(numbers())] = True
            mask = RowMask.of(len(self.numbers), is_counted)
            if len(self._masks) >= MASKS_KEPT:
                self._masks.clear()
            self._masks[repr(where)] = mask
        return mask


class Views:
    """Makes views of the commits of a store, and keeps the last.

    Args:
        device: of the scan; None: the CPU.
    """

    def __init__(self, folder: Path, device: torch.device | None) -> None:
        self.folder, self.device = folder, None if device is None or device.type == "cpu" else device
        self._last: View | None = None

    def at(self, state: State, connection: sqlite3.Connection) -> View:
        """The view of a commit; raises as `View`."""
        last = self._last
        if last is None or last.state.commit_number != state.commit_number:
            last = self._last = View(self.folder, state, connection, self._device_scan(state, last))
        return last

    def close(self) -> None:
        """Release the files of the last view."""
        self._last = None

    def _device_scan(self, state: State, last: View | None) -> DeviceScan | None:
        """A scan on the GPU: that of the last view, if its vectors are the first ones of this state."""
        if self.device is None:
            return None
        if last is not None and last.state.generation == state.generation:
            return last.device_scan
        return neighbors.DeviceScan(self.device)
