"""Checks of the fields of configs."""

from collections.abc import Iterable

from bertkit.errors import UsageError
from bertkit.transformer.activations import ACTIVATIONS, OTHER_NAMES


def check_integers(config: object, *names: str) -> None:
    """Check fields that count something.

    Raises:
        UsageError: one is not an integer of at least 1.
    """
    for name in names:
        value = getattr(config, name)
        if type(value) is not int or not 1 <= value < 2**31:
            raise UsageError(f"{name}={value!r}: expected an integer from 1 to 2,147,483,647")


def check_probabilities(config: object, *names: str) -> None:
    """Check fields that hold a dropout probability.

    Raises:
        UsageError: one is not a number from 0 to below 1.
    """
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise UsageError(f"{name}={value!r}: expected a probability from 0 to below 1")


def check_activations(config: object, *names: str) -> None:
    """Check fields of a frozen config that name an activation, and replace any of OTHER_NAMES by its name in
    ACTIVATIONS.

    Raises:
        UsageError: one names another function.
    """
    for name in names:
        value = getattr(config, name)
        if isinstance(value, str) and value in OTHER_NAMES:
            object.__setattr__(config, name, OTHER_NAMES[value])
        check_one_of(config, name, ACTIVATIONS)


def check_one_of(config: object, name: str, choices: Iterable[str]) -> None:
    """Check a field that names one of some choices.

    Raises:
        UsageError: it names another.
    """
    if getattr(config, name) not in list(choices):
        raise UsageError(f"{name}={getattr(config, name)!r}: expected one of {', '.join(choices)}")
