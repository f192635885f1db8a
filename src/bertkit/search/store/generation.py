"""Files of one generation of vectors: row ``position`` of each file belongs to the same record.

A generation only grows. Compaction, repair and a change of model write a new generation, which replaces the old one in
a single commit.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertkit.neighbors.block_sizes import BLOCK_BYTES, LANES, ScanName
from bertkit.search.records import Identity, Similarity
from bertkit.search.store.row_files import BLOCK_ROWS, RowFile, block_checksums, extended_checksums


@dataclass(frozen=True)
class Generation:
    """Vector files of a generation."""

    folder: Path
    number: int
    vectors: RowFile  # (num_positions, dimensions) float32
    numbers: RowFile  # (num_positions, 1) int64, ascending: the number of the record
    blocks: RowFile  # (ceil(num_positions / 16), block_bytes) uint8: what the scan needs, made from ``vectors``
    similarity: Similarity
    scan: ScanName

    @classmethod
    def of(cls, folder: Path, number: int, identity: Identity, scan: ScanName) -> "Generation":
        """A generation by its number; its files are created at the first write."""
        dimensions = identity.dimensions
        return cls(
            folder,
            number,
            RowFile(folder / f"vectors.{number}.float32", dimensions, "<f4"),
            RowFile(folder / f"numbers.{number}.int64", 1, "<i8"),
            RowFile(folder / f"blocks.{number}.{scan}", BLOCK_BYTES[scan](dimensions), "u1"),
            identity.similarity,
            scan,
        )

    def append(self, connection: sqlite3.Connection, first: int, numbers: np.ndarray, vectors: np.ndarray) -> None:
        """Write rows from position ``first`` on, and record the checksums of their blocks."""
        for file, rows in ((self.vectors, vectors), (self.numbers, numbers[:, None])):
            file.write(first, rows)
            (before,) = connection.execute(
                "SELECT coalesce(max(checksum), 0) FROM block WHERE file = ? AND block = ?",
                (file.path.name, first // BLOCK_ROWS),
            ).fetchone()
            connection.executemany(
                "REPLACE INTO block (file, block, checksum) VALUES (?, ?, ?)",
                [(file.path.name, *block) for block in extended_checksums(first, rows, before)],
            )
        from bertkit.neighbors import encode_rows

        begun = first % LANES  # rows of the last block, which is rewritten with the same bytes for them
        if begun:
            vectors = np.concatenate([self.vectors.rows(first)[first - begun :], vectors])
        self.blocks.write(first // LANES, encode_rows(vectors, self.similarity, self.scan))

    def sync(self) -> None:
        """Flush all appended rows to disk."""
        for file in (self.vectors, self.numbers, self.blocks):
            file.sync()

    def encoded(self, num_positions: int) -> np.ndarray:
        """(ceil(num_positions / 16), block_bytes) uint8, mapped into memory."""
        return self.blocks.rows(-(-num_positions // LANES))

    def wrong_codes(self, num_positions: int) -> list[int]:
        """First positions of parts whose blocks differ from those of the vectors."""
        from bertkit.neighbors.scans import encode_rows, same_rows

        vectors, wrong = self.vectors.rows(num_positions), []
        try:
            blocks = self.encoded(num_positions)
        except (FileNotFoundError, ValueError):
            return [0]
        for first in range(0, num_positions, BLOCK_ROWS):
            part = np.array(vectors[first : first + BLOCK_ROWS])
            stored = blocks[first // LANES : -(-(first + len(part)) // LANES)]
            if not same_rows(stored, encode_rows(part, self.similarity, self.scan), len(part)):
                wrong.append(first)
        return wrong

    def damaged_blocks(self, connection: sqlite3.Connection, file: RowFile, num_positions: int) -> list[int]:
        """Blocks of a file that are missing or have a wrong checksum."""
        rows = connection.execute("SELECT block, checksum FROM block WHERE file = ?", [file.path.name])
        expected: dict[int, int] = dict(rows.fetchall())
        actual = dict(block_checksums(file, num_positions))
        return [
            block for block in range(-(-num_positions // BLOCK_ROWS)) if expected.get(block) != actual.get(block, -1)
        ]


def delete_other_generations(folder: Path, kept: int) -> None:
    """Delete the files of generations that no commit refers to."""
    for pattern in ("vectors.*.float32", "numbers.*.int64", "blocks.*.*"):
        for path in folder.glob(pattern):
            if path.name.split(".")[1] != str(kept):
                path.unlink(missing_ok=True)


def write_generation(
    connection: sqlite3.Connection, generation: Generation, batches: Iterable[tuple[np.ndarray, np.ndarray]]
) -> int:
    """Write a generation from (numbers, vectors) batches, on disk when it returns. Returns the number of positions.

    Files of other generations are kept: a rollback of the transaction needs those of its start.
    """
    num_positions = 0
    for file in (generation.vectors, generation.numbers, generation.blocks):
        file.path.unlink(missing_ok=True)  # left by an interrupted change
    for numbers, vectors in batches:
        generation.append(connection, num_positions, numbers, vectors)
        num_positions += len(numbers)
    generation.sync()
    names = (generation.vectors.path.name, generation.numbers.path.name)
    connection.execute("DELETE FROM block WHERE file NOT IN (?, ?)", names)
    connection.execute("DELETE FROM removed")
    return num_positions
