"""Report on training data before training: a page, and the same figures as JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertkit.evidence.training_data import TrainingData
from bertkit.pages import Markup, data, findings
from bertkit.reports.evidence import score_table
from bertkit.reports.parts import Label, Table
from bertkit.reports.report_file import sections, write_report


def write_training_data_report(checked: TrainingData, path: Path, *, title: str) -> None:
    """Write a page, and the same figures as JSON to a file of the same name with the ending .json.

    Raises:
        UsageError: another ending than .html, or a file that cannot be written.
    """
    write_report(path, title, {"title": title, **checked.as_json()}, _page(checked))


def _page(checked: TrainingData) -> Iterator[Markup]:
    yield findings([(kind, data(sentence)) for kind, sentence in checked.findings()])
    yield from sections([
        ("Labels", _labels(checked)),
        ("Repeated texts", _repeated(checked)),
        ("Likely label errors", _label_errors(checked)),
        ("Frozen features in cross-validation", [score_table(checked.scores)]),
    ])  # fmt: skip


def _labels(checked: TrainingData) -> Iterator[Any]:
    if checked.counts:
        rows = [(Label(name), number, number / checked.num_examples) for name, number in checked.counts.items()]
        yield Table(("label", "rows", "share"), rows, weights=[row[1] for row in rows])


def _repeated(checked: TrainingData) -> Iterator[Any]:
    if checked.repeated:
        rows = [(one.text, " / ".join(one.labels), ", ".join(one.locations)) for one in checked.repeated]
        yield Table(("text", "labels", "rows"), rows, "Contradictions first")


def _label_errors(checked: TrainingData) -> Iterator[Any]:
    if checked.label_errors.shown:
        yield "By classifiers fitted to other rows, the most confident first (Northcutt, Jiang & Chuang 2021)."
        rows = [
            (
                one.location,
                one.text if one.pair is None else f"{one.text} / {one.pair}",
                one.word,
                one.given,
                one.likely,
            )
            for one in checked.label_errors.shown
        ]
        yield Table(("row", "text", "word", "given", "likely"), rows)
