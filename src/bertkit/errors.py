"""The exceptions of bertkit.

Takes: what was given, what was expected, what to do.
Gives: one small tree of exceptions; the command line prints them as one line and exits with code 2.
May import: nothing.
"""


class BertkitError(Exception):
    """Anything wrong with what the caller gave: arguments, files, checkpoints. Never a defect of bertkit itself."""


class UsageError(BertkitError, ValueError):
    """An argument that cannot be honored: an unknown name, a value out of range, a combination without meaning."""


class DataError(BertkitError, ValueError):
    """Text, a row or a file that cannot be read as what it claims to be."""


class OverLengthError(DataError):
    """A text longer than the model can take, met while the policy was ``on_long="error"``.

    Attributes:
        index: its index among the texts of one call, from 0.
        problem: what the message says of it.
    """

    def __init__(self, message: str, index: int = 0, problem: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.problem = problem


class CheckpointError(BertkitError):
    """A model directory that is missing, incomplete, inconsistent or unsafe to open."""


class MissingHeadError(CheckpointError):
    """The model lacks the head this task needs, or has one whose weights were never trained."""


class StoreError(BertkitError):
    """A vector store that is missing, damaged, written by another process, or on a full disk."""


class DependencyError(BertkitError, ImportError):
    """An optional dependency that is not installed."""


class TruncationWarning(UserWarning):
    """Text was cut to the model's length and the caller did not ask for the counts."""


class UnknownWordsWarning(UserWarning):
    """Words without a vector were left out of averages and the caller did not ask for the counts."""


class TrainingError(BertkitError):
    """A run that cannot continue, for example because the disk is full."""


class NonFiniteError(TrainingError):
    """A loss or a gradient that is not a finite number."""
