"""Line charts: curves over steps, tokens or time, with reference levels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.pages.frame import LARGEST, Scale, canvas, chart, dot, drawable, levels, rule, span, x_axis, y_axis
from bertkit.pages.markup import Markup, data, element
from bertkit.pages.page import details, figure, scrolling
from bertkit.pages.series import evenly, thin
from bertkit.pages.ticks import format_number, format_seconds

_MOST_ROWS = 200  # maximum number of rows of a chart's table
_MOST_DOTS = 60
_COLUMNS_PER_PERCENT = 7  # pixels, on a wide screen


@dataclass(frozen=True)
class Line:
    """One curve.

    Attributes:
        name: short, for the legend.
        x: (n,) ascending.
        y: (n,) values that are not finite make a gap.
        color: 1 to 6, of the page's palette.
        look: "line"; "faint", raw numbers behind a smoothed line, without a name; "dots", a line with its points;
            "dashed", expected values.
        low, high: (n,) of a band around the line, such as a confidence interval.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    color: int = 1
    look: str = "line"
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclass(frozen=True)
class Reference:
    """A reference level: a line across the chart."""

    name: str
    y: float


@dataclass(frozen=True)
class OtherScale:
    """A second scale along the x axis, such as the time of each step.

    Attributes:
        x: (n,) ascending, in the chart's own unit.
        values: (n,) ascending.
        kind: "linear", "integer", or "time", which is seconds.
    """

    name: str
    x: np.ndarray
    values: np.ndarray
    kind: str = "linear"


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_name: str,
    y_name: str,
    x_kind: str = "linear",
    y_kind: str = "linear",
    references: Sequence[Reference] = (),
    scales: Sequence[OtherScale] = (),
    height: float = 280,
    note: object = None,
) -> Markup:
    """A figure with one or more lines.

    Args:
        x_kind, y_kind: "linear", "integer", "log", or "time", which is seconds.
        scales: further scales below the x axis.
        height: pixels of the plot.
    """
    lines = [line for line in map(_checked, lines) if len(line.x)]
    scales = [scale for scale in scales if len(scale.values) and scale.values[-1] > scale.values[0]]
    references = [reference for reference in references if drawable(np.array([reference.y]), y_kind)[0]]
    heights = [part for line in lines for part in (line.y, line.low, line.high) if part is not None]
    margin = 0.07 if references else 0.04  # room for a name above the highest level
    y = Scale(*span([*heights, np.array([one.y for one in references])], y_kind, margin), 100.0, 0.0, y_kind)
    x = Scale(*span([line.x for line in lines], x_kind), kind=x_kind)
    labels, grid = y_axis(y, height)
    plot = canvas(
        height,
        grid,
        levels([(one.name, float(y(one.y))) for one in references], height, [_heights(line, x, y) for line in lines]),
        [_drawn(line, x, y) for line in lines],
        rule(0, 0, 0, 100, "cursor"),
        name=_described(title, lines, x_name, y_name),
        class_="plot",
    )
    other_axes = [
        x_axis(scale.name, _other(x, scale), lambda ticks, scale=scale: x(np.interp(ticks, scale.values, scale.x)))
        for scale in scales
    ]
    legend = [element("li", _swatch(line), " ", data(line.name)) for line in lines if line.look != "faint"]
    left_out = _left_out(lines, x_kind, y_kind)
    drawing = [
        element("ul", legend, class_="legend") if len(lines) > 1 else None,
        element("output", class_="readout"),
        element("div", y_name, class_="name"),
        chart([(labels, plot), x_axis(x_name, x), *other_axes]),
        element("p", f"Not shown: {left_out}.", class_="note") if left_out else None,
    ]
    return figure(title, drawing, note=note, numbers=_numbers(lines, x_name, scales, x, y_kind))


def _checked(line: Line) -> Line:
    arrays = [None if part is None else np.asarray(part, np.float64) for part in (line.x, line.y, line.low, line.high)]
    x, y, low, high = arrays
    assert x is not None and y is not None
    assert len({len(part) for part in arrays if part is not None}) == 1, f"{line.name}: arrays of different lengths"
    assert bool(np.all(np.diff(x) >= 0)), f"{line.name}: x is not ascending"
    return Line(line.name, x, y, line.color, line.look, low, high)


def _left_out(lines: Sequence[Line], x_kind: str, y_kind: str) -> str:
    """Numbers of points not drawn, with reasons; "" if all are drawn."""
    x, y = (np.concatenate([np.empty(0), *(getattr(line, axis) for line in lines)]) for axis in "xy")
    is_finite = np.isfinite(x) & np.isfinite(y)
    is_large = is_finite & (np.maximum(np.abs(x), np.abs(y)) > LARGEST)
    is_low = is_finite & ~is_large & ~(drawable(x, x_kind) & drawable(y, y_kind))
    reasons = {
        "at or below 0, as the axis is logarithmic": is_low,
        "without a finite value": ~is_finite,
        f"beyond {format_number(LARGEST)}": is_large,
    }
    counts = {reason: int(points.sum()) for reason, points in reasons.items()}
    return "; ".join(f"{n:,} {'point' if n == 1 else 'points'} {reason}" for reason, n in counts.items() if n)


def _other(x: Scale, scale: OtherScale) -> Scale:
    """Range of another scale over the same width."""
    return Scale(*span([np.interp([x.low, x.high], scale.x, scale.values)], scale.kind), kind=scale.kind)


