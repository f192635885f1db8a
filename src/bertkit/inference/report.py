"""Counts of what was encoded, and the warnings that stand for them if nobody asked for the counts."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from bertkit.errors import TruncationWarning, UnknownWordsWarning, warn
from bertkit.tokenizer import Encodings


@dataclass
class InferenceReport:
    """Counts of texts: of the inputs of a task, where one is a pair or a list of choices."""

    num_texts: int = 0
    num_tokens: int = 0  # tokens computed, special tokens and window overlaps included
    num_empty: int = 0  # texts without a single known token: empty, or only [UNK]
    num_texts_cut: int = 0  # texts longer than the limit, which were cut
    num_tokens_cut: int = 0
    num_texts_windowed: int = 0  # texts longer than the limit, encoded in windows
    num_unknown: int = 0  # [UNK] tokens; in a static encoder tokens without a vector, skipped in averages

    @classmethod
    def of(cls, encodings: Encodings, num_texts: int) -> Self:
        """The counts of some texts."""
        report = cls()
        report.add(encodings, num_texts)
        return report

    def add(self, encodings: Encodings, num_texts: int) -> None:
        """Add the counts of some texts."""
        self.num_texts += num_texts
        self.num_tokens += len(encodings.input_ids)
        self.num_empty += int(encodings.are_empty().sum())
        self.num_texts_cut += encodings.num_texts_cut
        self.num_tokens_cut += int(encodings.num_tokens_cut.sum())
        self.num_texts_windowed += len(np.unique(encodings.text_index[encodings.owned[:, 0] > 0]))
        self.num_unknown += int(encodings.num_unknown.sum())

    def warn(self, remedy: str) -> None:
        """`warn_of_cuts`, and an UnknownWordsWarning if any token is [UNK]."""
        self.warn_of_cuts(remedy)
        if self.num_unknown:
            warn(
                f"{self.num_unknown} of {self.num_tokens} tokens are [UNK], words that the vocabulary cannot spell: "
                "texts that differ only in them have equal results",
                UnknownWordsWarning,
            )

    def warn_of_cuts(self, remedy: str) -> None:
        """Issue a TruncationWarning if any text was cut.

        Args:
            remedy: what to do about it.
        """
        if self.num_texts_cut:
            warn(
                f"{self.num_texts_cut} of {self.num_texts} texts exceeded the model's maximum length and lost "
                f"{self.num_tokens_cut} tokens; {remedy}",
                TruncationWarning,
            )
