"""Scores side by side, with their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.pages.axes import (
    LINE_HEIGHT,
    NARROW,
    WIDE,
    X_AXIS_HEIGHT,
    Scale,
    drawable,
    drawing,
    label,
    rule,
    shortened,
    shown_at,
    span,
    text_width,
    x_axis,
    x_axis_width,
)
from bertkit.pages.lines import Reference
from bertkit.pages.markup import Markup, element
from bertkit.pages.page import details, figure, table
from bertkit.pages.ticks import format_number

_ROW = 24
_WIDE_NAME, _NARROW_NAME = 240, 110  # pixels
_TOP = LINE_HEIGHT + 10


@dataclass(frozen=True)
class Score:
    """One row: a number and, where it is known, the interval it lies in."""

    name: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    color: int = 1


def bar_chart(
    title: str, scores: Sequence[Score], *, x_name: str, references: Sequence[Reference] = (), note: object = None
) -> Markup:
    """A figure of bars from 0, each with its interval as a thin line: for counts and shares, whose length means
    something."""
    return _figure(title, scores, x_name, references, note, bars=True)


def interval_chart(
    title: str, scores: Sequence[Score], *, x_name: str, references: Sequence[Reference] = (), note: object = None
) -> Markup:
    """A figure of dots on their intervals (Cleveland 1984): for scores that differ little, whose axis need not start
    at 0."""
    return _figure(title, scores, x_name, references, note, bars=False)


def _figure(
    title: str, scores: Sequence[Score], x_name: str, references: Sequence[Reference], note: object, *, bars: bool
) -> Markup:
    drawings = [_draw(title, scores, x_name, references, width, bars) for width in (WIDE, NARROW)]
    rows = [(score.name, score.value, *(_known(edge) for edge in (score.low, score.high))) for score in scores]
    numbers = details("The numbers", table(["", x_name, "from", "to"], rows))
    return figure(title, drawings, note=note, numbers=numbers)


def _draw(
    title: str, scores: Sequence[Score], x_name: str, references: Sequence[Reference], width: float, bars: bool
) -> Markup:
    names = [shortened(score.name, _WIDE_NAME if width > NARROW else _NARROW_NAME) for score in scores]
    values = [_short(score.value) for score in scores]
    left = max(map(text_width, names), default=0.0) + 10
    edges = np.array([(score.value, score.low, score.high) for score in scores], np.float64).ravel()
    levels = np.array([reference.y for reference in references] + [0.0] * bars, np.float64)
    low, high = span([edges, levels], "linear", 0.0 if bars else 0.06)
    axis_width = x_axis_width(Scale(low, high, left, width), x_name)
    x = Scale(low, high, left, width - max(axis_width, max(map(text_width, values), default=0.0) + 16))
    top = _TOP + LINE_HEIGHT * bool(references)
    bottom = top + _ROW * len(scores) + 4
    return drawing(
        width,
        bottom + X_AXIS_HEIGHT + 2,
        f"{title}: " + "; ".join(f"{score.name} {_short(score.value)}" for score in scores),
        [_level(reference, x, top, bottom) for reference in references],
        rule(x.start, bottom, x.end, bottom, "axis"),
        x_axis(x, bottom, x_name),
        [
            _row(score, name, value, x, top + _ROW * (place + 0.5), width, bars)
            for place, (score, name, value) in enumerate(zip(scores, names, values, strict=True))
        ],
        shown=shown_at(width),
    )


def _level(reference: Reference, x: Scale, top: float, bottom: float) -> Markup:
    place = float(x(reference.y))
    width = text_width(reference.name)
    anchor = "middle" if place - width / 2 > 0 and place + width / 2 < x.end else "end" if place > width else "start"
    return element(
        "g",
        rule(place, top - 4, place, bottom, "reference"),
        label(reference.name, place, top - 4 - LINE_HEIGHT / 2, anchor=anchor, class_="name"),
    )


def _row(score: Score, name: str, value: str, x: Scale, middle: float, width: float, bars: bool) -> Markup:
    parts: list[Markup] = [label(name, x.start - 10, middle, anchor="end")]
    known = drawable(np.array([score.value, score.low, score.high]), "linear")
    if known[0]:
        start, end = sorted((float(x(0.0)) if bars else x.start, float(x(score.value))))
        if bars:
            parts.append(
                element("rect", x=start, y=middle - 7, width=end - start, height=14, class_=f"fill-{score.color} bar")
            )
        else:
            parts.append(rule(x.start, middle, x.end, middle, "grid"))
    if known[1] and known[2]:
        low, high = float(x(score.low)), float(x(score.high))
        parts.append(rule(low, middle, high, middle, f"interval {'on-bar' if bars else f'color-{score.color}'}"))
    if known[0] and not bars:
        parts.append(element("circle", cx=float(x(score.value)), cy=middle, r=4, class_=f"dot color-{score.color}"))
    ends = [
        float(x(edge)) for edge, is_known in zip((score.value, score.low, score.high), known, strict=True) if is_known
    ]
    end = max([float(x(0.0)), *ends]) if bars else x.end
    parts.append(label(value, end + 8, middle, class_="figures"))
    return element("g", parts)


def _short(value: float) -> str:
    return format_number(value, 3)


def _known(edge: float) -> float | None:
    return None if edge != edge else edge
