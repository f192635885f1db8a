"""Vectors with numbers that are not finite."""

import numpy as np


def row_not_finite(vectors: np.ndarray) -> int | None:
    """The first row of (N, D) vectors with NaN or infinity; None: every number is finite."""
    if np.isfinite(vectors).all():
        return None
    return int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
