"""The exceptions of bertkit.

Takes: messages: what was given, what was expected, what to do.
Gives: one small tree of exceptions; the command line prints them as one line and exits with code 2. A check of numbers
that raises one. Warnings at the line that called bertkit.
May import: nothing.
"""

import operator
import os
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any


class BertkitError(Exception):
    """Base class: something is wrong with the caller's input (arguments, files, checkpoints), never a bug of
    bertkit."""


class UsageError(BertkitError, ValueError):
    """An invalid argument: an unknown name, a value out of range, a meaningless combination."""


class RecipeError(UsageError):
    """An invalid setting in a file of settings: names in the message are those of settings."""


class DataError(BertkitError, ValueError):
    """A text, row or file that is malformed or unusable."""


class OverLengthError(DataError):
    """A text longer than the model's limit, with ``on_long="error"``.

    Attributes:
        index: index of the text in the call, from 0.
        problem: the message without the text's name.
    """

    def __init__(self, message: str, index: int = 0, problem: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.problem = problem

    def with_advice(self, name: str, advice: str, index: int) -> "OverLengthError":
        """The same error with another name and index of the text, and other advice."""
        problem = f"{self.problem.partition(':')[0]}: {advice}"
        return OverLengthError(f"{name} {problem}", index, problem)


class CheckpointError(BertkitError):
    """A model directory that is missing, incomplete, inconsistent or unsafe to open."""


class MissingHeadError(CheckpointError):
    """The model lacks the head that a task needs, or the head was never trained."""


class StoreError(BertkitError):
    """A vector store that is missing, damaged, written by another process, or on a full disk."""


class DependencyError(BertkitError, ImportError):
    """An optional dependency that is not installed."""


class TruncationWarning(UserWarning):
    """Text was cut to the model's length and the caller did not ask for the counts."""


class UnknownWordsWarning(UserWarning):
    """Words that the model does not know were read as [UNK], or in a static encoder left out of averages, and the
    caller did not ask for the counts."""


class TrainingError(BertkitError):
    """A run that cannot continue, for example because the disk is full."""


class NonFiniteError(TrainingError):
    """A loss or a gradient that is not a finite number."""


def required(module: str, need: str, extra: str) -> Any:
    """A module of an extra of bertkit; without it, a DependencyError that begins with what it is needed for."""
    try:
        return import_module(module)
    except ImportError:
        raise DependencyError(f"{need}: pip install 'bertkit[{extra}]'") from None


def checked_count(name: str, value: object, least: int = 1) -> int:
    """A number of things as int, also from an integer of numpy.

    Args:
        name: name of the argument.

    Raises:
        UsageError: another type, True and 5.0 included, or less than ``least``.
    """
    try:
        count = None if type(value).__name__ in ("bool", "bool_") else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        count = None
    if count is None or count < least:
        raise UsageError(f"{name}={value!r}: expected an int of at least {least}")
    return int(count)


def checked_path(name: str, value: object) -> Path:
    """The path of a file or folder.

    Args:
        name: what the path is of.

    Raises:
        UsageError: neither a str nor a path, or an empty str, which `Path` takes for the working directory.
    """
    if not isinstance(value, str | os.PathLike):
        raise UsageError(f"{name} is {type(value).__name__} ({value!r:.60}): expected a str or a path")
    if not str(value):
        raise UsageError(f"{name} is empty: expected a name, or a path such as . for the working directory")
    return Path(value)


def check_type(name: str, value: object, kind: type) -> None:
    """Check an argument that takes an object of a class of bertkit.

    Raises:
        UsageError: something else, such as its settings as a dict.
    """
    if not isinstance(value, kind):
        raise UsageError(f"{name} is {type(value).__name__} ({value!r:.60}): expected {kind.__name__}")


def check_collection(name: str, values: object, *, in_order: bool = True) -> None:
    """Check that an argument can be iterated over, value by value: a DataFrame or dict has the names of its columns,
    bytes have numbers, and the order of a set differs from process to process.

    Raises:
        UsageError: a table, bytes, no collection, or, if values are ``in_order``, a set.
    """
    if in_order and isinstance(values, set | frozenset):
        raise UsageError(f"expected {name}, got a {type(values).__name__}, which has no order: pass a list of them")
    if hasattr(values, "columns") or isinstance(values, Mapping):
        raise UsageError(f"expected {name}, got a {type(values).__name__}: pass one of its columns")
    if isinstance(values, bytes | bytearray) or not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
        one = "a str, or " if name == "texts" else ""
        raise UsageError(f"expected {name}, got {values!r:.40}: pass {one}several, such as a list of them")


def check_several(name: str, values: object, *, in_order: bool = True) -> None:
    """Check an argument that takes several texts or names.

    Raises:
        UsageError: one str, whose characters would be taken for them, or what `check_collection` refuses.
    """
    if isinstance(values, str):
        raise UsageError(f"{name} is a str ({values!r:.40}): expected several, such as [{values!r:.40}]")
    check_collection(name, values, in_order=in_order)


def check_above_zero(config: object, *names: str) -> None:
    """Check fields that hold a positive number.

    Raises:
        UsageError: one is not.
    """
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise UsageError(f"{name}={value!r}: expected a number above 0")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line that called bertkit, however deep in it the reason was found."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("bertkit", "torch"):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth)
