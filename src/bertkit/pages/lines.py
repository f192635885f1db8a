"""Line charts: curves over steps, tokens or time, with what they are measured against."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.pages.axes import (
    LARGEST,
    LINE_HEIGHT,
    NARROW,
    WIDE,
    X_AXIS_HEIGHT,
    Box,
    Scale,
    apart,
    drawable,
    drawing,
    label,
    rule,
    shortened,
    shown_at,
    span,
    text_width,
    x_axis,
    x_name_width,
    x_overhang,
    y_axis,
    y_axis_width,
)
from bertkit.pages.markup import Markup, data, element
from bertkit.pages.page import details, figure, scrolling
from bertkit.pages.series import evenly, thin
from bertkit.pages.ticks import format_number, format_seconds

_MOST_ROWS = 200  # of the numbers behind a line
_MOST_DOTS = 60
_LABEL_WIDTH = 150  # pixels of a line's name beside its end, at most
_TOP = LINE_HEIGHT + 10
_MARGINS = {"wide": (48, 104), "narrow": (40, 48)}  # least pixels left and right, so that charts stand in line


@dataclass(frozen=True)
class Line:
    """One curve.

    Attributes:
        name: short; it stands beside the line's end.
        x: (n,) ascending.
        y: (n,) what is not finite is a gap.
        color: 1 to 6, of the page's palette.
        look: "line"; "faint", the raw numbers behind a smoothed line, without a name; "dots", a line with its points;
            "dashed", what was expected.
        low, high: (n,) of a band around the line, such as an interval.
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
    """A level to compare with: a line across the chart."""

    name: str
    y: float


@dataclass(frozen=True)
class OtherScale:
    """What else can be read along the x axis, such as the time at which a step was made.

    Attributes:
        x: (n,) ascending, in the chart's own unit.
        values: (n,) ascending.
        kind: "linear", "integer", or "time", which is seconds.
    """

    name: str
    x: np.ndarray
    values: np.ndarray
    kind: str = "linear"


@dataclass(frozen=True)
class _Chart:
    title: str
    lines: list[Line]
    x_name: str
    y_name: str
    x_kind: str
    y_kind: str
    references: Sequence[Reference]
    scales: Sequence[OtherScale]
    height: float


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
        height: pixels of the plot itself.
    """
    lines = [_checked(line) for line in lines]
    lines = [line for line in lines if len(line.x)]
    scales = [scale for scale in scales if len(scale.values) and scale.values[-1] > scale.values[0]]
    chart = _Chart(title, lines, x_name, y_name, x_kind, y_kind, references, scales, height)
    drawings = [_draw(chart, width) for width in (WIDE, NARROW)]
    left_out = _left_out(lines, x_kind, y_kind) if lines else ""
    remark = element("p", f"Not shown: {left_out}.", class_="note") if left_out else None
    legend = [element("li", _swatch(line), " ", data(line.name)) for line in lines if line.look != "faint"]
    legend = element("ul", legend, class_="legend narrow") if len(lines) > 1 else None
    readout = element("output", class_="readout")
    return figure(title, [legend, readout, *drawings, remark], note=note, numbers=_numbers(chart))


def _left_out(lines: Sequence[Line], x_kind: str, y_kind: str) -> str:
    """How many points are not drawn, and why not; "" if all are."""
    x, y = (
        np.concatenate([np.empty(0), *arrays]) for arrays in zip(*((line.x, line.y) for line in lines), strict=True)
    )
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


def _checked(line: Line) -> Line:
    arrays = [None if part is None else np.asarray(part, np.float64) for part in (line.x, line.y, line.low, line.high)]
    x, y, low, high = arrays
    assert x is not None and y is not None
    assert len({len(part) for part in arrays if part is not None}) == 1, f"{line.name}: arrays of different lengths"
    assert bool(np.all(np.diff(x) >= 0)), f"{line.name}: x is not ascending"
    return Line(line.name, x, y, line.color, line.look, low, high)


def _draw(chart: _Chart, width: float) -> Markup:
    top, bottom = _TOP, _TOP + chart.height
    references = [reference for reference in chart.references if drawable(np.array([reference.y]), chart.y_kind)[0]]
    levels = np.array([reference.y for reference in references])
    heights = [part for line in chart.lines for part in (line.y, line.low, line.high) if part is not None]
    margin = 0.07 if references else 0.04  # room for a name beyond the outermost level
    y = Scale(*span([*heights, levels], chart.y_kind, margin), bottom, top, chart.y_kind)
    least_left, least_right = _MARGINS[shown_at(width)]
    left = max(least_left, y_axis_width(y))
    x = Scale(*span([line.x for line in chart.lines], chart.x_kind), left, width, chart.x_kind)
    lines = [line for line in chart.lines if line.look != "faint"]
    named = lines if width > NARROW and len(chart.lines) > 1 else []
    names_width = max((min(_LABEL_WIDTH, text_width(line.name)) for line in named), default=0.0) + 16
    axes = [(chart.x_name, x), *((scale.name, _other(x, scale)) for scale in chart.scales)]
    overhang = max(x_overhang(scale) for _, scale in axes)
    right = width - max(least_right, names_width, overhang + max(x_name_width(name) for name, _ in axes))
    x = Scale(x.low, x.high, left, right, chart.x_kind)
    other_axes = [
        x_axis(
            _other(x, scale),
            bottom + (row + 1) * X_AXIS_HEIGHT,
            scale.name,
            name_at=right + overhang,
            place=lambda ticks, scale=scale: x(np.interp(ticks, scale.values, scale.x)),
        )
        for row, scale in enumerate(chart.scales)
    ]
    names, boxes = _names(named, x, y)
    return drawing(
        width,
        bottom + (1 + len(chart.scales)) * X_AXIS_HEIGHT + 2,
        _described(chart),
        y_axis(y, left, right, chart.y_name),
        names,  # below the lines: a name never hides a number
        _levels(references, chart.lines, boxes, x, y),
        rule(left, bottom, right, bottom, "axis"),
        x_axis(x, bottom, chart.x_name, name_at=right + overhang),
        other_axes,
        [_drawn(line, x, y) for line in chart.lines],
        rule(left, top, left, bottom, "cursor"),
        shown=shown_at(width),
        data_low=repr(x.low),
        data_high=repr(x.high),
        data_left=left,
        data_right=right,
        data_kind=chart.x_kind,
    )


def _other(x: Scale, scale: OtherScale) -> Scale:
    """The scale's own range, over as many pixels."""
    ends = np.interp([x.low, x.high], scale.x, scale.values)
    return Scale(*span([ends], scale.kind), x.start, x.end, scale.kind)


