"""Sequences cut from a corpus of tokens, before masking: what a source of pre-training examples gives."""

from typing import NamedTuple, Protocol

import numpy as np

from bertkit.compiled import compiled


class Sequences(NamedTuple):
    """B sequences end to end, T tokens in all."""

    input_ids: np.ndarray  # (T,) int32
    token_type_ids: np.ndarray  # (T,) int32
    cu_seqlens: np.ndarray  # (B + 1,) int64
    next_sentence_label: np.ndarray | None  # (B,) int64, 0 = B follows A, 1 = random; None: single texts


class SpecialIds(NamedTuple):
    """Ids of the tokens that frame a sequence and stand for what is masked."""

    cls: int
    sep: int
    mask: int


class Source(Protocol):
    """Examples by number: which they are depends on seed and epoch alone."""

    def num_examples(self, epoch: int) -> int:
        """How many examples an epoch has."""
        ...

    def take(self, epoch: int, indices: np.ndarray) -> Sequences:
        """The examples of (B,) int64 ``indices`` of an epoch, in that order."""
        ...


@compiled
def example_of(cu_examples, index):
    """The document an example is from, and its number among those of the document; ``cu_examples`` is (D + 1,)."""
    document = np.searchsorted(cu_examples, index, side="right") - 1
    return document, index - cu_examples[document]
