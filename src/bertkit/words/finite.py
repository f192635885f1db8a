"""Vectors with numbers that are not finite."""

import numpy as np

from bertkit.errors import UsageError


def row_not_finite(vectors: np.ndarray) -> int | None:
    """The first row of (N, D) vectors with NaN or infinity; None: every number is finite."""
    if np.isfinite(vectors).all():
        return None
    return int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])


def check_trained(vectors: np.ndarray, learning_rate: float) -> None:
    """Check that training did not diverge.

    Raises:
        UsageError: a trained vector has a length that is NaN, or too large for float32.
    """
    if not np.isfinite(np.einsum("nd,nd->n", vectors, vectors)).all():
        raise UsageError(f"learning_rate={learning_rate}: training diverged to numbers that are not finite; lower it")
