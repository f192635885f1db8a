"""Charts of scores with confidence intervals, one below the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.pages.frame import Scale, canvas, dot, drawable, name_at, rule, span, x_axis
from bertkit.pages.lines import Reference
from bertkit.pages.markup import Markup, element
from bertkit.pages.page import figure
from bertkit.pages.ticks import format_number

_ROW = 24  # pixels
_LETTERS = (2.6, 4.2)  # width of a digit in percent of the drawing


@dataclass(frozen=True)
class Score:
    """A score with its interval, if known."""

    name: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    color: int = 1


def interval_chart(
    title: str, scores: Sequence[Score], *, x_name: str, references: Sequence[Reference] = (), note: object = None
) -> Markup:
    """A figure of dots with intervals, for scores of which only differences matter. It is a table that includes the
    numbers."""
    edges = np.array([(score.value, score.low, score.high) for score in scores], np.float64).ravel()
    references = [reference for reference in references if drawable(np.array([reference.y]), "linear")[0]]
    levels = np.array([reference.y for reference in references], np.float64)
    x = Scale(*span([edges, levels], "linear", 0.06))
    at = [(reference.name, float(x(reference.y))) for reference in references]
    level_rules = [rule(level, 0, level, 100, "reference") for _, level in at]
    names = canvas(18, [name_at(name, level, "13") for name, level in at]) if at else None
    rows = [_row(score, x, level_rules) for score in scores]
    axis_name, axis = x_axis(x_name, x, letters=_LETTERS)
    table = element(
        "table",
        element("thead", element("tr", element("td"), element("td", names), element("td"))),
        element("tbody", rows),
        element("tfoot", element("tr", element("th", axis_name), element("td", axis), element("td"))),
        class_="intervals",
    )  # fmt: skip
    return figure(title, table, note=note)


def _row(score: Score, x: Scale, level_rules: Sequence[Markup]) -> Markup:
    has_value, has_low, has_high = drawable(np.array([score.value, score.low, score.high]), "linear").tolist()
    marks: list[object] = [level_rules, rule(0, 50, 100, 50, "grid")]
    if has_low and has_high:
        marks.append(rule(float(x(score.low)), 50, float(x(score.high)), 50, f"interval color-{score.color}"))
    if has_value:
        marks.append(dot(float(x(score.value)), 50, 4, score.color))
    interval = f"{format_number(score.low, 3)} to {format_number(score.high, 3)}" if score.low == score.low else ""
    return element("tr", element("th", score.name, scope="row", title=score.name), element("td", canvas(_ROW, marks)),
                   element("td", format_number(score.value, 3), " ", element("span", interval, class_="interval-text")),
                   )  # fmt: skip
