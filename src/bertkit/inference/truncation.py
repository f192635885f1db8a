"""The warning that texts were cut, with counts."""

import warnings

from bertkit.errors import TruncationWarning


def warn_of_truncation(num_texts: int, num_texts_cut: int, num_tokens_cut: int, remedy: str, stacklevel: int) -> None:
    """Raise a TruncationWarning if any text was cut; ``stacklevel`` as of the function that calls this one."""
    if num_texts_cut:
        warnings.warn(
            f"{num_texts_cut} of {num_texts} texts were longer than the model reads and lost {num_tokens_cut} tokens; "
            + remedy,
            TruncationWarning,
            stacklevel=stacklevel + 1,
        )
