"""One window of skip-gram or CBOW as three small matrix products, on copies of its rows.

All scores of a window are computed before any vector changes: S = H T^T for the hidden vectors H and the vectors of the
target words T, G = rate (labels - logistic(S)), then H += G T and T += G^T H. Two rows of H and three of T at a time
stay in registers, so that each loaded number is used several times. Rows are whole vectors of sixteen numbers.
"""

import numpy as np

from bertkit.compiled import lean_part
from bertkit.transformer.kernels.vector_functions import exp2
from bertkit.transformer.kernels.vectors import (
    WIDTH,
    broadcast,
    fma,
    inverse,
    lane,
    larger,
    load,
    store,
    totals_of_eight,
    where_positive,
)

HIDDEN_ROWS, TARGET_ROWS = 2, 3
"""Rows are processed in groups of these numbers."""

_LOG2_E = np.float32(1.4426950408889634)


def scratch(num_hidden: int, num_targets: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Arrays for one thread: hidden vectors and target vectors, up to whole groups, and the changes of both."""
    sizes = [-(-num_hidden // HIDDEN_ROWS) * HIDDEN_ROWS, -(-num_targets // TARGET_ROWS) * TARGET_ROWS]
    hidden, targets, *changes = (np.zeros((size, width), np.float32) for size in sizes * 2)
    return hidden, targets, changes[0], changes[1]


@lean_part
def clear(rows, number, width):
    """Set the first ``number`` rows to 0."""
    zeros = broadcast(np.float32(0))
    for at in range(0, number * width, WIDTH):
        store(rows, at, zeros)


@lean_part
def add_row(source, source_row, target, target_row, width):
    """target[target_row] += source[source_row]."""
    first, second = source_row * width, target_row * width
    for column in range(0, width, WIDTH):
        store(target, second + column, load(target, second + column) + load(source, first + column))


@lean_part
def scale_row(rows, row, factor, width):
    """rows[row] *= factor."""
    factors = broadcast(np.float32(factor))
    for at in range(row * width, (row + 1) * width, WIDTH):
        store(rows, at, load(rows, at) * factors)


@lean_part
def logistic(scores):
    """1 / (1 + exp(-scores)), to a relative error of 1e-6."""
    zeros, ones = broadcast(np.float32(0)), broadcast(np.float32(1))
    small = exp2((zeros - larger(scores, zeros - scores)) * broadcast(_LOG2_E))
    return where_positive(scores, ones, small) * inverse(ones + small)


@lean_part
def add_changes(hidden, num_hidden, targets, num_targets, rate, hidden_changes, target_changes, width):
    """Add rate times the gradient of the log-likelihood to the changes; the first target is the true word.

    Rows after the given numbers, up to whole groups, are read as well and must be 0; their changes have no meaning.
    """
    zeros, rates = broadcast(np.float32(0)), broadcast(np.float32(rate))
    for row in range(0, num_hidden, HIDDEN_ROWS):
        h0, h1 = row * width, (row + 1) * width
        for target in range(0, num_targets, TARGET_ROWS):
            t0, t1, t2 = target * width, (target + 1) * width, (target + 2) * width
            s00, s01, s02, s10, s11, s12 = zeros, zeros, zeros, zeros, zeros, zeros
            for at in range(0, width, WIDTH):
                a, b = load(hidden, h0 + at), load(hidden, h1 + at)
                c, d, e = load(targets, t0 + at), load(targets, t1 + at), load(targets, t2 + at)
                s00, s01, s02 = fma(a, c, s00), fma(a, d, s01), fma(a, e, s02)
                s10, s11, s12 = fma(b, c, s10), fma(b, d, s11), fma(b, e, s12)
            steps = zeros - logistic(totals_of_eight((s00, s01, s02, s10, s11, s12, zeros, zeros))) * rates
            label = rates if target == 0 else zeros
            g00, g01, g02 = lane(steps, 0) + label, lane(steps, 2), lane(steps, 4)
            g10, g11, g12 = lane(steps, 6) + label, lane(steps, 8), lane(steps, 10)
            for at in range(0, width, WIDTH):
                a, b = load(hidden, h0 + at), load(hidden, h1 + at)
                c, d, e = load(targets, t0 + at), load(targets, t1 + at), load(targets, t2 + at)
                x, y = load(hidden_changes, h0 + at), load(hidden_changes, h1 + at)
                store(hidden_changes, h0 + at, fma(g02, e, fma(g01, d, fma(g00, c, x))))
                store(hidden_changes, h1 + at, fma(g12, e, fma(g11, d, fma(g10, c, y))))
                u, v = load(target_changes, t0 + at), load(target_changes, t1 + at)
                store(target_changes, t0 + at, fma(g10, b, fma(g00, a, u)))
                store(target_changes, t1 + at, fma(g11, b, fma(g01, a, v)))
                store(target_changes, t2 + at, fma(g12, b, fma(g02, a, load(target_changes, t2 + at))))
