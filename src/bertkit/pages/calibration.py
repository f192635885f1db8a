"""Reliability diagrams: accuracy as a function of confidence (DeGroot & Fienberg 1983)."""

import numpy as np

from bertkit.pages.frame import Scale, canvas, chart, dot, drawable, percent, rule, x_axis, y_axis
from bertkit.pages.lines import read_out_table
from bertkit.pages.markup import Markup, element
from bertkit.pages.page import figure
from bertkit.pages.ticks import format_number

_HEIGHT, _COUNTS_HEIGHT = 280, 44  # pixels
_BAR = 2.5  # percent


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
    """A figure of accuracy over confidence, bin by bin, with the diagonal of a calibrated model, and below it the
    number of predictions in each bin.

    Args:
        confidence: (bins,) mean confidence of a bin's predictions, 0 to 1; NaN in an empty bin.
        accuracy: (bins,) share of correct predictions, 0 to 1; NaN in an empty bin.
        counts: (bins,) predictions.
        low, high: (bins,) interval of the accuracy.
    """
    unknown = np.full(len(counts), np.nan)
    columns = (confidence, accuracy, unknown if low is None else low, unknown if high is None else high, counts)
    bins = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    bins = bins[drawable(bins[:, 0], "linear") & drawable(bins[:, 1], "linear")]
    labels, grid = y_axis(Scale(0.0, 1.0, 100.0, 0.0), _HEIGHT)
    marks, bars, tallest = [], [], max(float(np.max(counts, initial=0.0)), 1.0)
    for x, y, lowest, highest, count in (100 * bins * [1, 1, 1, 1, 1 / tallest]).tolist():
        if np.isfinite(lowest) and np.isfinite(highest):
            marks.append(rule(x, 100 - lowest, x, 100 - highest, "interval color-1"))
        marks.append(dot(x, 100 - y, 4, 1))
        left = min(max(x - _BAR / 2, 0.0), 100 - _BAR)
        bars.append(element("rect", x=percent(left), y=percent(100 - count), width=percent(_BAR),
                            height=percent(count), class_="bar fill-1"))  # fmt: skip
    path = "".join(f"{'L' if number else 'M'}{x:.2f} {100 - y:.2f}" for number, (x, y) in enumerate(100 * bins[:, :2]))
    line = element("path", d=path, class_="line color-1")
    plot = canvas(
        _HEIGHT, grid, rule(0, 100, 100, 0, "reference"),
        element("svg", line, viewBox="0 0 100 100", preserveAspectRatio="none"), marks, rule(0, 0, 0, 100, "cursor"),
        name=f"{title}: accuracy over confidence in {len(bins)} bins", class_="plot",
    )  # fmt: skip
    rows = [(labels, plot), x_axis("confidence", Scale(0.0, 1.0)),
            (element("span", "predictions", class_="name"), canvas(_COUNTS_HEIGHT, bars))]  # fmt: skip
    numbers = [["" if cell != cell else format_number(cell) for cell in row] for row in bins.tolist()]
    drawing = [element("output", class_="readout"), element("div", "accuracy", class_="name"),
               chart(rows, "chart square")]  # fmt: skip
    names = ["confidence", "accuracy", "from", "to", "predictions"]
    return figure(title, drawing, note=note, numbers=read_out_table("The numbers", names, numbers, 100 * bins[:, 0]))
