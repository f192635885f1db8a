"""Check the values of a dataclass against its field types, for values from files and callers, to be written as JSON."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from bertkit.errors import UsageError

LARGEST_NUMBER = float.fromhex("0x1.fffffep127")
"""Largest float32."""


@dataclass(frozen=True)
class Range:
    """Allowed values of a field, as ``Annotated[int, Range(...)]``."""

    description: str  # for errors
    allows: Callable[[Any], bool]


Count = Annotated[int, Range("an integer of at least 1", lambda value: value >= 1)]
Number = Annotated[int, Range("an integer of at least 0", lambda value: value >= 0)]
Seed = Annotated[int, Range("an integer from 0 to below 2**63", lambda value: 0 <= value < 2**63)]
AboveZero = Annotated[float, Range("a number above 0", lambda value: value > 0)]
NotNegative = Annotated[float, Range("a number of at least 0", lambda value: value >= 0)]
Share = Annotated[float, Range("a share from 0 to below 1", lambda value: 0 <= value < 1)]
Probability = Annotated[float, Range("a probability from 0 to 1", lambda value: 0 <= value <= 1)]
Probabilities = Annotated[
    tuple[float, ...], Range("probabilities from 0 to 1", lambda values: all(0 <= one <= 1 for one in values))
]
Widths = Annotated[
    tuple[int, ...],
    Range(
        "different widths of at least 1",
        lambda values: all(one > 0 for one in values) and len(set(values)) == len(values),
    ),
]
Shares = Annotated[
    tuple[float, float], Range("two numbers from 0 to below 1", lambda values: all(0 <= value < 1 for value in values))
]
ShareAboveZero = Annotated[float, Range("a share above 0 and below 1", lambda value: 0 < value < 1)]
"""Types of settings with a range, which `check_field_types` checks."""


def check_field_types(instance: object) -> None:
    """Check every field of a dataclass of bool, int, float, str, literals, tuples of them, dicts, or None, and its
    `Range` if it has one.

    A float is a finite number that float32 can hold, or such an int; a bool is not a number.

    Raises:
        UsageError: a value of another type or out of its range, with the name of the field.
    """
    for name, hint in _hints(type(instance)).items():
        value = getattr(instance, name)
        if not _fits(value, hint):
            is_of_numpy = isinstance(value, np.generic) and not isinstance(value, float)  # a float64 is a float
            remedy = "; convert it with .item()" if is_of_numpy else ""
            plain = _hints(type(instance), with_ranges=False)[name]
            expected = _described(hint if _fits(value, plain) else plain)
            shown = list(value) if isinstance(value, tuple) else value
            raise UsageError(f"{name}={shown!r:.60}: expected {expected}{remedy}")


@cache
def _hints(kind: type, with_ranges: bool = True) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=with_ranges)
    return {part.name: hints[part.name] for part in fields(kind)}  # pyrefly: ignore


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        ranges = (extra for extra in arguments[1:] if isinstance(extra, Range))
        return _fits(value, arguments[0]) and all(extra.allows(value) for extra in ranges)
    if origin in (Union, UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        hints = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return len(value) == len(hints) and all(map(_fits, value, hints))
    if hint is type(None):
        return value is None
    if origin is dict:
        return isinstance(value, dict)
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and -LARGEST_NUMBER <= value <= LARGEST_NUMBER
    return isinstance(value, hint)


def _described(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((one.description for one in arguments if isinstance(one, Range)), None) or _described(arguments[0])
    if origin is dict:
        return "keys and values"
    if origin in (Union, UnionType):
        return " or ".join(map(_described, arguments))
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin is tuple:
        number = "" if arguments[1:] == (...,) else f" of {len(arguments)} items"
        return f"a list{number}, each item {_described(arguments[0])}"
    names = {bool: "True or False", int: "an integer", float: "a finite number", str: "a string", type(None): "None"}
    return names.get(hint) or hint.__name__
