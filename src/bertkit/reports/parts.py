"""Parts of a report that can be written both as HTML and as Markdown: sentences and tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bertkit.pages import Markup, data, details, format_number, paragraph
from bertkit.pages import table as html_table

_MOST_ON_PAGE, _MOST_IN_CARD = 40, 20  # rows of a table with weights
_DIGITS = {"page": 3, "card": 4}
_METRICS = {"matthews": "Matthews", "pearson": "Pearson", "spearman": "Spearman", "f1": "F1", "macro_f1": "macro F1",
            "micro_f1": "micro F1"}  # fmt: skip


class Interval(NamedTuple):
    """The bounds of a confidence interval, in one table cell."""

    low: float
    high: float


class Label(str):
    """A label name in a table cell."""


class Metric(str):
    """A metric name in a table cell: in words on a page, as printed by the commands in a card."""


@dataclass(frozen=True)
class Table:
    """A table whose cells are numbers, texts, intervals, labels or None.

    Attributes:
        weights: weights of the rows; if there are many, a page collapses them, and a card has those with the largest
            weights.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str | None = None
    weights: Sequence[float] | None = None


@dataclass(frozen=True)
class Only:
    """A part for only one kind of report."""

    kind: str  # "page" or "card"
    part: Any  # on a page also Markup


def html_of(part: Any) -> Markup | None:
    """A part of a page; None if it is not for pages."""
    if isinstance(part, Only):
        return html_of(part.part) if part.kind == "page" else None
    if isinstance(part, Markup):
        return part
    if isinstance(part, str):
        return paragraph(data(part))
    rows = [[_html_cell(cell) for cell in row] for row in part.rows]
    made = html_table(part.columns, rows, caption=part.caption)
    is_long = part.weights is not None and len(part.rows) > _MOST_ON_PAGE
    return details(f"All {len(part.rows):,} rows", made) if is_long else made


def markdown_of(part: Any) -> str:
    """A part of a model card; "" if it is not for cards or is empty."""
    if isinstance(part, Only):
        return markdown_of(part.part) if part.kind == "card" else ""
    if isinstance(part, Markup):
        return ""
    if isinstance(part, str):
        return f"{part}\n"
    rows, more = list(part.rows), ""
    if part.weights is not None and len(rows) > _MOST_IN_CARD:
        heaviest = sorted(range(len(rows)), key=lambda number: -part.weights[number])[:_MOST_IN_CARD]
        more = f"\nThese are the most frequent; there are {len(rows) - _MOST_IN_CARD} more.\n"
        rows = [rows[number] for number in sorted(heaviest)]
    made = markdown_table(part.columns, rows, _DIGITS["card"])
    return made + more if made else ""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], digits: int = 6) -> str:
    """A table without rows whose only content is the first cell; "" if no row is left.

    Args:
        digits: significant digits of real numbers.
    """
    kept = [row for row in rows if not all(map(_is_empty, row[1:]))]
    if not kept:
        return ""
    lines = [list(columns), ["---"] * len(columns), *([_markdown_cell(cell, digits) for cell in row] for row in kept)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def number(value: float | None) -> str:
    """A number in a sentence or in a cell of a page."""
    return "" if value is None else format_number(value, _DIGITS["page"])


def readable(metric: str) -> str:
    """The name of a metric in words."""
    return _METRICS.get(metric, metric.replace("_", " "))


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str | tuple) and not cell)


def _html_cell(cell: Any) -> Any:
    if isinstance(cell, Interval):
        return f"{number(cell.low)} to {number(cell.high)}"
    return readable(cell) if isinstance(cell, Metric) else cell


def _markdown_cell(value: Any, digits: int) -> str:
    if value is None:
        return ""
    if isinstance(value, Interval):
        return f"{value.low:.4g} to {value.high:.4g}"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, Mapping):
        value = [f"{name}={_markdown_cell(one, digits)}" for name, one in value.items()]
    if isinstance(value, list | tuple):
        return ", ".join(_markdown_cell(one, digits) for one in value)
    content = " ".join(str(value).replace("|", "\\|").split())
    return f"`{content}`" if isinstance(value, Label) else content
