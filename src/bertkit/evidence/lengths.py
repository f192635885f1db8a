"""How well texts of different lengths are judged, and what became of those that are longer than the model reads."""

from dataclasses import dataclass

import numpy as np

from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.evidence.outcomes import Outcomes

_NUM_SLICES = 5


@dataclass(frozen=True)
class Slice:
    """Some of the examples."""

    name: str
    num_examples: int
    score: Measured


@dataclass(frozen=True)
class Lengths:
    """Texts by their tokens, special tokens included."""

    max_length: int | None  # of a sequence of the model, tokens
    on_long: str  # what is done with longer ones
    shortest: int
    median: float
    longest: int
    num_tokens: int  # of all texts
    num_cut: int  # texts
    num_tokens_cut: int
    num_in_windows: int  # texts read in several windows
    slices: list[Slice]  # from short to long, each with about as many examples; then those that were cut, or not


def lengths_of(outcomes: Outcomes, metric: str, max_length: int | None, on_long: str) -> Lengths:
    """Scores by length.

    Args:
        metric: which score is reported.
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
        slices,
    )


def _named(low: int, high: int) -> str:
    return f"{low:,} tokens" if low == high else f"{low:,} to {high:,} tokens"
