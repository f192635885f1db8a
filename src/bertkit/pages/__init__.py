"""Self-contained HTML pages with charts, tables and text, for every report.

Takes: arrays, names and sentences; all data is escaped.
Gives: charts with their numbers, and pages of them.
May import: errors, files.

Reasons for drawing charts here instead of using a library: four kinds are needed (lines, intervals, reliability,
matrix), in one file that works offline, in dark and light mode, at any width, by keyboard and for screen readers, under
a policy that forbids external scripts. Vega-Lite and Plotly would embed 0.8 to 4 MB of JavaScript in each page;
matplotlib is a large dependency, and its SVG has one fixed size and color scheme and no table. So layout is left to the
browser: labels, legends and matrices are HTML, and an SVG has only marks and ticks, at positions in percent
(`pages.frame`). No text is measured, and nothing is drawn twice for narrow screens.
"""

from bertkit.pages.calibration import reliability_diagram
from bertkit.pages.intervals import Score, interval_chart
from bertkit.pages.lines import Line, OtherScale, Reference, line_chart
from bertkit.pages.markup import Markup, data, element, join, text
from bertkit.pages.matrix import confusion_matrix, heat_map
from bertkit.pages.page import (
    Program,
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
from bertkit.pages.shaded_text import shaded_text
from bertkit.pages.ticks import format_number, format_seconds, format_short

__all__ = [
    "Line",
    "Markup",
    "OtherScale",
    "Program",
    "Reference",
    "Score",
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
    "shaded_text",
    "share_bar",
    "table",
    "text",
    "write_page",
]