def _described(title: str, lines: Sequence[Line], x_name: str, y_name: str) -> str:
    """Description of the drawing for screen readers; the numbers are in the table below it."""
    parts = [f"{title}: {y_name} over {x_name}"]
    for line in lines:
        values = line.y[np.isfinite(line.y)]
        if line.look != "faint" and len(values):
            parts.append(f"{line.name} from {format_number(values[0])} to {format_number(values[-1])}")
    return "; ".join(parts)


def _drawn(line: Line, x: Scale, y: Scale) -> list[Markup]:
    """Band, path and points. Band and path are stretched to the size of the chart, without their strokes (page.css)."""
    color = f"color-{line.color}"
    shown = drawable(line.y, y.kind) & drawable(line.x, x.kind)
    gaps = np.cumsum(~shown)[shown]
    xs, ys = x(line.x[shown]), y(line.y[shown])
    kept = thin(np.floor(_COLUMNS_PER_PERCENT * xs), ys)
    xs, ys, starts = xs[kept], ys[kept], np.diff(gaps[kept], prepend=-1) != 0
    path = element("path", d=_path(xs, ys, starts), class_=f"line {line.look} {color}")
    dots = zip(xs, ys, strict=True) if line.look == "dots" and len(xs) <= _MOST_DOTS else ()
    stretched = element("svg", _band(line, x, y), path, viewBox="0 0 100 100", preserveAspectRatio="none")
    return [stretched, *(dot(a, b, 3, line.color) for a, b in dots)]


def _heights(line: Line, x: Scale, y: Scale) -> np.ndarray:
    """(100,) percents of the line from the top, one for each percent along the chart; NaN beyond its ends."""
    shown = drawable(line.y, y.kind) & drawable(line.x, x.kind)
    if not shown.any():
        return np.full(100, np.nan)
    return np.interp(np.arange(100) + 0.5, x(line.x[shown]), y(line.y[shown]), left=np.nan, right=np.nan)


def _path(xs: np.ndarray, ys: np.ndarray, starts: np.ndarray) -> str:
    """SVG path data, with a new piece at each start; a lone point is a dot, by the round ends of an empty line."""
    alone = starts & np.append(starts[1:], True)
    points = zip(xs.tolist(), ys.tolist(), starts.tolist(), alone.tolist(), strict=True)
    return "".join(f"{'M' if start else 'L'}{a:.2f} {b:.2f}{'h0' if lone else ''}" for a, b, start, lone in points)


def _band(line: Line, x: Scale, y: Scale) -> Markup | None:
    if line.low is None or line.high is None:
        return None
    shown = drawable(line.x, x.kind) & drawable(line.low, y.kind) & drawable(line.high, y.kind)
    xs, lows, highs = x(line.x[shown]), y(line.low[shown]), y(line.high[shown])
    columns = np.floor(_COLUMNS_PER_PERCENT * xs)
    upper, lower = thin(columns, highs), thin(columns, lows)[::-1]
    points = [*zip(xs[upper], highs[upper], strict=True), *zip(xs[lower], lows[lower], strict=True)]
    return element("polygon", points=" ".join(f"{a:.2f},{b:.2f}" for a, b in points), class_=f"band fill-{line.color}")


def _swatch(line: Line) -> Markup:
    middle = element("path", d="M1 6h22", class_=f"line {line.look} color-{line.color}")
    middle_dot = dot(50, 50, 3, line.color) if line.look == "dots" else None
    return element("svg", middle, middle_dot, width=24, height=12, aria_hidden="true")


def _numbers(lines: Sequence[Line], x_name: str, scales: Sequence[OtherScale], x: Scale, y_kind: str) -> Markup:
    """The table of a chart, also used by the script: one row for each x of any line; evenly chosen rows for long
    lines."""
    xs = np.unique(np.concatenate([np.empty(0), *(line.x[evenly(len(line.x), _MOST_ROWS)] for line in lines)]))
    longest = max((len(line.x) for line in lines), default=0)
    cells = [[_written(value, x.kind) for value in xs]]
    for scale in scales:
        cells.append([_written(value, scale.kind) for value in np.interp(xs, scale.x, scale.values)])
    for line in lines:
        known = dict(zip(line.x.tolist(), line.y.tolist(), strict=True))
        cells.append([_written(known[value], y_kind) if value in known else "" for value in xs.tolist()])
    shown = drawable(xs, x.kind)
    percents = np.where(shown, x(np.where(shown, xs, x.low)), -1.0)
    title = "The numbers" if longest <= _MOST_ROWS else f"The numbers ({len(xs):,} of {longest:,} points)"
    names = [x_name, *(scale.name for scale in scales), *(line.name for line in lines)]
    return read_out_table(title, names, list(zip(*cells, strict=True)), percents)


def read_out_table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], percents: np.ndarray) -> Markup:
    """The numbers of a chart, collapsed; pointing at the chart shows the row at the nearest percent."""
    head = element("tr", [element("th", name, scope="col") for name in names])
    body = [
        element("tr", [element("td", cell) for cell in row], data_x=round(at, 3))
        for row, at in zip(rows, percents.tolist(), strict=True)
    ]
    return details(title, scrolling(element("table", element("thead", head), element("tbody", body), class_="numbers")))


def _written(value: float, kind: str) -> str:
    return format_seconds(value) if kind == "time" else format_number(value, 5)
