"""Warnings about cut texts and unknown words, with counts."""

import warnings

from bertkit.errors import TruncationWarning, UnknownWordsWarning


def warn_of_truncation(num_texts: int, num_texts_cut: int, num_tokens_cut: int, remedy: str, stacklevel: int) -> None:
    """Issue a TruncationWarning if any text was cut; ``stacklevel`` is relative to the caller."""
    if num_texts_cut:
        warnings.warn(
            f"{num_texts_cut} of {num_texts} texts exceeded the model's maximum length and lost {num_tokens_cut} "
            "tokens; " + remedy,
            TruncationWarning,
            stacklevel=stacklevel + 1,
        )


def warn_of_unknown(num_unknown: int, num_tokens: int, stacklevel: int) -> None:
    """Issue an UnknownWordsWarning if any token is [UNK]; ``stacklevel`` is relative to the caller."""
    if num_unknown:
        warnings.warn(
            f"{num_unknown} of {num_tokens} tokens are [UNK], words that the vocabulary cannot spell: texts that "
            "differ only in them have equal results",
            UnknownWordsWarning,
            stacklevel=stacklevel + 1,
        )
