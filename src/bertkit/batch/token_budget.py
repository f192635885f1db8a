"""Batches of sequences with similar lengths under a token budget; even parts of a batch."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from bertkit.errors import UsageError


def length_sorted_batches(seqlens: Sequence[int] | np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Sort sequences by length, longest first, and group their indices into batches of at most ``tokens_per_batch``
    tokens.

    The shortest sequences fill the room that the longest leave. A sequence longer than the budget forms its own batch.

        >>> [batch.tolist() for batch in length_sorted_batches([2, 9, 5, 2, 4, 4], tokens_per_batch=8)]
        [[1], [2, 3], [4, 5], [0]]

    Raises:
        UsageError: the budget is below 1.
    """
    if tokens_per_batch < 1:
        raise UsageError(f"tokens_per_batch={tokens_per_batch}: expected at least 1")
    lengths = np.asarray(seqlens, np.int64)
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])  # cumulative tokens, each included
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


def even_parts(cu_lengths: np.ndarray, num_parts: int, most_tokens: float = math.inf) -> list[tuple[int, int]]:
    """Start and end of at most ``num_parts`` runs of neighbors with about equal numbers of tokens.

    If a run would exceed ``most_tokens``, the number of runs is the smallest multiple of ``num_parts`` with which none
    does. A single sequence may exceed it.

    >>> even_parts(np.array([0, 2, 11, 15, 17]), num_parts=2)
    [(0, 2), (2, 4)]
    >>> even_parts(np.array([0, 2, 11, 15, 17]), num_parts=2, most_tokens=9)
    [(0, 1), (1, 2), (2, 4)]

    Args:
        cu_lengths: (N + 1,) cumulative lengths from 0.
    """
    num_sequences, wanted = len(cu_lengths) - 1, max(num_parts, math.ceil(cu_lengths[-1] / most_tokens))
    for number in range(-(-wanted // num_parts) * num_parts, num_sequences + num_parts, num_parts):
        parts = _even_parts(cu_lengths, number)
        if all(cu_lengths[end] - cu_lengths[start] <= most_tokens or end - start == 1 for start, end in parts):
            return parts
    return [(number, number + 1) for number in range(num_sequences)]


def _even_parts(cu_lengths: np.ndarray, num_parts: int) -> list[tuple[int, int]]:
    wanted = np.arange(1, num_parts) * (cu_lengths[-1] / num_parts)
    after = np.searchsorted(cu_lengths, wanted)  # so that time does not grow with sequences times parts
    before = np.maximum(after - 1, 0)
    is_before = wanted - cu_lengths[before] <= cu_lengths[after] - wanted
    nearest = np.searchsorted(cu_lengths, cu_lengths[np.where(is_before, before, after)])
    bounds = np.unique([0, *nearest, len(cu_lengths) - 1]).tolist()
    return list(itertools.pairwise(bounds))
