"""The objective of models that never see the token they predict: every token of a text, as it stands.

A left-to-right model predicts a token from those before it, a right-to-left model from those after it, and a shallow
bidirectional one from both (Peters et al. 2018); nothing needs to be masked.
"""

import numpy as np

from bertkit.objectives.masking import Masked
from bertkit.objectives.sequences import Sequences, SpecialIds


class EveryToken:
    """Every token but [CLS] and [SEP] is predicted, and none is hidden."""

    def __init__(self, special: SpecialIds) -> None:
        self.special = special

    def __call__(self, sequences: Sequences, rate: float, epoch: int, indices: np.ndarray) -> Masked:
        """As `Masking`; the rate does not count."""
        ids = sequences.input_ids
        positions = np.flatnonzero((ids != self.special.cls) & (ids != self.special.sep))
        return Masked(ids, positions, ids[positions].astype(np.int64))
