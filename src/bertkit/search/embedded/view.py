"""The state of a store after a commit, and its vectors mapped into memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bertkit.errors import StoreError
from bertkit.neighbors.block_sizes import ScanName
from bertkit.search.embedded.generation import Generation
from bertkit.search.filters import Filter
from bertkit.search.store import Identity

if TYPE_CHECKING:
    from bertkit.neighbors import DeviceScan, RowMask

MASKS_KEPT = 16
"""Number of filters whose rows a view caches."""


@dataclass(frozen=True)
class State:
    """The row of ``state``."""

    commit_number: int
    generation: int  # generation of the vector files
    num_positions: int  # rows of those files, removed ones included
    scan: ScanName
    identity: Identity

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> State:
        """Read the state visible to a connection.

        Raises:
            StoreError: the database is damaged.
        """
        try:
            rows = connection.execute("SELECT commit_number, generation, num_positions, scan, identity FROM state")
            ((commit_number, generation, num_positions, scan, identity),) = rows.fetchall()
            return cls(commit_number, generation, num_positions, scan, Identity(**json.loads(identity)))
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise  # locked, or a disk that fails
            raise StoreError(f"the database is damaged: {error}") from None

    def write(self, connection: sqlite3.Connection) -> None:
        values = (self.commit_number, self.generation, self.num_positions, self.scan, json.dumps(asdict(self.identity)))
        connection.execute(
            "INSERT INTO state (one, commit_number, generation, num_positions, scan, identity) "
            "VALUES (1, ?, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET commit_number = excluded.commit_number, "
            "generation = excluded.generation, num_positions = excluded.num_positions, scan = excluded.scan, "
            "identity = excluded.identity",
            values,
        )


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
            from bertkit.neighbors import RowMask

            mask = RowMask.of(len(self.numbers), is_counted)
            if len(self._masks) >= MASKS_KEPT:
                self._masks.clear()
            self._masks[repr(where)] = mask
        return mask
