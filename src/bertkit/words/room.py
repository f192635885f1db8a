"""Large arrays, in memory or in an unnamed temporary file."""

import mmap
import tempfile

import numpy as np

_BYTES_IN_MEMORY = 1 << 28


def room_for(num_rows: int, dim: int) -> np.ndarray:
    """An uninitialized (num_rows, dim) float32 array. Above 256 MB it is mapped to a temporary file, which is removed
    with the array; TMPDIR sets its folder."""
    if num_rows * dim * 4 <= _BYTES_IN_MEMORY:
        return np.empty((num_rows, dim), np.float32)
    with tempfile.TemporaryFile() as file:
        file.truncate(num_rows * dim * 4)
        return np.frombuffer(mmap.mmap(file.fileno(), num_rows * dim * 4), np.float32).reshape(num_rows, dim)


def release(array: np.ndarray) -> None:
    """Release the memory pages of an array from `room_for`; they are read again on access."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if isinstance(owner, mmap.mmap) and hasattr(owner, "madvise"):
        owner.madvise(mmap.MADV_DONTNEED)