def _described(chart: _Chart) -> str:
    """What a screen reader says of the drawing; the numbers are in the table below it."""
    parts = [f"{chart.title}: {chart.y_name} over {chart.x_name}"]
    for line in chart.lines:
        values = line.y[np.isfinite(line.y)]
        if line.look != "faint" and len(values):
            parts.append(f"{line.name} from {format_number(values[0])} to {format_number(values[-1])}")
    return "; ".join(parts)


def _drawn(line: Line, x: Scale, y: Scale) -> Markup:
    """The line's band, path and points."""
    color = f"color-{line.color}"
    parts: list[Markup] = []
    if line.low is not None and line.high is not None:
        parts.append(_band(line, x, y))
    xs, ys, breaks = _visible(line.x, line.y, x, y)
    parts.append(element("path", d=_path(xs, ys, breaks), class_=f"line {line.look} {color}"))
    if line.look == "dots" and len(xs) <= _MOST_DOTS:
        parts += [
            element("circle", cx=float(a), cy=float(b), r=3, class_=f"dot {color}") for a, b in zip(xs, ys, strict=True)
        ]
    return element("g", parts)


def _visible(
    values_x: np.ndarray, values_y: np.ndarray, x: Scale, y: Scale
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels of the points to draw, and whether each starts a new piece because something between is missing."""
    shown = drawable(values_y, y.kind) & drawable(values_x, x.kind)
    gaps = np.cumsum(~shown)[shown]
    xs, ys = x(values_x[shown]), y(values_y[shown])
    kept = thin(np.floor(xs), ys)
    return xs[kept], ys[kept], np.diff(gaps[kept], prepend=-1) != 0


def _path(xs: np.ndarray, ys: np.ndarray, breaks: np.ndarray) -> str:
    """SVG path data; a point alone is a dot, by the round ends of a line without length."""
    pieces = []
    for place, (a, b, starts) in enumerate(zip(xs.tolist(), ys.tolist(), breaks.tolist(), strict=True)):
        alone = starts and (place + 1 == len(xs) or breaks[place + 1])
        pieces.append(f"{'M' if starts or not place else 'L'}{a:.1f} {b:.1f}{'h0' if alone else ''}")
    return "".join(pieces)


def _band(line: Line, x: Scale, y: Scale) -> Markup:
    assert line.low is not None and line.high is not None
    shown = drawable(line.x, x.kind) & drawable(line.low, y.kind) & drawable(line.high, y.kind)
    xs, lows, highs = x(line.x[shown]), y(line.low[shown]), y(line.high[shown])
    upper, lower = thin(np.floor(xs), highs), thin(np.floor(xs), lows)[::-1]
    points = [*zip(xs[upper], highs[upper], strict=True), *zip(xs[lower], lows[lower], strict=True)]
    return element("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in points), class_=f"band fill-{line.color}")


def _names(named: Sequence[Line], x: Scale, y: Scale) -> tuple[list[Markup], list[Box]]:
    """The names of lines at the right of their ends, moved apart where they would meet, and where they lie."""
    visible = [_visible(line.x, line.y, x, y) for line in named]
    ends = [(line, float(xs[-1]), float(ys[-1])) for line, (xs, ys, _) in zip(named, visible, strict=True) if len(xs)]
    middles = apart([b for _, _, b in ends], _TOP, y.start - LINE_HEIGHT / 2)
    parts, boxes = [], []
    for (line, a, b), middle in zip(ends, middles, strict=True):
        name = shortened(line.name, _LABEL_WIDTH)
        parts.append(rule(a, b, a + 10, middle, f"leader color-{line.color}"))
        parts.append(label(name, a + 13, middle, class_=f"halo ink-{line.color}"))
        boxes.append(Box(a, middle - LINE_HEIGHT / 2, a + 13 + text_width(name), middle + LINE_HEIGHT / 2))
    return parts, boxes


def _levels(
    references: Sequence[Reference], lines: Sequence[Line], boxes: list[Box], x: Scale, y: Scale
) -> list[Markup]:
    """Lines across the chart, each with its name above or below it, where it hides least of the other lines and
    meets none of the boxes."""
    columns = np.arange(x.start, x.end)
    drawn = [_visible(line.x, line.y, x, y)[:2] for line in lines]
    heights = [np.interp(columns, xs, ys, left=-1e9, right=-1e9) for xs, ys in drawn if len(xs)]
    parts, boxes = [], list(boxes)
    for reference in references:
        level, name = float(y(reference.y)), shortened(reference.name, x.end - x.start - 8)
        width, middle = text_width(name), (x.start + x.end) / 2
        places = [
            Box(right - width, top, right, top + LINE_HEIGHT)
            for right in (x.end - 4, middle + width / 2, x.start + 4 + width)
            for top in (level - LINE_HEIGHT, level + 1)
            if top >= _TOP - LINE_HEIGHT / 2 and top + LINE_HEIGHT <= y.start
        ] or [Box(x.end - 4 - width, level - LINE_HEIGHT, x.end - 4, level)]
        hidden = [
            1e6 * sum(place.meets(box) for box in boxes)
            + sum(int(np.sum(place.holds(columns, height))) for height in heights)
            for place in places
        ]
        best = places[int(np.argmin(hidden))]
        boxes.append(best)
        parts.append(rule(x.start, level, x.end, level, "reference"))
        at, anchor = (best.right, "end") if best.right == x.end - 4 else (best.left, "start")
        parts.append(label(name, at, best.top + LINE_HEIGHT / 2, anchor=anchor, class_="name halo"))
    return parts


def _swatch(line: Line) -> Markup:
    middle = element("path", d="M1 6h22", class_=f"line {line.look} color-{line.color}")
    dot = element("circle", cx=12, cy=6, r=3, class_=f"dot color-{line.color}") if line.look == "dots" else None
    return element("svg", middle, dot, viewBox="0 0 24 12", width=24, height=12, aria_hidden="true")


def _numbers(chart: _Chart) -> Markup:
    """The table behind the chart, which the script reads too: one row for each x that some line has, of long lines
    evenly chosen ones."""
    chosen = [line.x[evenly(len(line.x), _MOST_ROWS)] for line in chart.lines]
    xs = np.unique(np.concatenate([np.empty(0), *chosen]))
    longest = max((len(line.x) for line in chart.lines), default=0)
    columns = [chart.x_name, *(scale.name for scale in chart.scales), *(line.name for line in chart.lines)]
    cells = [[_written(value, chart.x_kind) for value in xs]]
    for scale in chart.scales:
        cells.append([_written(value, scale.kind) for value in np.interp(xs, scale.x, scale.values)])
    for line in chart.lines:
        known = dict(zip(line.x.tolist(), line.y.tolist(), strict=True))
        cells.append([_written(known[value], chart.y_kind) if value in known else "" for value in xs.tolist()])
    head = element("tr", [element("th", name, scope="col") for name in columns])
    rows = [
        element("tr", [element("td", row[place]) for row in cells], data_x=repr(value))
        for place, value in enumerate(xs.tolist())
    ]
    title = "The numbers" if longest <= _MOST_ROWS else f"The numbers ({len(xs):,} of {longest:,} points)"
    return details(title, scrolling(element("table", element("thead", head), element("tbody", rows), class_="numbers")))


def _written(value: float, kind: str) -> str:
    return format_seconds(value) if kind == "time" else format_number(value, 5)
