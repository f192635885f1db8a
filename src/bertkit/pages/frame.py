"""The frame of a chart: axes, grid and tick labels, at positions in percent of the size of the chart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.pages.markup import Markup, element
from bertkit.pages.ticks import integer_ticks, linear_ticks, log_labels, log_ticks, tick_labels, time_labels, time_ticks

LARGEST = 1e100  # larger numbers are not drawn
_MOST_TICKS = 8  # maximum number of ticks of an x axis
LETTER, NARROW_LETTER = 1.2, 3.3  # percent of a chart's width that a digit takes: on a wide and on a narrow screen
_LINE_HEIGHT = 16  # pixels
_MOST_LETTERS = 29  # maximum length of a name inside a chart, for narrow screens


@dataclass(frozen=True)
class Scale:
    """Maps numbers to percent along one axis."""

    low: float  # the number at ``start``
    high: float
    start: float = 0.0  # percent
    end: float = 100.0
    kind: str = "linear"  # or "log"; "integer": linear, without fractions; "time": linear, in seconds

    def __call__(self, values) -> np.ndarray:
        """Percent of each number, float64."""
        values, low, high = np.asarray(values, np.float64), self.low, self.high
        if self.kind == "log":
            values, low, high = np.log(values), np.log(low), np.log(high)
        return self.start + (values - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int) -> tuple[list[float], list[str]]:
        """Round numbers and their labels."""
        choose, write = _TICKS[self.kind]
        ticks = choose(self.low, self.high, max(2, most))
        return ticks, write(ticks)


_TICKS: dict[str, tuple[Callable, Callable]] = {
    "linear": (linear_ticks, tick_labels),
    "integer": (integer_ticks, tick_labels),
    "log": (log_ticks, log_labels),
    "time": (time_ticks, time_labels),
}


def drawable(values: np.ndarray, kind: str) -> np.ndarray:
    """True for numbers that an axis of this kind can show."""
    with np.errstate(invalid="ignore"):
        is_small = np.abs(values) <= LARGEST
        return is_small & (values > 1 / LARGEST) if kind == "log" else is_small


def span(arrays: Sequence[np.ndarray], kind: str, margin: float = 0.0) -> tuple[float, float]:
    """Range of all drawable numbers, wider by the share ``margin`` at both ends, and never empty."""
    values = np.concatenate([np.empty(0), *(array[drawable(array, kind)] for array in arrays)])
    if len(values) == 0:
        return (0.1, 10.0) if kind == "log" else (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    if kind == "log":
        low, high = np.log(low), np.log(high)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        widening = abs(low) / 2 if kind != "log" and low else 0.5
        low, high = low - widening, high + widening
    extra = margin * (high - low)
    low, high = low - extra, high + extra
    return (float(np.exp(low)), float(np.exp(high))) if kind == "log" else (low, high)


def chart(rows: Sequence[tuple[object, object]], class_: str = "chart") -> Markup:
    """A grid of two columns: labels and names on the left, as wide as the widest; drawings on the right."""
    return element("div", rows, class_=class_)


def canvas(height: float, *content: object, name: str | None = None, class_: str = "strip") -> Markup:
    """An SVG as wide as its column; with a ``name`` screen readers announce it as one picture."""
    hidden = "true" if name is None else None
    role = None if name is None else "img"
    return element("svg", *content, width="100%", height=height, role=role, aria_label=name, aria_hidden=hidden,
                   class_=class_)  # fmt: skip


def percent(value: float) -> str:
    return f"{value:.2f}%"


def rule(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line between two points in percent."""
    return element("line", x1=percent(x1), y1=percent(y1), x2=percent(x2), y2=percent(y2), class_=class_)


def dot(x: float, y: float, radius: float, color: int) -> Markup:
    return element("circle", cx=percent(x), cy=percent(y), r=radius, class_=f"dot color-{color}")


def name_at(name: str, x: float, y: str, class_: str = "name") -> Markup:
    """A name inside a drawing, aligned to stay within it; ``y`` is its baseline."""
    cut = name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…"
    return element("text", cut, x=percent(x), y=y, text_anchor=_anchor(x, 25), class_=class_)


