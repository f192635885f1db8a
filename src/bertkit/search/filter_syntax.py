"""Filters as JSON, and as conditions on the command line."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from bertkit.documents.metadata import Scalar
from bertkit.errors import UsageError
from bertkit.search.filters import MOST_LEVELS, And, Between, Contains, Equal, Filter, Not, OneOf, Or

_OPERATORS: dict[str, Callable[[str, Any], Filter]] = {
    "=": Equal,
    "!=": lambda key, value: Not(Equal(key, value)),
    "<": lambda key, value: And((Between(key, None, value), Not(Equal(key, value)))),
    "<=": lambda key, value: Between(key, None, value),
    ">": lambda key, value: And((Between(key, value), Not(Equal(key, value)))),
    ">=": Between,
    "in": OneOf,
    "not in": lambda key, values: Not(OneOf(key, values)),
    "contains": Contains,
}
_OF_JSON = dict(zip(("$eq", "$ne", "$lt", "$lte", "$gt", "$gte", "$in", "$nin", "$contains"), _OPERATORS, strict=True))
_CONDITION = re.compile(
    r"\s*(?P<key>.+?)\s*(?:(?P<sign>[<>=!~]+)|(?<=\s)(?P<word>not in|in|contains)(?=\s))\s*(?P<value>.*?)\s*", re.DOTALL
)


def comparison(key: str, operator: str, value: object) -> Filter:
    """The filter of a key, an operator and a value, such as ``comparison("year", ">=", 2021)``.

    Raises:
        UsageError: an unknown operator, or a value of a type that it does not accept.
    """
    if operator not in _OPERATORS:
        raise UsageError(f"filter on {key!r}: unknown operator {operator!r}, expected one of {', '.join(_OPERATORS)}")
    if operator in ("in", "not in") and not isinstance(value, list | tuple):
        raise UsageError(f"filter on {key!r}: {value!r:.40} after {operator!r}, expected a list of values")
    if operator[0] in "<>" and value is None:
        raise UsageError(f"filter on {key!r}: None after {operator!r}, expected a number, text or date")
    return _OPERATORS[operator](key, value)


def filter_of(where: object, num_levels: int = 0) -> Filter:
    """A filter of JSON: all conditions of an object hold.

    >>> filter_of({"year": {"$gte": 2021}, "$not": {"kind": "draft"}})
    And(parts=(Between(key='year', low=2021, high=None), Not(part=Equal(key='kind', value='draft'))))

    Raises:
        UsageError: another type, an unknown operator, or more than `MOST_LEVELS` levels.
    """
    if not isinstance(where, Mapping):
        raise UsageError(
            f"the filter {where!r:.60} is {type(where).__name__}: expected an object, as {{'year': {{'$gte': 2021}}}}"
        )
    if num_levels > MOST_LEVELS:
        raise UsageError(f"the filter is nested more than {MOST_LEVELS} levels deep: write it with fewer")
    parts: list[Filter] = []
    for key, value in where.items():
        if key in ("$and", "$or"):
            if not isinstance(value, list | tuple):
                raise UsageError(f"{key} in a filter is {type(value).__name__}: expected a list of filters")
            parts.append((And if key == "$and" else Or)(tuple(filter_of(part, num_levels + 1) for part in value)))
        elif key == "$not":
            parts.append(Not(filter_of(value, num_levels + 1)))
        elif isinstance(value, list | tuple) and str(key)[:1] != "$":
            raise UsageError(f"where.{key} is a list: expected a value, or operators such as $in and $contains")
        else:
            operators = value if isinstance(value, Mapping) else {"$eq": value}
            if wrong := [key] if str(key)[:1] == "$" else [name for name in operators or [""] if name not in _OF_JSON]:
                known = ", ".join((*_OF_JSON, "$and", "$or", "$not"))
                raise UsageError(f"where.{key}: unknown operator {wrong[0]!r}, expected one of {known}")
            parts += (comparison(key, _OF_JSON[name], operand) for name, operand in operators.items())
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def filter_of_condition(written: str) -> Filter:
    """The filter of ``KEY OPERATOR VALUE``, or of JSON as in `filter_of`.

    A value in quotation marks is text. Any other is also the number, true, false or null that it reads as.

    >>> filter_of_condition("year >= 2021")
    Or(parts=(Between(key='year', low='2021', high=None), Between(key='year', low=2021, high=None)))
    >>> filter_of_condition('kind in cats, "2"')
    OneOf(key='kind', values=('cats', '2'))

    Raises:
        UsageError: neither of both, or an unknown operator.
    """
    if written.lstrip().startswith("{"):
        try:
            return filter_of(json.loads(written))
        except (json.JSONDecodeError, RecursionError) as error:
            raise UsageError(f"the filter {written!r:.60} is not JSON: {error}") from None
    match = _CONDITION.fullmatch(written)
    operator = "" if match is None else match["word"] or match["sign"].replace("==", "=")
    if match is None or operator not in _OPERATORS:
        raise UsageError(
            f"the condition {written!r:.60} has no known operator: expected KEY OPERATOR VALUE with one of "
            f"{', '.join(_OPERATORS)}, such as 'year >= 2021'"
        )
    key, value = match["key"], match["value"]
    if operator in ("in", "not in"):
        return comparison(key, operator, [meaning for one in value.split(",") for meaning in _meanings(one.strip())])
    if operator == "!=":
        return comparison(key, "not in", _meanings(value))
    ordered = [one for one in _meanings(value) if operator[0] not in "<>" or type(one) in (str, int, float)]
    return Or(tuple(comparison(key, operator, one) for one in ordered))


def _meanings(written: str) -> list[Scalar]:
    """What a value on the command line can be."""
    try:  # of more digits, an int has more than 64 bits
        value = json.loads(written, parse_constant=str, parse_int=lambda one: int(one) if len(one) < 19 else one)
    except (ValueError, RecursionError):
        return [written]
    return [value] if isinstance(value, str) else [written] if isinstance(value, list | dict) else [written, value]
