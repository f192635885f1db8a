"""The state of a store after a commit."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, dataclass

from bertkit.errors import StoreError
from bertkit.neighbors.block_sizes import ScanName
from bertkit.search.records import Identity


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
