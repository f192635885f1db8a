"""Tables of a model card, as Markdown of the hub has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], digits: int = 6) -> str:
    """A table without the rows of which only the first cell says anything; nothing where no row is left.

    Args:
        digits: significant ones of real numbers.
    """
    kept = [row for row in rows if any(cell not in (None, "", ()) for cell in row[1:])]
    if not kept:
        return ""
    lines = [list(head), ["---"] * len(head), *([_cell(cell, digits) for cell in row] for row in kept)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _cell(value: Any, digits: int) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, Mapping):
        value = [f"{name}={_cell(one, digits)}" for name, one in value.items()]
    if isinstance(value, list | tuple):
        return ", ".join(_cell(one, digits) for one in value)
    return " ".join(str(value).replace("|", "\\|").split())


def interval(low: float, high: float) -> str:
    """From where to where, in a cell."""
    return f"{low:.4g} to {high:.4g}"
