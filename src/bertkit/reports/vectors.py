"""Report on a sentence encoder or cross-encoder: a page of its scores, and the same figures as JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from bertkit.evidence import Measured
from bertkit.pages import Markup, Score, data, findings, interval_chart, paragraph, section
from bertkit.reports.parts import Interval, Metric, Table, html_of, readable
from bertkit.reports.report_file import write_report

_NOT_SHARES = {"threshold"}  # not drawn with the others


def write_vector_report(
    path: str | Path,
    model: str,
    sizes: str,
    measured: Mapping[str, Measured],
    against: str | None = None,
    differences: Mapping[str, Measured] = {},
) -> None:
    """Write a page, and the same figures as JSON to a file of the same name with the ending .json.

    Args:
        path: path of the page, ending in .html.
        sizes: the data and their number.
        against: another model, from whose scores ``differences`` are taken.

    Raises:
        UsageError: another ending, no such folder, or a folder of that name.
    """
    scores, gains = ({name: asdict(one) for name, one in of.items()} for of in (measured, differences))
    figures = {"model": model, "data": sizes, "scores": scores, "against": against, "differences": gains}
    write_report(path, model, figures, _page(sizes, measured, against, differences))


def _page(
    sizes: str, measured: Mapping[str, Measured], against: str | None, differences: Mapping[str, Measured]
) -> Iterator[Markup]:
    yield paragraph(data(f"{sizes}. 95 % confidence intervals, by bootstrap samples."))
    if against is not None:
        yield findings([_finding(name, one, against) for name, one in differences.items() if name not in _NOT_SHARES])
    drawn = [
        Score(readable(name), one.value, one.low, one.high) for name, one in measured.items() if name not in _NOT_SHARES
    ]
    columns, others = ["score", "value", "95 % interval"], ["difference", "95 % interval of the difference"]
    rows = []
    for name, one in measured.items():
        row = [Metric(name), one.value, Interval(one.low, one.high)]
        if name in differences:
            other = differences[name]
            row += [other.value, Interval(other.low, other.high)]
        rows.append(row)
    yield section(
        "Scores",
        interval_chart("Scores with their 95 % intervals", drawn, x_name="score"),
        html_of(Table(columns + (others if differences else []), rows)),
    )


def _finding(name: str, difference: Measured, against: str) -> tuple[str, object]:
    if difference.low <= 0 <= difference.high:
        return "note", data(f"No difference in {readable(name)} from {against} is certain: the interval includes 0.")
    better = difference.low > 0
    return "good" if better else "warning", data(
        f"{readable(name).capitalize()} is {'above' if better else 'below'} that of {against} by "
        f"{abs(difference.value):.3f} ({abs(difference.low if better else difference.high):.3f} to "
        f"{abs(difference.high if better else difference.low):.3f})."
    )
