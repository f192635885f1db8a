"""Group sequences of like length, so many tokens at a time; part a batch evenly."""

import itertools
from collections.abc import Sequence

import numpy as np

from bertkit.errors import UsageError


def length_sorted_batches(seqlens: Sequence[int] | np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Indices of sequences, longest first, cut into batches of at most ``tokens_per_batch`` tokens.

    The shortest sequences fill what room the longest leave. A sequence longer than the budget has a batch to itself.

        >>> [batch.tolist() for batch in length_sorted_batches([2, 9, 5, 2, 4, 4], tokens_per_batch=8)]
        [[1], [2, 3], [4, 5], [0]]

    Raises:
        UsageError: the budget is below 1.
    """
    if tokens_per_batch < 1:
        raise UsageError(f"tokens_per_batch={tokens_per_batch}: expected at least 1")
    lengths = np.asarray(seqlens, np.int64)
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])  # tokens up to and with each
    batches, start, stop, tokens = [], 0, len(order), 0
    while start < stop:
        end = min(stop, max(start + 1, int(np.searchsorted(ends, tokens + tokens_per_batch, "right"))))
        room, first_filler = tokens_per_batch - (ends[end - 1] - tokens), stop
        while first_filler > end and lengths[order[first_filler - 1]] <= room:
            first_filler -= 1
            room -= lengths[order[first_filler]]
        batches.append(np.concatenate([order[start:end], order[first_filler:stop]]))
        start, stop, tokens = end, first_filler, ends[end - 1]
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
