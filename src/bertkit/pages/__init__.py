"""Numbers to a page: one self-contained HTML file with charts, tables and text, for every report.

Takes: arrays, names and sentences; whatever comes from data is escaped.
Gives: charts as SVG with the numbers behind them, and the page that holds them.
May import: errors, files.
"""

from bertkit.pages.bars import Score, bar_chart, interval_chart
from bertkit.pages.calibration import reliability_diagram
from bertkit.pages.lines import Line, OtherScale, Reference, line_chart
from bertkit.pages.markup import Markup, data, element, join, text
from bertkit.pages.matrix import confusion_matrix, heat_map
from bertkit.pages.page import (
    details,
    figure,
    findings,
    headline,
    page,
    paragraph,
    scrolling,
    section,
    share_bar,
    table,
    write_page,
)
from bertkit.pages.series import running_mean
from bertkit.pages.ticks import format_number, format_seconds, format_short

__all__ = [
    "Line",
    "Markup",
    "OtherScale",
    "Reference",
    "Score",
    "bar_chart",
    "confusion_matrix",
    "data",
    "details",
    "element",
    "figure",
    "findings",
    "format_number",
    "format_seconds",
    "format_short",
    "headline",
    "heat_map",
    "interval_chart",
    "join",
    "line_chart",
    "page",
    "paragraph",
    "reliability_diagram",
    "running_mean",
    "scrolling",
    "section",
    "share_bar",
    "table",
    "text",
    "write_page",
]
