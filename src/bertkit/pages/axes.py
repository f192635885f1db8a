"""The frame a chart is drawn in: from numbers to places on the drawing, axes, marks and their labels.

Every chart is drawn twice, wide and narrow, each for its own number of pixels, and the page shows the one that fits:
a drawing that is only made smaller cannot be read on a telephone.
"""

import itertools
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.pages.markup import Markup, element
from bertkit.pages.ticks import integer_ticks, linear_ticks, log_labels, log_ticks, tick_labels, time_labels, time_ticks

WIDE, NARROW = 720, 360  # pixels of width
FONT_SIZE = 12  # of all text in charts, in pixels; page.css says the same
LINE_HEIGHT = 16
LARGEST = 1e100  # numbers beyond are not drawn
_GAP = 6  # between an axis and its labels
_TICK = 4  # length of a mark
_NAME_WIDTH = 110  # pixels of an x axis' name, at most
X_AXIS_HEIGHT = _TICK + LINE_HEIGHT

_NARROW_LETTERS, _WIDE_LETTERS = frozenset("ijltfrI.,:;'|!()[]/ "), frozenset("mwMW@%—")


def text_width(label: str, size: float = FONT_SIZE) -> float:
    """Pixels that a text takes at most in the page's fonts; an estimate a little above what they need."""
    return size * sum(map(_letter_width, label))


def _letter_width(letter: str) -> float:
    """In units of the font size, after DejaVu Sans, the widest of the fonts asked for."""
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if letter in _NARROW_LETTERS:
        return 0.42
    if letter in _WIDE_LETTERS:
        return 1.0
    return 0.74 if letter.isupper() else 0.67


def shortened(label: str, width: float, size: float = FONT_SIZE) -> str:
    """The label, cut with an ellipsis where it is wider than ``width`` pixels."""
    kept, total, room = 0, 0.0, width - text_width("…", size)
    for place, letter in enumerate(label):
        total += size * _letter_width(letter)
        if total <= room:
            kept = place + 1
        if total > width:
            return label[:kept] + "…"
    return label


@dataclass(frozen=True)
class Scale:
    """From numbers to pixels along one axis."""

    low: float  # the number at ``start``
    high: float
    start: float  # pixels
    end: float
    kind: str = "linear"  # or "log"; "integer": linear, without fractions; "time": linear, in seconds

    def __call__(self, values) -> np.ndarray:
        """Pixels for numbers, both float64."""
        values, low, high = np.asarray(values, np.float64), self.low, self.high
        if self.kind == "log":
            values, low, high = np.log(values), np.log(low), np.log(high)
        return self.start + (values - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int) -> tuple[list[float], list[str]]:
        """Round numbers and their labels."""
        place, write = _TICKS[self.kind]
        ticks = place(self.low, self.high, max(2, most))
        return ticks, write(ticks)


_TICKS: dict[str, tuple[Callable, Callable]] = {
    "linear": (linear_ticks, tick_labels),
    "integer": (integer_ticks, tick_labels),
    "log": (log_ticks, log_labels),
    "time": (time_ticks, time_labels),
}


@dataclass(frozen=True)
class Box:
    """A piece of a drawing, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        beside = self.left < other.right and other.left < self.right
        return beside and self.top < other.bottom and other.top < self.bottom

    def holds(self, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
        """(n,) bool: which points lie in it."""
        return (xs > self.left) & (xs < self.right) & (ys > self.top) & (ys < self.bottom)


def drawable(values: np.ndarray, kind: str) -> np.ndarray:
    """Which numbers have a place on such an axis."""
    with np.errstate(invalid="ignore"):
        found = np.abs(values) <= LARGEST
        return found & (values > 1 / LARGEST) if kind == "log" else found


def span(arrays: Sequence[np.ndarray], kind: str, margin: float = 0.0) -> tuple[float, float]:
    """From the lowest to the highest of the numbers that can be drawn, a share ``margin`` wider at both ends, and
    never empty."""
    found = [array[drawable(array, kind)] for array in arrays]
    values = np.concatenate([np.empty(0), *found])
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


def drawing(
    width: float, height: float, name: str, *content: object, shown: str | None = None, **attributes: object
) -> Markup:
    """An SVG that screen readers know as one picture with a name.

    Args:
        shown: "wide" or "narrow": on such screens only.
    """
    return element(
        "svg",
        *content,
        viewBox=f"0 0 {width:.1f} {height:.1f}",
        width=float(width),
        height=float(height),
        role="img",
        aria_label=name,
        class_=f"drawing {shown}" if shown else "drawing",
        **attributes,
    )


def shown_at(width: float) -> str:
    """On which screens a drawing of this width is shown."""
    return "wide" if width > NARROW else "narrow"


def label(content: str, x: float, y: float, *, anchor: str = "start", class_: str | None = None) -> Markup:
    """Text at a place; ``y`` is the middle of its line."""
    anchored = None if anchor == "start" else anchor
    return element("text", content, x=float(x), y=float(y) + 0.35 * FONT_SIZE, text_anchor=anchored, class_=class_)


def rule(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def y_axis(scale: Scale, left: float, right: float, name: str) -> Markup:
    """Thin lines across the chart with their labels at the left, and the axis' name above them."""
    ticks, labels = _y_marks(scale)
    return element(
        "g",
        [
            (rule(left, y, right, y, "grid"), label(mark, left - _GAP, y, anchor="end"))
            for mark, y in zip(labels, scale(ticks), strict=True)
        ],
        label(shortened(name, right), 0, LINE_HEIGHT / 2, class_="name"),
    )


