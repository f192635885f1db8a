"""Objective of models that never see the token they predict: every token of an unmasked text.

A left-to-right model predicts a token from those before it, a right-to-left model from those after it, and a shallow
bidirectional one from both (Peters et al. 2018); nothing needs to be masked.
"""

import numpy as np

from bertkit.objectives.masking import Masked
from bertkit.objectives.sequences import Sequences, SpecialIds


class EveryToken:
    """Predict every token except [CLS] and [SEP], without masking."""

    def __init__(self, special: SpecialIds) -> None:
        self.special = special

    def __call__(self, sequences: Sequences, rate: float, epoch: int, indices: np.ndarray) -> Masked:
        """As `Masking`; the rate is ignored."""
        ids = sequences.input_ids
        positions = np.flatnonzero((ids != self.special.cls) & (ids != self.special.sep))
        return Masked(ids, positions, ids[positions].astype(np.int64))
