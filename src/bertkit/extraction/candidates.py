"""Candidate entities: spans of words with labels and scores, as arrays."""

from typing import NamedTuple

import numpy as np


class Candidates(NamedTuple):
    """Spans with a label and a score above the threshold; N of them."""

    start: np.ndarray  # (N,) int64 first word
    end: np.ndarray  # (N,) int64 last word
    label: np.ndarray  # (N,) int64
    score: np.ndarray  # (N,) in the precision of the model

    def chosen(self, choice: np.ndarray) -> "Candidates":
        """Those that a mask, or an array of indices, chooses."""
        return Candidates(*(values[choice] for values in self))


NO_CANDIDATES = Candidates(*(np.empty(0, np.int64),) * 3, np.empty(0))
