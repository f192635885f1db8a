"""Large arrays: in memory, or above a limit in a file without a name, whose pages the system can drop."""

import mmap
import tempfile

import numpy as np

_BYTES_IN_MEMORY = 1 << 28


def room_for(num_rows: int, dim: int) -> np.ndarray:
    """(num_rows, dim) float32 to be written to. Above 256 MB it lies in a temporary file that is removed with the
    array: set TMPDIR to choose the folder."""
    if num_rows * dim * 4 <= _BYTES_IN_MEMORY:
        return np.empty((num_rows, dim), np.float32)
    with tempfile.TemporaryFile() as file:
        file.truncate(num_rows * dim * 4)
        return np.frombuffer(mmap.mmap(file.fileno(), num_rows * dim * 4), np.float32).reshape(num_rows, dim)


def release(array: np.ndarray) -> None:
    """Let go of the pages of an array of `room_for`: they are read again when they are needed."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if isinstance(owner, mmap.mmap) and hasattr(owner, "madvise"):
        owner.madvise(mmap.MADV_DONTNEED)
