"""Warning about cut texts, with counts."""

import warnings

from bertkit.errors import TruncationWarning


def warn_of_truncation(num_texts: int, num_texts_cut: int, num_tokens_cut: int, remedy: str, stacklevel: int) -> None:
    """Issue a TruncationWarning if any text was cut; ``stacklevel`` is relative to the caller."""
    if num_texts_cut:
        warnings.warn(
            f"{num_texts_cut} of {num_texts} texts exceeded the model's maximum length and lost {num_tokens_cut} "
            "tokens; " + remedy,
            TruncationWarning,
            stacklevel=stacklevel + 1,
        )
