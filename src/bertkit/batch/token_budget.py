"""Group sequences of like length, so many tokens at a time; part a batch evenly."""

import itertools
from collections.abc import Sequence

import numpy as np

from bertkit.errors import UsageError


def length_sorted_batches(seqlens: Sequence[int] | np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Indices of sequences, longest first, cut into batches of at most ``tokens_per_batch`` tokens.

    Equal lengths keep their order. A sequence longer than the budget has a batch to itself.

        >>> [batch.tolist() for batch in length_sorted_batches([2, 9, 4, 2, 4], tokens_per_batch=8)]
        [[1], [2, 4], [0, 3]]

    Raises:
        UsageError: the budget is below 1.
    """
    if tokens_per_batch < 1:
        raise UsageError(f"tokens_per_batch={tokens_per_batch}: expected at least 1")
    lengths = np.asarray(seqlens, np.int64)
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])  # tokens up to and with each
    batches, start, tokens = [], 0, 0
    while start < len(order):
        end = max(start + 1, int(np.searchsorted(ends, tokens + tokens_per_batch, "right")))
        batches.append(order[start:end])
        start, tokens = end, ends[end - 1]
    return batches


def even_parts(cu_lengths: np.ndarray, num_parts: int) -> list[tuple[int, int]]:
    """Start and end of at most ``num_parts`` runs of neighbours with about as many tokens each.

    >>> even_parts(np.array([0, 2, 11, 15, 17]), num_parts=2)
    [(0, 2), (2, 4)]

    Args:
        cu_lengths: (N + 1,) cumulative lengths from 0.
    """
    wanted = np.arange(1, num_parts) * (cu_lengths[-1] / num_parts)
    nearest = np.abs(cu_lengths[:, None] - wanted).argmin(axis=0)
    bounds = np.unique([0, *nearest, len(cu_lengths) - 1]).tolist()
    return list(itertools.pairwise(bounds))
