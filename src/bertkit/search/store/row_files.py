"""Append-only files of rows of equal size, mapped into memory, with a checksum for each block of rows.

The number of valid rows in a file, and the checksums of its blocks, are committed together with the SQLite rows that
belong to them. Data beyond the valid rows is from an interrupted write, and the next write overwrites it.
"""

import mmap
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from bertkit.errors import StoreError

BLOCK_ROWS = 1024
"""Number of rows per checksum."""


class RowFile:
    """A file of rows of one dtype and width.

    Args:
        path: the file; created at the first write.
        width: elements of a row.
        dtype: dtype of an element.
    """

    def __init__(self, path: Path, width: int, dtype: str) -> None:
        self.path, self.width, self.dtype = path, width, np.dtype(dtype)
        self.row_bytes = width * self.dtype.itemsize

    def rows(self, num_rows: int, *, at_random: bool = False) -> np.ndarray:
        """(num_rows, width), mapped into memory.

        Args:
            at_random: single rows will be read. The operating system then reads no more than their pages from disk.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is shorter.
        """
        if num_rows == 0:
            return np.empty((0, self.width), self.dtype)
        with open(self.path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if at_random and hasattr(mmap, "MADV_RANDOM"):
            mapped.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(mapped, self.dtype, num_rows * self.width).reshape(num_rows, self.width)

    def write(self, first: int, rows: np.ndarray) -> None:
        """Write rows from row ``first`` on, overwriting existing ones. They are on disk after `sync`.

        Raises:
            StoreError: the write failed, for example because the disk is full.
        """
        content = np.ascontiguousarray(rows, self.dtype).view(np.uint8).reshape(-1).data
        is_new = not self.path.exists()
        with self._opened(os.O_WRONLY | os.O_CREAT) as handle:
            written = 0
            while written < len(content):
                written += os.pwrite(handle, content[written:], first * self.row_bytes + written)
        if is_new:
            sync_folder(self.path.parent)

    def sync(self) -> None:
        """Flush all writes to disk.

        Raises:
            StoreError: flushing failed.
        """
        if self.path.exists():
            with self._opened(os.O_RDONLY) as handle:
                os.fsync(handle)

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        try:
            handle = os.open(self.path, flags, 0o666)
            try:
                yield handle
            finally:
                os.close(handle)
        except OSError as error:
            raise StoreError(
                f"{self.path}: {error.strerror}. The last commit is kept, the change in progress is lost"
            ) from error


def extended_checksums(first: int, rows: np.ndarray, checksum_before: int) -> Iterator[tuple[int, int]]:
    """Checksums of blocks after rows are appended from row ``first`` on.

    Args:
        checksum_before: checksum of the rows before ``first`` in its block, 0 if there are none.

    Yields:
        Number of the block, and the checksum of its rows.
    """
    end = first + len(rows)
    for block in range(first // BLOCK_ROWS, -(-end // BLOCK_ROWS)):
        start, stop = max(first, block * BLOCK_ROWS), min(end, (block + 1) * BLOCK_ROWS)
        content = np.ascontiguousarray(rows[start - first : stop - first]).view(np.uint8)
        yield block, zlib.crc32(content.data, checksum_before if start % BLOCK_ROWS else 0)


def block_checksums(file: RowFile, num_rows: int) -> Iterator[tuple[int, int]]:
    """Number and checksum of the blocks of a file, up to its end."""
    with suppress(FileNotFoundError), file.path.open("rb") as content:
        for block in range(-(-num_rows // BLOCK_ROWS)):
            num_bytes = min(BLOCK_ROWS, num_rows - block * BLOCK_ROWS) * file.row_bytes
            if len(part := content.read(num_bytes)) < num_bytes:
                return
            yield block, zlib.crc32(part)


def sync_folder(folder: Path) -> None:
    """Flush the directory entries of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
