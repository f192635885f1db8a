"""Sequences cut from a tokenized corpus, before masking."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from bertkit.compiled import compiled
from bertkit.errors import UsageError
from bertkit.tokenizer import Tokenizer


class Sequences(NamedTuple):
    """B sequences end to end, T tokens in all."""

    input_ids: np.ndarray  # (T,) int32
    token_type_ids: np.ndarray  # (T,) int32
    cu_seqlens: np.ndarray  # (B + 1,) int64
    next_sentence_label: np.ndarray | None  # (B,) int64, 0 = B follows A, 1 = it does not; None: single texts


class SpecialIds(NamedTuple):
    """Ids of [CLS], [SEP] and [MASK]."""

    cls: int
    sep: int
    mask: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "SpecialIds":
        """Those of a tokenizer; raises a UsageError if its vocabulary lacks one."""
        vocabulary, special = tokenizer.vocabulary, tokenizer.vocabulary.special
        for token in (special.cls, special.sep, special.mask):
            if token not in vocabulary:
                raise UsageError(f"the vocabulary has no {token}, which pre-training needs: add it to its vocab.txt")
        return cls(*map(vocabulary.id, (special.cls, special.sep, special.mask)))


class Source(ABC):
    """Pre-training examples by index, determined by seed and epoch."""

    # An epoch and its counts, replaced as one: the trainer's thread and the one that prepares batches share them.
    _kept: tuple[int, Any] = -1, None

    def num_examples(self, epoch: int) -> int:
        """Number of examples in an epoch."""
        return int(self.counts(epoch)[0][-1])

    def random_share(self, epoch: int) -> float | None:
        """Share of the sentence pairs of an epoch whose second part is random; None: there are no such pairs."""
        return None

    def counts(self, epoch: int) -> tuple[np.ndarray, ...]:
        """(D + 1,) int64 number of examples before each document of an epoch, and what else its examples need."""
        kept = self._kept
        if epoch != kept[0]:
            kept = self._kept = epoch, self.count(epoch)
        return kept[1]

    @abstractmethod
    def count(self, epoch: int) -> tuple[np.ndarray, ...]:
        """The values of `counts`, computed."""

    @abstractmethod
    def take(self, epoch: int, indices: np.ndarray) -> Sequences:
        """The examples of (B,) int64 ``indices`` of an epoch, in that order."""


@compiled
def example_of(cu_examples, index):
    """Document of an example, and index of the example in the document; ``cu_examples`` is (D + 1,)."""
    document = np.searchsorted(cu_examples, index, side="right") - 1
    return document, index - cu_examples[document]
