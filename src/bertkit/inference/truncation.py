"""Text that was cut is announced, with counts."""

import warnings

from bertkit.errors import TruncationWarning
from bertkit.inference.predict import PredictReport


def warn_of_truncation(num_texts: int, num_texts_cut: int, num_tokens_cut: int, remedy: str, stacklevel: int) -> None:
    """Raise a TruncationWarning if any text was cut; ``stacklevel`` as of the function that calls this one."""
    if num_texts_cut:
        warnings.warn(
            f"{num_texts_cut} of {num_texts} texts were longer than the model reads and lost {num_tokens_cut} tokens; "
            + remedy,
            TruncationWarning,
            stacklevel=stacklevel + 1,
        )


def warn_of_cut_examples(report: PredictReport) -> None:
    """The same of examples that a model read, in the name of whoever called the function that calls this one."""
    remedy = "shorten them, or pass report= to have the counts"
    warn_of_truncation(report.num_examples, report.num_cut, report.num_tokens_cut, remedy, stacklevel=3)
