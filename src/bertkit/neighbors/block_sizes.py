"""Sizes of the blocks of sixteen rows that scans read, by the name of the scan."""

from collections.abc import Callable, Mapping
from typing import Literal

ScanName = Literal["int8", "float32", "1-bit"]

LANES = 16
"""Number of rows in a block."""

BOUND_BYTES = 3 * LANES * 4
"""Bytes of the bounds at the end of a block of int8 rows."""


def padded(dimensions: int) -> int:
    """Dimensions of int8 rows as stored, rounded up to whole vectors."""
    return -(-dimensions // 16) * 16


BLOCK_BYTES: Mapping[ScanName, Callable[[int], int]] = {  # by the number of dimensions
    "int8": lambda dimensions: LANES * padded(dimensions) + BOUND_BYTES,
    "float32": lambda dimensions: 2 * LANES * 4,
    "1-bit": lambda dimensions: (-(-dimensions // 32) + 1) * LANES * 4,
}
