"""Reliability diagrams: how often what was said with some confidence was right (DeGroot & Fienberg 1983)."""

import numpy as np

from bertkit.pages.axes import (
    LINE_HEIGHT,
    X_AXIS_HEIGHT,
    Scale,
    drawable,
    drawing,
    label,
    rule,
    x_axis,
    x_axis_width,
    y_axis,
    y_axis_width,
)
from bertkit.pages.markup import Markup, element
from bertkit.pages.page import details, figure, table

_WIDTH = 360  # of the whole drawing, for every screen
_TOP = LINE_HEIGHT + 10
_COUNTS_HEIGHT = 44


def reliability_diagram(
    title: str,
    confidence: np.ndarray,
    accuracy: np.ndarray,
    counts: np.ndarray,
    *,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
    note: object = None,
) -> Markup:
    """A figure of accuracy over confidence, bin by bin, beside the diagonal of a calibrated model, above how many
    predictions each bin holds.

    Args:
        confidence: (bins,) mean confidence of a bin's predictions, 0 to 1; NaN in an empty bin.
        accuracy: (bins,) the share that was right, 0 to 1; NaN in an empty bin.
        counts: (bins,) predictions.
        low, high: (bins,) interval of the accuracy.
    """
    confidence, accuracy, counts = (np.asarray(part, np.float64) for part in (confidence, accuracy, counts))
    unknown = np.full(len(counts), np.nan)
    low = unknown if low is None else np.asarray(low, np.float64)
    high = unknown if high is None else np.asarray(high, np.float64)
    picture = _draw(title, confidence, accuracy, counts, low, high)
    rows = [
        [None if cell != cell else cell for cell in row]
        for row in zip(*(part.tolist() for part in (confidence, accuracy, low, high, counts)), strict=True)
    ]
    numbers = details("The numbers", table(["confidence", "accuracy", "from", "to", "predictions"], rows))
    return figure(title, picture, note=note, numbers=numbers)


def _draw(
    title: str, confidence: np.ndarray, accuracy: np.ndarray, counts: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Markup:
    name = "confidence"
    left = y_axis_width(Scale(0.0, 1.0, 240, 0))
    right = _WIDTH - x_axis_width(Scale(0.0, 1.0, left, _WIDTH), name)
    bottom = _TOP + right - left  # a square
    x, y = Scale(0.0, 1.0, left, right), Scale(0.0, 1.0, bottom, _TOP)
    floor = bottom + _COUNTS_HEIGHT
    tallest = max(float(counts.max(initial=0.0)), 1.0)
    parts: list[Markup] = [rule(left, bottom, right, _TOP, "reference")]
    dots = []
    for place in np.flatnonzero(drawable(confidence, "linear") & drawable(accuracy, "linear")).tolist():
        across, up = float(x(confidence[place])), float(y(accuracy[place]))
        size = (_COUNTS_HEIGHT - 8) * counts[place] / tallest
        dots.append((across, up))
        parts.append(element("rect", x=across - 4, y=floor - size, width=8, height=float(size), class_="fill-1 bar"))
        if np.isfinite(low[place]) and np.isfinite(high[place]):
            parts.append(rule(across, float(y(low[place])), across, float(y(high[place])), "interval color-1"))
    path = "".join(f"{'L' if place else 'M'}{a:.1f} {b:.1f}" for place, (a, b) in enumerate(dots))
    return drawing(
        _WIDTH,
        floor + X_AXIS_HEIGHT + 2,
        f"{title}: accuracy over confidence in {len(dots)} bins",
        y_axis(y, left, right, "accuracy"),
        rule(left, floor, right, floor, "axis"),
        x_axis(x, floor, name),
        label("predictions", left + 4, bottom + 12, class_="name"),
        parts,
        element("path", d=path, class_="line color-1"),
        [element("circle", cx=a, cy=b, r=4, class_="dot color-1") for a, b in dots],
    )
