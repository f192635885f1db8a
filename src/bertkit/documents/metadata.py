"""Ids and metadata of documents and records, and what they may be."""

import math

from bertkit.errors import UsageError

Scalar = str | int | float | bool | None
"""A metadata value: a JSON scalar."""


def check_key(key: object) -> None:
    """Check a metadata key.

    Raises:
        UsageError: it is not a str, is empty, or has a lone surrogate.
    """
    if not isinstance(key, str) or not key:
        raise UsageError(f"metadata key {key!r}: expected a str that is not empty")
    check_unicode(f"metadata key {key!r:.60}", key)


def check_id(what: str, id: object) -> None:
    """Check the id of a record or document.

    Raises:
        UsageError: it is not a str, has a NUL character, which ends a str in some stores, or a lone surrogate.
    """
    if not isinstance(id, str):
        raise UsageError(f"{what} {id!r:.60}: expected a str")
    if "\0" in id:
        raise UsageError(f"{what} {id!r:.60} has a NUL character: remove it")
    check_unicode(f"{what} {id!r:.60}", id)


def check_scalar(key: str, value: object) -> None:
    """Check a metadata value.

    Raises:
        UsageError: it is not a str, a number, a bool or None; a number that is not finite or needs more than 64 bits;
            or a str with a lone surrogate.
    """
    if not (value is None or isinstance(value, str | int | float)):
        raise UsageError(
            f"metadata {key!r} is a {type(value).__name__}: expected str, int, float, bool or None; store one value "
            "for each key"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"metadata {key!r} is {value}: expected a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UsageError(
            f"metadata {key!r} is an int of {value.bit_length() + 1} bits: expected an int of at most 64 bits"
        )
    if isinstance(value, str):
        check_unicode(f"metadata {key!r}", value)


def check_unicode(what: str, text: str) -> None:
    """Check that a text can be written as UTF-8.

    Raises:
        UsageError: it contains a lone surrogate.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{what} has a lone surrogate at character {error.start}, which is not valid text; decode the file "
                "again with errors='replace'"
            ) from None
