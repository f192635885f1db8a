"""Scores by text length, and the handling of texts longer than the model's limit."""

from dataclasses import dataclass

import numpy as np

from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.evidence.outcomes import Outcomes

_NUM_SLICES = 5


@dataclass(frozen=True)
class Slice:
    """Examples in a range of lengths."""

    name: str
    num_examples: int
    score: Measured


@dataclass(frozen=True)
class Lengths:
    """Text lengths in tokens, special tokens included."""

    max_length: int | None  # maximum sequence length of the model
    on_long: str  # handling of longer texts
    shortest: int
    median: float
    longest: int
    num_tokens: int  # tokens of all texts
    num_cut: int  # number of texts that were cut
    num_tokens_cut: int
    num_in_windows: int  # number of texts encoded in several windows
    num_unknown: int  # [UNK] tokens
    num_empty: int  # texts or pairs without a known token
    slices: list[Slice]  # from short to long, of about equal size; then cut and uncut texts


def lengths_of(outcomes: Outcomes, metric: str, max_length: int | None, on_long: str) -> Lengths:
    """Scores by length.

    Args:
        metric: the score to report.
    """
    tokens, cut = outcomes.num_tokens, outcomes.num_tokens_cut
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, _NUM_SLICES + 1), method="inverted_cdf")).tolist()
    starts = [edges[0], *(edge + 1 for edge in edges[1:-1])]
    parts = [
        (_named(low, high), (tokens >= low) & (tokens <= high))
        for low, high in zip(starts, edges[1:] or edges, strict=True)
    ]
    if cut.any():
        parts += [("cut", cut > 0), ("whole", cut == 0)]
    windows = outcomes.num_windows > 1
    if windows.any():
        parts += [("in windows", windows), ("in one piece", ~windows)]
    slices = [
        Slice(name, int(inside.sum()), bootstrap_scores(outcomes.task.scoring, outcomes.rows[inside])[metric])
        for name, inside in parts
        if inside.any()
    ]
    return Lengths(
        max_length,
        on_long,
        int(tokens.min()),
        float(np.median(tokens)),
        int(tokens.max()),
        int(tokens.sum()),
        int((cut > 0).sum()),
        int(cut.sum()),
        int(windows.sum()),
        outcomes.num_unknown,
        outcomes.num_empty,
        slices,
    )


def _named(low: int, high: int) -> str:
    return f"{low:,} tokens" if low == high else f"{low:,} to {high:,} tokens"
