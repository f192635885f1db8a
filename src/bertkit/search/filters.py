"""Filters on metadata and documents: small trees that a store translates to SQL."""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from bertkit.documents.metadata import Scalar, check_id, check_key, check_unicode, plain, stored_scalar
from bertkit.errors import UsageError, check_collection

MOST_LEVELS = 20
"""Maximum number of And, Or and Not in each other."""


@dataclass(frozen=True)
class Equal:
    """Match records with this metadata value. True and 1 differ; 1 and 1.0 are equal. No list is equal to a value."""

    key: str
    value: Any  # a scalar, also of numpy, or a date

    def __post_init__(self) -> None:
        check_key(self.key)
        object.__setattr__(self, "value", stored_scalar(self.key, self.value))


@dataclass(frozen=True)
class Contains(Equal):
    """Match records whose metadata value is a list with this item."""


@dataclass(frozen=True)
class OneOf:
    """Match records with one of these metadata values."""

    key: str
    values: tuple[Any, ...]  # as of `Equal`

    def __post_init__(self) -> None:
        check_key(self.key)
        if isinstance(self.values, str):
            raise UsageError(f"OneOf({self.key!r}, {self.values!r:.60}): expected several values; use Equal for one")
        object.__setattr__(self, "values", tuple(stored_scalar(self.key, value) for value in self.values))


@dataclass(frozen=True)
class Between:
    """Match records with a metadata number in a range, both ends included; None: no limit. Between two texts or dates,
    match text, by the code points of its characters: a day is before the times on it.

    An end that is an int of more than 64 bits is stored as the nearest float inside the range: no metadata number lies
    between the two.
    """

    key: str
    low: float | str | date | None = None
    high: float | str | date | None = None

    def __post_init__(self) -> None:
        check_key(self.key)
        ends = {name: plain(end) for name, end in (("low", self.low), ("high", self.high)) if end is not None}
        for name, end in ends.items():
            if isinstance(end, bool) or not isinstance(end, int | float | str) or end != end:  # NaN
                raise UsageError(f"filter on {self.key!r}: Between got {end!r}, expected a number, str, date or None")
            if isinstance(end, str):
                check_unicode(f"filter on {self.key!r}: {end!r:.60}", end)
            elif not -(2**63) <= end < 2**63:
                end = _nearest_float(end, math.inf if name == "low" else -math.inf)
            object.__setattr__(self, name, end)
        if len({isinstance(end, str) for end in ends.values()}) > 1:
            raise UsageError(f"filter on {self.key!r}: Between got {self.low!r} and {self.high!r}, expected one type")


@dataclass(frozen=True)
class InDocument:
    """Match records of one of these documents."""

    document_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "document_ids", tuple(checked_ids("document_ids", self.document_ids)))


@dataclass(frozen=True)
class _Joined:
    """A filter of several. The parts of one of the same type among the parts are parts of this one."""

    parts: tuple["Filter", ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _checked_parts(self.parts, type(self)))


@dataclass(frozen=True)
class And(_Joined):
    """Match records that match every part; all records if there are no parts.

    The parts of an And among the parts are parts of this one.
    """


@dataclass(frozen=True)
class Or(_Joined):
    """Match records that match at least one part; no record if there are no parts.

    The parts of an Or among the parts are parts of this one.
    """

    def joined(self) -> list["Filter"]:
        """Fewer parts that match the same: a OneOf for all values of a key, and an InDocument for all documents.

        >>> Or((Equal("a", 1), Not(Equal("a", 1)), OneOf("a", (2, 3)))).joined()
        [OneOf(key='a', values=(1, 2, 3)), Not(part=Equal(key='a', value=1))]
        """
        values: dict[str, list[Scalar]] = {}
        documents: list[str] = []
        others: list[Filter] = []
        for part in self.parts:
            if type(part) is Equal:
                values.setdefault(part.key, []).append(part.value)
            elif isinstance(part, OneOf):
                values.setdefault(part.key, []).extend(part.values)
            elif isinstance(part, InDocument):
                documents += part.document_ids
            else:
                others.append(part)
        joined: list[Filter] = [OneOf(key, tuple(some)) for key, some in values.items()]
        return [*joined, *([InDocument(tuple(documents))] if documents else []), *others]


