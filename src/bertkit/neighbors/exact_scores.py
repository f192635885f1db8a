"""Exact order of candidates: float64 products with error bounds, and exact sums where these are not sufficient."""

import math
from typing import NamedTuple

import numpy as np

from bertkit.compiled import lean
from bertkit.neighbors.int8_codes import Similarity

_UNIT = 2.0**-53


class Scored(NamedTuple):
    """Products of a query and some rows."""

    scores: np.ndarray  # (n,) float64
    errors: np.ndarray  # (n,) float64: bound of the difference from the true product


def best(
    query: np.ndarray, rows: np.ndarray, positions: np.ndarray, k: int, similarity: Similarity
) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` of some rows with the largest similarity: as if computed without rounding; for ties, earlier rows
    first.

    Args:
        query: (dimensions,) float32.
        rows: (num_rows, dimensions) float32; may be mapped into memory.
        positions: (n,) int64, the rows to compare.

    Returns:
        (min(k, n),) int64 positions and float64 scores, best first. A score is the true value up to a few units in
        the last digit of float64.
    """
    k = min(k, len(positions))
    if k == 0:
        return positions[:0], np.empty(0)
    scored = Scored(np.empty(len(positions)), np.empty(len(positions)))
    _score(query.astype(np.float64), rows, positions, similarity == "cosine", *scored)
    if k < len(positions):
        lower = scored.scores - scored.errors
        threshold = np.partition(lower, len(lower) - k)[len(lower) - k]
        kept = np.flatnonzero(scored.scores + scored.errors >= threshold)
        positions, scored = positions[kept], Scored(*(part[kept] for part in scored))
    order = np.lexsort((positions, -scored.scores))
    positions, scores, errors = positions[order], scored.scores[order], scored.errors[order]
    in_doubt = scores[:-1] - errors[:-1] <= scores[1:] + errors[1:]
    in_doubt &= (errors[:-1] > 0) | (errors[1:] > 0)
    if len(positions) > k or in_doubt.any():
        doubtful = np.append(in_doubt, False) | np.insert(in_doubt, 0, False)
        scores[doubtful] = _true_scores(query, rows[positions[doubtful]], similarity)
        order = np.lexsort((positions, -scores))
        positions, scores = positions[order], scores[order]
    return positions[:k], scores[:k]


def similarities(query: np.ndarray, rows: np.ndarray, positions: np.ndarray, similarity: Similarity) -> np.ndarray:
    """(n,) float64: the similarity of a query and some rows, up to a few units in the last digit; see `best`."""
    scored = Scored(np.empty(len(positions)), np.empty(len(positions)))
    _score(query.astype(np.float64), rows, positions, similarity == "cosine", *scored)
    return scored.scores


def _true_scores(query: np.ndarray, rows: np.ndarray, similarity: Similarity) -> np.ndarray:
    """Scores whose sums are rounded once; equal rows are computed once."""
    as_bytes = np.ascontiguousarray(rows + np.float32(0)).view(np.dtype((np.void, rows.shape[1] * 4)))[:, 0]
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return np.array([true_score(query, rows[index], similarity) for index in first])[inverse]


def true_score(query: np.ndarray, row: np.ndarray, similarity: Similarity) -> float:
    """The similarity of two float32 vectors: products are exact in float64, and their sum is rounded once."""
    q, x = query.astype(np.float64), row.astype(np.float64)
    product = math.fsum(q * x)
    if similarity == "dot":
        return product
    return product / (math.sqrt(math.fsum(q * q)) * math.sqrt(math.fsum(x * x)))


@lean
def _score(query, rows, positions, is_cosine, scores, errors):
    dimensions = rows.shape[1]
    query_squares = 0.0
    for column in range(dimensions):
        query_squares += query[column] ** 2
    whole = dimensions // 4 * 4
    for index in range(len(positions)):
        row = positions[index]
        product, size, squares = 0.0, 0.0, 0.0
        product_1, product_2, product_3, size_1, size_2, size_3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        squares_1, squares_2, squares_3 = 0.0, 0.0, 0.0
        for column in range(0, whole, 4):  # four sums at once: a single sum would wait for each addition
            value, value_1 = np.float64(rows[row, column]), np.float64(rows[row, column + 1])
            value_2, value_3 = np.float64(rows[row, column + 2]), np.float64(rows[row, column + 3])
            part, part_1 = value * query[column], value_1 * query[column + 1]
            part_2, part_3 = value_2 * query[column + 2], value_3 * query[column + 3]
            product, product_1 = product + part, product_1 + part_1
            product_2, product_3 = product_2 + part_2, product_3 + part_3
            size, size_1 = size + abs(part), size_1 + abs(part_1)
            size_2, size_3 = size_2 + abs(part_2), size_3 + abs(part_3)
            squares, squares_1 = squares + value * value, squares_1 + value_1 * value_1
            squares_2, squares_3 = squares_2 + value_2 * value_2, squares_3 + value_3 * value_3
        for column in range(whole, dimensions):
            value = np.float64(rows[row, column])
            part = value * query[column]
            product, size, squares = product + part, size + abs(part), squares + value * value
        product += product_1 + product_2 + product_3
        size += size_1 + size_2 + size_3
        squares += squares_1 + squares_2 + squares_3
        error = (dimensions + 2) * _UNIT * size
        if is_cosine:
            scale = 1.0 / (np.sqrt(query_squares) * np.sqrt(squares))
            product *= scale
            error = error * scale + (2 * dimensions + 16) * _UNIT * abs(product)
        scores[index], errors[index] = product, error * 1.001
