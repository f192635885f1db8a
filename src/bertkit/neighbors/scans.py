"""Scans: what is kept beside float32 rows to find the nearest quickly, by name.

"int8" and "float32" are exact; "1-bit" is approximate, and reads an eighth of the bytes of int8. All keep blocks of
sixteen rows, interleaved by four bytes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bertkit.neighbors import bit_scan, float32_scan, int8_codes, int8_scan
from bertkit.neighbors.block_sizes import LANES, ScanName
from bertkit.neighbors.candidates import ScanBlocks
from bertkit.neighbors.device_scan import DeviceScan
from bertkit.neighbors.int8_codes import Similarity
from bertkit.neighbors.proved import Nearest, by_bounds
from bertkit.neighbors.row_mask import RowMask


class Scan(NamedTuple):
    """How rows are compared with queries."""

    is_exact: bool
    encode_rows: Callable[[np.ndarray, Similarity], np.ndarray]
    scan_for: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int], ScanBlocks]
    """From queries, rows, blocks, the bits of a mask and the number of rows to find."""
    num_compared: Callable[[int], int] = lambda k: k
    """Minimum number of rows to compare in float32, by the number of rows in the result."""


SCANS: dict[ScanName, Scan] = {
    "int8": Scan(True, int8_codes.encode_rows, int8_scan.scan_for),
    "float32": Scan(True, float32_scan.encode_rows, float32_scan.scan_for),
    "1-bit": Scan(False, bit_scan.encode_rows, bit_scan.scan_for, bit_scan.num_compared),
}


def encode_rows(rows: np.ndarray, similarity: Similarity, scan: ScanName = "int8") -> np.ndarray:
    """The blocks of (n, dimensions) float32 rows for a scan: (ceil(n / 16), block_bytes) uint8.

    Args:
        similarity: for "cosine" no row may be zero.
    """
    return SCANS[scan].encode_rows(rows, similarity)


def nearest(
    queries: np.ndarray,
    rows: np.ndarray,
    blocks: np.ndarray,
    k: int,
    similarity: Similarity,
    mask: RowMask | None = None,
    scan: ScanName = "int8",
    device_scan: DeviceScan | None = None,
) -> list[Nearest]:
    """The ``k`` rows with the largest similarity for every query: ids and order as in exact arithmetic, unless the scan
    is "1-bit"; but cosines that are equal there, of rows of different length, may be ordered by rounding.

    Args:
        queries: (num_queries, dimensions) float32, finite; for "cosine" not zero.
        rows: (num_rows, dimensions) float32; may be mapped into memory.
        blocks: their `encode_rows` for this scan.
        k: at least 1; all rows if there are fewer.
        mask: rows to compare; None: all.
        device_scan: scans the rows on a GPU instead. Results are the same, those of "1-bit" at least as good.
    """
    chosen = SCANS[scan]
    mask = RowMask.of(len(rows)) if mask is None else mask

    def scan_for(part: np.ndarray, masks: np.ndarray, number: int) -> ScanBlocks:
        return chosen.scan_for(part, rows, blocks, masks, number)

    results: list[Nearest | None] = [None] * len(queries)
    if device_scan is not None:
        results = device_scan.nearest(queries, rows, k, similarity, mask)
    remaining = [number for number, result in enumerate(results) if result is None]
    proved = iter(by_bounds(queries[remaining], rows, k, similarity, mask, scan_for, chosen.num_compared(k)))
    return [next(proved) if result is None else result for result in results]


def same_rows(blocks: np.ndarray, others: np.ndarray, num_rows: int) -> bool:
    """Whether two arrays of blocks are equal in their first rows."""
    if not np.array_equal(blocks[:-1], others[:-1]):
        return False
    lanes = num_rows - LANES * (len(blocks) - 1)  # rows of the last block
    last, other = (each[-1].reshape(-1, LANES, 4)[:, :lanes] for each in (blocks, others))
    return np.array_equal(last, other)