def y_axis_width(scale: Scale) -> float:
    """Pixels that the labels of `y_axis` take."""
    return max(map(text_width, _y_marks(scale)[1]), default=0.0) + _GAP


def _y_marks(scale: Scale) -> tuple[list[float], list[str]]:
    return scale.ticks(round(abs(scale.end - scale.start) / 36))


def x_axis(
    scale: Scale,
    y: float,
    name: str,
    *,
    name_at: float | None = None,
    place: Callable[[list[float]], np.ndarray] | None = None,
) -> Markup:
    """Marks from ``y`` down, their labels, and at the right of them the axis' name.

    Args:
        name_at: where the name starts; by default just behind the labels.
        place: pixels of the marks, where they are not the scale's own.
    """
    middle = y + _TICK + LINE_HEIGHT / 2
    return element(
        "g",
        [
            (rule(x, y, x, y + _TICK, "tick"), label(mark, x, middle, anchor="middle"))
            for mark, x in _x_marks(scale, place or scale)
        ],
        label(_x_name(name), scale.end + x_overhang(scale) if name_at is None else name_at, middle, class_="name"),
    )


def x_overhang(scale: Scale) -> float:
    """Pixels that the labels of `x_axis` may take right of the scale's end, and a gap before its name."""
    return max(map(text_width, ["0", *scale.ticks(_most(scale))[1]])) / 2 + _GAP


def x_axis_width(scale: Scale, name: str) -> float:
    """Pixels that `x_axis` takes right of the scale's end."""
    return x_overhang(scale) + x_name_width(name)


def x_name_width(name: str) -> float:
    return text_width(_x_name(name))


def _x_name(name: str) -> str:
    return shortened(name, _NAME_WIDTH)


def _x_marks(scale: Scale, place: Callable[[list[float]], np.ndarray]) -> list[tuple[str, float]]:
    """As many marks as have room for their labels."""
    marks: list[tuple[str, float]] = []
    for most in range(_most(scale), 1, -1):
        ticks, labels = scale.ticks(most)
        marks = sorted(zip(labels, place(ticks).tolist(), strict=True), key=lambda mark: mark[1])
        edges = [(x - text_width(name) / 2, x + text_width(name) / 2) for name, x in marks]
        if all(right + 2 * _GAP <= left for (_, right), (left, _) in itertools.pairwise(edges)):
            return marks
    return marks[:1]


def _most(scale: Scale) -> int:
    return max(2, round(abs(scale.end - scale.start) / 56))


def apart(places: Sequence[float], low: float, high: float, gap: float = LINE_HEIGHT) -> list[float]:
    """The places moved as little as needed to be ``gap`` apart and between ``low`` and ``high``, in the same order from
    low to high; where there is no room for all, they reach beyond ``high``."""
    moved = [0.0] * len(places)
    order = sorted(range(len(places)), key=lambda index: places[index])
    floor = low
    for index in order:
        floor = moved[index] = max(floor, places[index])
        floor += gap
    ceiling = max(high, low + gap * (len(places) - 1))
    for index in reversed(order):
        ceiling = moved[index] = min(ceiling, moved[index])
        ceiling -= gap
    return moved
