"""Pairs of vectors with a large dot product: blocks of scores in 8 bits with an error bound, exact sums for the rest.

Vectors are rounded to 8 bits, each with its own scale and the length r of its rounding error. For two vectors
x, y with roundings x', y' the Cauchy-Schwarz inequality gives |xy - x'y'| <= r_x (|y| + r_y) + |x| r_y. A product of
8-bit numbers therefore shows which pairs can reach a threshold, in a quarter of the time of float32, and a sum in
float64 decides. If the processor does not multiply 8-bit numbers exactly, float32 products select candidates, with r
the rounding error of a sum (Higham 2002, section 3.1).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from bertkit.compiled import lean, lean_part
from bertkit.errors import DataError, UsageError
from bertkit.executor import map_on_cores
from bertkit.later import has_torch, torch

BLOCK_ROWS = 1024
"""Vectors on each side of a block: its scores take 4 MiB, its pairs at most 24 MiB."""
_LONGEST_INT8 = 2**31 // 127**2  # components whose products fit 32 bits


class Pairs(NamedTuple):
    """Pairs of rows and their scores."""

    first: np.ndarray  # (num_pairs,) int64
    second: np.ndarray  # (num_pairs,) int64
    scores: np.ndarray  # (num_pairs,) float64: dot products of the float32 vectors, summed in float64


def number_rows(vectors: object, caller: str) -> np.ndarray:
    """Vectors as an array of two dimensions, with its dtype.

    Args:
        caller: the name of the function for its errors.

    Raises:
        UsageError: another shape, also of lists of different lengths, or values that are no real numbers.
    """
    try:
        rows = np.asarray(vectors)
    except ValueError:
        raise UsageError(f"{caller}: expected (num_vectors, embedding_dim), got lists of different lengths") from None
    if rows.ndim != 2:
        raise UsageError(f"{caller}: expected (num_vectors, embedding_dim), got shape {rows.shape}")
    if rows.dtype.kind not in "fiu":
        raise UsageError(f"{caller}: expected vectors of numbers, got the dtype {rows.dtype}")
    return rows


class Vectors:
    """Vectors prepared for the search of close pairs.

    Args:
        vectors: (num_vectors, embedding_dim), any float dtype; compared as float32. May be memory-mapped.
        caller: the name of the function for its errors.

    Raises:
        UsageError: as `number_rows`.
        DataError: a component that is not finite, or so large that a product may not be.
    """

    def __init__(self, vectors: np.ndarray, caller: str) -> None:
        vectors = number_rows(vectors, caller)
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        num_vectors, size = vectors.shape
        self._lengths, self._residuals = np.zeros((2, num_vectors))
        self._scales = np.ones(num_vectors, np.float32)
        is_int8 = 1 < size < _LONGEST_INT8 and has_exact_int8()  # with one column torch (2.13) reads others
        self._values = np.empty(vectors.shape, np.int8) if is_int8 else self.vectors

        def prepare(start: int) -> None:
            part = slice(start, start + BLOCK_ROWS)
            rows = self.vectors[part]
            if is_int8:
                _round(rows, self._values[part], self._scales[part], self._lengths[part], self._residuals[part])
            else:
                self._lengths[part] = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
                self._residuals[part] = 1.01 * size * 2.0**-24 * self._lengths[part]

        for _ in map_on_cores(prepare, range(0, num_vectors, BLOCK_ROWS)):
            pass
        wrong = np.flatnonzero(~(self._lengths < 1e18))  # NaN included
        if len(wrong):
            raise DataError(f"{caller}: vector {wrong[0]} has a component that is not finite, or is larger than 1e18")

    def __len__(self) -> int:
        return len(self.vectors)

    def close_pairs(self, threshold: Callable[[], float]) -> Iterator[Pairs]:
        """The pairs with a dot product of at least the threshold, each once, with first < second, block by block.

        Args:
            threshold: called for each block; it may rise between blocks.
        """
        starts = range(0, len(self), BLOCK_ROWS)
        blocks = ((row, column) for row in starts for column in starts if row <= column)
        return map_on_cores(
            lambda block: self._block(self._rows(block[0]), block[1], threshold(), is_triangle=True), blocks
        )

    def close_to(self, rows: np.ndarray, threshold: float) -> Iterator[Pairs]:
        """Pairs of some rows, (R,) int64 with R at most BLOCK_ROWS, with every vector, including the rows
        themselves."""
        starts = range(0, len(self), BLOCK_ROWS)
        return map_on_cores(lambda column: self._block(rows, column, threshold, is_triangle=False), starts)

    def _rows(self, start: int) -> np.ndarray:
        return np.arange(start, min(start + BLOCK_ROWS, len(self)))

    def _block(self, rows: np.ndarray, start: int, threshold: float, *, is_triangle: bool) -> Pairs:
        columns = slice(start, start + BLOCK_ROWS)
        along = slice(rows[0], rows[-1] + 1) if is_triangle else rows  # a slice copies nothing
        scores = _products(self._values[along], self._values[columns])
        residual, length = self._residuals[along].max(), self._lengths[along].max()
        others = self._residuals[columns].max(), self._lengths[columns].max()
        margin = residual * (others[1] + others[0]) + length * others[0]
        least = threshold - 1.0001 * margin - 1e-6 * length * others[1] - 1e-36  # rounding of the margin and scales
        leasts = (least / self._scales[along]).astype(np.float32)
        counts = np.empty(len(rows), np.int64)
        total = _count(scores, self._scales[columns], leasts, rows, start, is_triangle, counts)
        pairs = Pairs(np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.float64))
        if not total:
            return pairs
        kept = _decide(
            scores, self._scales[columns], leasts, rows, start, is_triangle, counts,
            self.vectors, threshold, *pairs,
        )  # fmt: skip
        return Pairs(*(values[:kept] for values in pairs))


@cache
def has_exact_int8() -> bool:
    """Whether torch is installed and multiplies 8-bit numbers exactly here: without VNNI or AMX, sums of two products
    may saturate."""
    if not has_torch():
        return False
    largest = torch.full((64, 64), 127, dtype=torch.int8)
    largest[::3] = -128
    return (largest.int() @ largest.T.int()).equal(torch._int_mm(largest, largest.T))


def _products(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(R, E) @ (E, C) -> (R, C), in memory that the next call in this thread reuses."""
    size = len(rows) * len(columns)
    if len(getattr(_memory, "scores", ())) < size:
        _memory.scores = np.empty(max(size, BLOCK_ROWS * BLOCK_ROWS), np.int32)
    scores = _memory.scores[:size].reshape(len(rows), len(columns))
    if rows.dtype == np.int8:
        torch._int_mm(torch.from_numpy(rows), torch.from_numpy(columns).T, out=torch.from_numpy(scores))
        return scores
    return np.matmul(rows, columns.T, out=scores.view(np.float32))


