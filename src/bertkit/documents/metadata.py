"""Ids and metadata of documents and records, and what they may be."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime

import numpy as np

from bertkit.errors import UsageError

Scalar = str | int | float | bool | None
"""A JSON scalar."""
Value = Scalar | list[Scalar]
"""A metadata value as it is stored."""


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
        UsageError: it is not a str, has a NUL character, which ends a str in functions of SQLite, or a lone surrogate.
    """
    if not isinstance(id, str):
        raise UsageError(f"{what} {id!r:.60}: expected a str")
    if "\0" in id:
        raise UsageError(f"{what} {id!r:.60} has a NUL character: remove it")
    check_unicode(f"{what} {id!r:.60}", id)


def stored_metadata(metadata: Mapping[str, object]) -> dict[str, Value]:
    """Metadata as it is stored: values of numpy as those of Python, and dates as text, see `plain`.

    Raises:
        UsageError: a key or value that cannot be stored, see `check_key` and `stored_scalar`.
    """
    for key in metadata:
        check_key(key)
    return {key: stored_value(key, value) for key, value in metadata.items()}


def stored_value(key: str, value: object) -> Value:
    """A metadata value as it is stored: a scalar, or a list of scalars."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = list(value)
    return (
        [stored_scalar(key, item) for item in value] if isinstance(value, list | tuple) else stored_scalar(key, value)
    )


def stored_scalar(key: str, value: object) -> Scalar:
    """A metadata value, or an item of a list, as it is stored.

    Raises:
        UsageError: it is not a str, a number, a bool, a date or None; a number that is not finite or needs more than 64
            bits; or a str with a lone surrogate.
    """
    value = plain(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"metadata {key!r} is {value}: expected a finite number, or None for no value")
    if not (value is None or isinstance(value, str | int | float)):
        raise UsageError(
            f"metadata {key!r} is a {type(value).__name__}: expected str, int, float, bool, None or a date, or a list "
            "of these in a record"
        )
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UsageError(
            f"metadata {key!r} is an int of {value.bit_length() + 1} bits: expected an int of at most 64 bits"
        )
    if isinstance(value, str):
        check_unicode(f"metadata {key!r}", value)
    return value


def plain(value: object) -> object:
    """A scalar of numpy as that of Python, and a date or time as ISO 8601 text, whose order is that of time; of a time
    zone, as UTC.

    >>> plain(np.int8(3)), plain(date(2026, 1, 31)), plain(datetime(2026, 1, 31, 8, 30))
    (3, '2026-01-31', '2026-01-31T08:30:00')
    """
    if isinstance(value, np.generic):
        value = (value.astype("M8[us]") if value.dtype == "M8[ns]" else value).item()
    if not isinstance(value, date):
        return value
    if value != value:  # NaT of pandas
        return math.nan
    return (value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value).isoformat()


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