def y_axis(scale: Scale, height: float) -> tuple[Markup, list[Markup]]:
    """The labels for the left column of `chart`, and the grid lines for the drawing."""
    ticks, labels = scale.ticks(round(height / 36))
    levels = scale(ticks).tolist()
    texts = [element("text", label, x="100%", y=percent(y), dy="0.35em", text_anchor="end")
             for label, y in zip(labels, levels, strict=True)]  # fmt: skip
    widest = element("span", max(labels, key=len, default=""))  # invisible: sets the width of the column
    return element("div", widest, canvas(height, texts), class_="y-axis", aria_hidden="true"), [
        rule(0, y, 100, y, "grid") for y in levels
    ]


def x_axis(
    name: str,
    scale: Scale,
    position: Callable[[list[float]], np.ndarray] | None = None,
    letters: tuple[float, float] = (LETTER, NARROW_LETTER),
) -> tuple[Markup, Markup]:
    """A row of `chart`: the name of the axis, and ticks with labels, as many as fit.

    Args:
        position: position of the ticks in percent; None: the scale's own.
        letters: width of a digit in percent, on a wide and on a narrow screen.
    """
    wide: list[tuple[float, str, str]] = []
    for most in range(_MOST_TICKS, 2, -1):
        ticks, labels = scale.ticks(most)
        placed = sorted(zip((position or scale)(ticks).tolist(), labels, strict=True))
        anchored = [(x, _anchor(x, letters[1] * len(label) / 2), label) for x, label in placed]
        wide = _with_room(anchored, letters[0])
        if len(wide) == len(anchored):
            break
    some = (wide[::stride] for stride in range(1, len(wide) + 1))
    narrow = next((ticks for ticks in some if len(_with_room(ticks, letters[1])) == len(ticks)), [])
    marks = [
        [element("line", x1=percent(x), y1="0", x2=percent(x), y2="4", class_="tick"),
         element("text", label, x=percent(x), y="15", text_anchor=anchor,
                 class_=None if (x, anchor, label) in narrow else "extra")]
        for x, anchor, label in wide
    ]  # fmt: skip
    return element("span", name, class_="name"), canvas(20, rule(0, 0, 100, 0, "axis"), marks)


def _anchor(x: float, margin: float) -> str:
    """The alignment of a text that keeps it within the drawing."""
    return "start" if x < margin else "end" if x > 100 - margin else "middle"


def _with_room(ticks: list[tuple[float, str, str]], letter: float) -> list[tuple[float, str, str]]:
    """Ticks whose labels do not overlap, from left to right."""
    kept, free = [], -np.inf
    for x, anchor, label in ticks:
        width = letter * len(label)
        left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * width
        if left >= free:
            kept.append((x, anchor, label))
            free = left + width + 1.5 * letter
    return kept


def levels(named: Sequence[tuple[str, float]], height: float, curves: Sequence[np.ndarray]) -> list[Markup]:
    """Lines across the chart at percents, each with its name at one end, above or below, where it overlaps least with
    curves.

    Args:
        curves: (100,) percents from the top at equal distances along the chart, NaN where there is no curve.
    """
    line, taken, parts = 100 * _LINE_HEIGHT / height, [], []
    for name, y in named:
        columns = min(95, round(2 * LETTER * min(len(name), _MOST_LETTERS)))
        best = (np.inf, 0.0, 0.0)
        for x, top in ((100.0, y - line), (100.0, y), (0.0, y - line), (0.0, y)):
            part = slice(100 - columns, 100) if x else slice(0, columns)
            covered = sum(int(np.sum((curve[part] > top) & (curve[part] < top + line))) for curve in curves)
            covered += 1_000 * sum(abs(top - other) < line for other in taken) + 1_000 * (top + line > 100)
            best = min(best, (covered, x, top), key=lambda candidate: candidate[0])
        taken.append(best[2])
        label = name_at(name, best[1], percent(best[2] + 0.75 * line), "name halo")
        parts.append([rule(0, y, 100, y, "reference"), label])
    return parts