_memory = threading.local()


@lean
def _round(rows, values, scales, lengths, residuals):
    """Round each row to 8 bits; lengths of the row and of its rounding error."""
    for row in range(rows.shape[0]):
        largest = np.float32(0)
        for column in range(rows.shape[1]):
            largest = max(largest, abs(rows[row, column]))
        scale = largest / np.float32(127)
        if not scale > np.float32(1e-30):
            scale = np.float32(1)
        inverse = np.float32(1) / scale
        length = residual = 0.0
        for column in range(rows.shape[1]):
            value = rows[row, column]
            rounded = np.int8(np.rint(value * inverse))
            values[row, column] = rounded
            length += np.float64(value) * np.float64(value)
            rest = np.float64(value) - np.float64(scale) * np.float64(rounded)
            residual += rest * rest
        scales[row], lengths[row], residuals[row] = scale, np.sqrt(length), np.sqrt(residual)


@lean
def _count(scores, scales, leasts, rows, start, is_triangle, counts):
    """Count the scores of each row that can reach the threshold; returns their sum."""
    total = np.int64(0)
    for row in range(scores.shape[0]):
        count, least = np.int32(0), leasts[row]
        for column in range(max(rows[row] + 1 - start, 0) if is_triangle else 0, scores.shape[1]):
            count += np.int32(np.float32(scores[row, column]) * scales[column] >= least)
        counts[row] = count
        total += count
    return total


@lean
def _decide(scores, scales, leasts, rows, start, is_triangle, counts, vectors, threshold, first, second, sums):
    """Write the pairs whose exact score reaches the threshold; returns their number."""
    written = np.int64(0)
    for row in range(scores.shape[0]):
        if counts[row] == 0:
            continue
        for column in range(max(rows[row] + 1 - start, 0) if is_triangle else 0, scores.shape[1]):
            if np.float32(scores[row, column]) * scales[column] >= leasts[row]:
                exact = _dot(vectors, rows[row], start + column)
                if exact >= threshold:
                    first[written], second[written], sums[written] = rows[row], start + column, exact
                    written += 1
    return written


@lean_part
def _dot(vectors, one, other):
    """The dot product of two rows, summed in float64 in an order that is the same for both orders of the rows."""
    size = vectors.shape[1]
    whole = size - size % 8
    a = b = c = d = e = f = g = h = 0.0
    for at in range(0, whole, 8):
        a += np.float64(vectors[one, at]) * np.float64(vectors[other, at])
        b += np.float64(vectors[one, at + 1]) * np.float64(vectors[other, at + 1])
        c += np.float64(vectors[one, at + 2]) * np.float64(vectors[other, at + 2])
        d += np.float64(vectors[one, at + 3]) * np.float64(vectors[other, at + 3])
        e += np.float64(vectors[one, at + 4]) * np.float64(vectors[other, at + 4])
        f += np.float64(vectors[one, at + 5]) * np.float64(vectors[other, at + 5])
        g += np.float64(vectors[one, at + 6]) * np.float64(vectors[other, at + 6])
        h += np.float64(vectors[one, at + 7]) * np.float64(vectors[other, at + 7])
    for at in range(whole, size):
        a += np.float64(vectors[one, at]) * np.float64(vectors[other, at])
    return ((a + b) + (c + d)) + ((e + f) + (g + h))