@dataclass(frozen=True)
class Not:
    """Match records that do not match the part, including those without its key."""

    part: "Filter"

    def __post_init__(self) -> None:
        _checked_parts([self.part])


class InRecords:
    """Match records by number: a filter that a search in an `VectorStore` makes for itself.

    Args:
        numbers: (n,) int64, ascending.
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers

    def __repr__(self) -> str:
        return f"InRecords({hashlib.blake2b(self.numbers.tobytes()).hexdigest()})"


Filter = Equal | OneOf | Between | InDocument | And | Or | Not | InRecords


def keys_of(where: Filter | None) -> set[str]:
    """The metadata keys in a filter."""
    if isinstance(where, And | Or):
        return set().union(*map(keys_of, where.parts))
    if isinstance(where, Not):
        return keys_of(where.part)
    return {where.key} if isinstance(where, Equal | OneOf | Between) else set()


def note_of_keys(missing: Iterable[str], known: Iterable[str]) -> str:
    """A sentence on metadata keys of a filter that no passage has; "" if there is none.

    Args:
        known: the keys that passages have.
    """
    names = ", ".join(sorted(missing))
    return names and f"no passage has the metadata {names}; the keys are {', '.join(known) or 'none'}"


def _checked_parts(parts: Iterable[Filter], joined: type[_Joined] | None = None) -> tuple[Filter, ...]:
    """The parts of a filter, with those of parts of the type ``joined`` instead of these."""
    if not isinstance(parts, Iterable) or isinstance(parts, str):
        raise UsageError(f"parts={parts!r:.60}: expected several filters; pass [{parts!r:.60}] for one")
    parts = tuple(parts)
    for part in parts:
        if not isinstance(part, Filter):
            raise not_a_filter(part)
    if joined is not None and any(isinstance(part, joined) for part in parts):
        parts = tuple(one for part in parts for one in (part.parts if isinstance(part, joined) else (part,)))
    num_levels = 1 + max(map(_num_levels, parts), default=0)
    if num_levels > MOST_LEVELS:
        raise UsageError(
            f"the filter is nested {num_levels} levels deep: expected at most {MOST_LEVELS} And, Or and Not in each "
            "other; write it with fewer, as in Not(Or(parts)) for an And of Nots"
        )
    return parts


def _num_levels(part: Filter) -> int:
    inner = part.parts if isinstance(part, And | Or) else (part.part,) if isinstance(part, Not) else None
    return 0 if inner is None else 1 + max(map(_num_levels, inner), default=0)


def _nearest_float(number: float, inside: float) -> float:
    """The float that is nearest to a number in the direction ``inside``; the number itself if it is a float."""
    try:
        nearest = float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    is_outside = nearest < number if inside > 0 else nearest > number
    return math.nextafter(nearest, inside) if is_outside else nearest


def checked_ids(name: str, ids: Iterable[str]) -> list[str]:
    """Ids of records or documents as a list.

    Args:
        name: name of the argument.

    Raises:
        UsageError: a str in place of several, or an id that fails `check_id`.
    """
    if isinstance(ids, str):
        raise UsageError(f"{name}={ids!r:.60}: expected several ids; pass [{ids!r:.60}] for one")
    check_collection(name, ids, in_order=False)
    ids = list(ids)
    for id in ids:
        check_id("id", id)
    return ids


def not_a_filter(where: object) -> UsageError:
    """Error for a value that is not a filter."""
    return UsageError(
        f"where={where!r:.60}: expected a filter: Equal, OneOf, Between, Contains, InDocument, And, Or or Not of "
        "bertkit.search"
    )
