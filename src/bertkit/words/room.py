"""Large arrays, in memory or in an unnamed temporary file."""

import mmap
import tempfile

import numpy as np

from bertkit.errors import DataError
from bertkit.files.disk_space import reserve

_BYTES_IN_MEMORY = 1 << 28


def empty_quantized(num_rows: int, dim: int) -> np.ndarray:
    """An uninitialized (num_rows, dim) float32 array. Above 256 MB it is mapped to a temporary file, which is removed
    with the array; TMPDIR sets its folder.

    Raises:
        DataError: the disk is too full for the file.
    """
    num_bytes = num_rows * dim * 4
    if num_bytes <= _BYTES_IN_MEMORY:
        return np.empty((num_rows, dim), np.float32)
    try:
        with tempfile.TemporaryFile() as file:
            reserve(file.fileno(), num_bytes)
            return np.frombuffer(mmap.mmap(file.fileno(), num_bytes), np.float32).reshape(num_rows, dim)
    except OSError as error:
        raise DataError(
            f"{num_rows} vectors of {dim} numbers need a temporary file of {num_bytes:,} bytes in "
            f"{tempfile.gettempdir()}: {error.strerror}; free that space, or set TMPDIR to another folder"
        ) from error


def release(array: np.ndarray) -> None:
    """Release the memory pages of an array from `empty_quantized`; they are read again on access."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if isinstance(owner, mmap.mmap) and hasattr(owner, "madvise"):
        owner.madvise(mmap.MADV_DONTNEED)
