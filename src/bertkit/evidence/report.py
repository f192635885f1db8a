"""The evidence as a page to read, and beside it as JSON with every figure of the page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import UsageError
from bertkit.evidence.baseline import SizeScore
from bertkit.evidence.gather import Evidence
from bertkit.evidence.intervals import Measured
from bertkit.files.json_files import write_json
from bertkit.files.whole_files import check_writable
from bertkit.pages import (
    Line,
    Markup,
    Reference,
    Score,
    confusion_matrix,
    data,
    details,
    element,
    findings,
    format_number,
    headline,
    interval_chart,
    join,
    line_chart,
    paragraph,
    reliability_diagram,
    section,
    table,
    write_page,
)

_MODEL, _BASELINE = 1, 2  # colors
_MOST_LABELS_DRAWN = 40
_FEW_LABELS = 4  # whose confusions are seen at a glance
_DIGITS = 3


def write_evidence_report(evidence: Evidence, path: str | Path, *, title: str = "Evidence") -> None:
    """Write a page, and beside it the same figures as JSON, in a file of the same name that ends in .json.

    Args:
        path: of the page, ending in .html.
        title: of the page, such as the model's name.

    Raises:
        UsageError: another ending, no such folder, or a folder of that name.
    """
    path = Path(path)
    if path.suffix != ".html":
        raise UsageError(f"cannot write the report {path}: expected a name that ends in .html; .json is put beside it")
    beside = path.with_suffix(".json")
    check_writable(path)
    check_writable(beside)
    write_json(beside, {"title": title, **evidence.as_json()})
    write_page(path, title, list(_parts(evidence)))


def _parts(evidence: Evidence) -> Iterator[Markup]:
    yield paragraph(element("span", _subtitle(evidence), class_="note"))
    yield headline(list(_headline(evidence)))
    yield findings([(kind, data(sentence)) for kind, sentence in findings_of(evidence)])
    yield section("Scores", *_scores(evidence))
    for title, parts in (
        ("Labels", _labels(evidence)),
        ("Thresholds", _thresholds(evidence)),
        ("Calibration", _calibration(evidence)),
        ("Length", _lengths(evidence)),
        ("Likely label errors", _label_errors(evidence)),
        ("Leakage from training", _leakage(evidence)),
        ("Baseline", _baseline(evidence)),
        ("Learning curve", _learning_curve(evidence)),
        ("Seeds", _seeds(evidence)),
    ):
        if found := list(parts):
            yield section(title, *found)
    if evidence.missing:
        rows = [(name.replace("_", " "), why) for name, why in evidence.missing.items()]
        yield section("What is not here", table(["part", "why"], rows))


def _subtitle(evidence: Evidence) -> Markup:
    words = "" if evidence.num_words is None else f", {evidence.num_words:,} words"
    unread = f", {evidence.num_unread_words:,} of them not read" if evidence.num_unread_words else ""
    return join([
        data(f"{evidence.task} · {evidence.num_examples:,} {evidence.unit}{words}{unread} · "),
        f"Intervals hold 95 %, by {evidence.num_resamples:,} draws of the {evidence.unit} with replacement.",
    ])  # fmt: skip


def _headline(evidence: Evidence) -> Iterator[tuple[str, object, object]]:
    names = [evidence.metric, *(name for name in evidence.scores if name not in (evidence.metric, "loss"))]
    for name in names[: 3 if evidence.baseline is None else 2]:
        yield _capital(_readable(name)), _number(evidence.scores[name].value), _interval(evidence.scores[name])
    if evidence.baseline is not None:
        found = evidence.baseline.difference[evidence.metric]
        yield "Above the baseline", _number(found.value), f"{_readable(evidence.metric)}, {_interval(found)}"
    if evidence.calibration is not None:
        error = evidence.calibration.expected_calibration_error
        yield "Calibration error", _number(error), "mean distance of accuracy from confidence"


def findings_of(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """What the numbers say, in sentences, each "good", "note" or "warning"."""
    baseline, leakage, errors = evidence.baseline, evidence.leakage, evidence.label_errors
    name, lengths = _readable(evidence.metric), evidence.lengths
    if baseline is not None:
        found = baseline.difference[evidence.metric]
        if found.low > 0:
            yield "good", f"The model is better than the baseline ({baseline.method})."
        elif found.high < 0:
            yield "warning", f"The model is worse than the baseline ({baseline.method})."
        else:
            yield "warning", f"The model is not shown to be better than the baseline ({baseline.method})."
    if leakage is not None and (leakage.num_exact or leakage.num_near):
        found_there = f"{leakage.num_exact:,} of {evidence.num_examples:,} examples word for word"
        yield "warning", f"Also in the training data: {found_there}, {leakage.num_near:,} nearly."
    elif leakage is not None:
        yield "good", "No example stands in the training data, word for word or nearly."
    if lengths.num_cut:
        lost = f"{lengths.num_tokens_cut:,} tokens lost"
        yield "warning", f"Cut at the model's limit: {lengths.num_cut:,} of {evidence.num_examples:,} texts, {lost}."
    if errors.num_likely:
        yield "note", f"{errors.num_likely:,} of {errors.num_judged:,} given labels may be wrong: look at them."
    if (seeds := evidence.seeds) is not None:
        spread = seeds.spread[evidence.metric]
        yield "note", f"With other seeds {name} is between {_number(spread.lowest)} and {_number(spread.highest)}."
    if "other_labels" in evidence.missing:
        yield "warning", _capital(evidence.missing["other_labels"]) + "."


def _scores(evidence: Evidence) -> Iterator[Markup]:
    yield _score_table(evidence.scores)


def _labels(evidence: Evidence) -> Iterator[Markup]:
    if 1 < len(evidence.labels) <= _MOST_LABELS_DRAWN:
        scores = [Score(row.label, row.f1, *row.f1_interval) for row in evidence.labels]
        yield interval_chart("F1 of each label", scores, x_name="F1")
    if evidence.labels:
        listed = table(
            ["label", "precision", "recall", "F1", "from", "to", "true", "predicted"],
            [
                (row.label, row.precision, row.recall, row.f1, *row.f1_interval, row.support, row.num_predicted)
                for row in evidence.labels
            ],
        )
        many = len(evidence.labels) > _MOST_LABELS_DRAWN
        yield details(f"The scores of {len(evidence.labels):,} labels", listed) if many else listed
    if (found := evidence.confusions) is not None:
        title = f"Confusions, in {found.of}"
        yield confusion_matrix(title, np.array(found.counts), found.labels, note="Shaded by the share of the row.")
        if found.most_frequent and len(found.labels) > _FEW_LABELS:
            rows = [(one.true, one.predicted, one.count) for one in found.most_frequent]
            yield table(["true", "predicted", found.of], rows, caption="The most frequent")


def _thresholds(evidence: Evidence) -> Iterator[Markup]:
    if evidence.thresholds:
        yield paragraph(
            "The best threshold is the one with the highest F1 on these examples. What it is worth on others, the last "
            "column tells: the F1 of thresholds chosen on one half of them and measured on the other, both ways."
        )
        yield table(
            ["label", "in use", "its F1", "best", "F1 held out"],
            [(one.label, one.in_use, one.f1_in_use, one.best, one.f1_held_out) for one in evidence.thresholds],
        )


def _calibration(evidence: Evidence) -> Iterator[Markup]:
    found = evidence.calibration
    if found is None:
        return
    columns = {part.name: [getattr(one, part.name) for one in found.bins] for part in fields(found.bins[0])}
    yield reliability_diagram(
        "Accuracy over confidence",
        *(np.array(columns[name]) for name in ("confidence", "accuracy", "num_judgments")),
        low=np.array(columns["low"]),
        high=np.array(columns["high"]),
        note=f"Over {found.judgments}.",
    )
    rows: list[Sequence[Any]] = [("as it is", None, found.expected_calibration_error, found.loss)]
    if (scaled := found.scaled) is not None:
        of_halves = " and ".join(map(_number, scaled.of_halves))
        rows.append(("scaled", of_halves, scaled.expected_calibration_error, scaled.loss))
    yield table(["", "temperature", "calibration error", "loss"], rows)
    if scaled is not None:
        yield paragraph(
            "Scaled: the logits of each half of the examples are divided by the temperature with the lowest loss on "
            "the other half, so that none is judged by a temperature that it helped to find. On all of them it is "
            f"{_number(scaled.temperature)}; above 1 the model is too sure."
        )


def _lengths(evidence: Evidence) -> Iterator[Markup]:
    found = evidence.lengths
    limit = "Texts of any length are read whole." if found.max_length is None else (
        f"The model reads {found.max_length:,} tokens at once; on longer texts: {found.on_long}."
    )  # fmt: skip
    yield paragraph(
        f"{found.num_tokens:,} tokens in all, a text has {found.shortest:,} to {found.longest:,}, the median is "
        f"{_number(found.median)}. {limit} Texts cut: {found.num_cut:,}, tokens lost: {found.num_tokens_cut:,}; texts "
        f"read in several windows: {found.num_in_windows:,}."
    )
    scores = [
        Score(f"{one.name} ({one.num_examples:,})", one.score.value, one.score.low, one.score.high)
        for one in found.slices
    ]
    name = _readable(evidence.metric)
    overall = [
        Reference(f"all {_number(evidence.scores[evidence.metric].value)}", evidence.scores[evidence.metric].value)
    ]
    yield interval_chart(
        f"{_capital(name)} by length",
        scores,
        x_name=name,
        references=overall,
        note=f"In brackets the number of {evidence.unit}.",
    )


def _label_errors(evidence: Evidence) -> Iterator[Markup]:
    found = evidence.label_errors
    if found.num_likely is None:
        yield paragraph("Those that lie farthest from what the model predicts.")
    else:
        yield paragraph(
            f"{found.num_likely:,} of {found.num_judged:,} given labels may be wrong by confident learning (Northcutt "
            "et al. 2021): another label reaches the probability that it has on average where it is given. The weaker "
            "the model, the more of these are errors of its own. "
            f"The {len(found.shown):,} that the model contradicts most surely:"
        )
    if not found.shown:
        return
    rows = []
    for one in found.shown:
        texts = [data(one.text), *([element("br"), data(one.pair)] if one.pair else [])]
        cells: list[Any] = [_placed(texts, one.number, one.place), _stacked(one.given, one.likely)]
        if found.num_likely is not None:
            cells.append(_stacked(_number(one.given_probability), _number(one.likely_probability)))
        rows.append([*([one.word] if evidence.num_words is not None else []), *cells])
    columns = ["text", _stacked("given", "likely"), *(["probability"] if found.num_likely is not None else [])]
    yield table([*(["word"] if evidence.num_words is not None else []), *columns], rows)


def _leakage(evidence: Evidence) -> Iterator[Markup]:
    found = evidence.leakage
    if found is None:
        return
    yield paragraph(
        f"Of {evidence.num_examples:,} examples {found.num_exact:,} stand among the {found.num_train:,} of training "
        f"word for word, but for case, white space and punctuation; {found.num_near:,} nearly: the model's own vectors "
        f"have a cosine of at least {_number(found.least_cosine)}, and at least {_number(found.least_shared_words)} of "
        f"the words are in both."
        + (f" {found.num_other_label:,} of them have another label there." if found.shown else "")
    )
    if found.scores_without is not None:
        yield _score_table(evidence.scores, {"without them": found.scores_without})
    elif found.shown:
        yield paragraph("No example is left without them.")
    if found.shown:
        rows = [
            (
                _placed(data(one.text), one.number, one.place),
                _placed(data(one.train_text), one.train_number, one.train_place),
                one.cosine, one.shared_words, "same" if one.same_label else "another",
            )
            for one in found.shown
        ]  # fmt: skip
        columns = ["example", "in training", "cosine", "words shared", "label"]
        listed = table(columns, rows)
        yield details(f"{len(found.shown):,} of them, those first that are not the same word for word", listed)


def _baseline(evidence: Evidence) -> Iterator[Markup]:
    found = evidence.baseline
    if found is None:
        return
    yield paragraph(
        data(_capital(found.method)),
        f", trained on the same {found.num_train:,} examples. Both are judged by the same draws of examples.",
    )
    others = {"baseline": found.scores, "difference": found.difference}
    yield _score_table({name: evidence.scores[name] for name in found.scores}, others)


def _learning_curve(evidence: Evidence) -> Iterator[Markup]:
    curves = [("model", evidence.by_size, _MODEL)]
    if evidence.baseline is not None:
        curves.append(("baseline", evidence.baseline.by_size, _BASELINE))
    lines = [_line(name, points, color) for name, points, color in curves if points]
    if not lines:
        return
    references = []
    if evidence.by_size is None:
        value = evidence.scores[evidence.metric].value
        references = [Reference(f"the model: {_number(value)}", value)]
    name = _readable(evidence.metric)
    yield line_chart(
        f"{_capital(name)} by the number of training examples", lines, x_name="examples", y_name=name, x_kind="log",
        references=references,
    )  # fmt: skip
    rows = [
        (who, point.num_train, point.score.value, point.score.low, point.score.high)
        for who, points, _ in curves
        for point in points or ()
    ]
    yield table(["", "training examples", name, "from", "to"], rows)


def _line(name: str, points: Sequence[SizeScore], color: int) -> Line:
    columns = [(point.num_train, point.score.value, point.score.low, point.score.high) for point in points]
    x, y, low, high = np.array(columns, np.float64).T
    return Line(name, x, y, color, "dots", low, high)


def _seeds(evidence: Evidence) -> Iterator[Markup]:
    found = evidence.seeds
    if found is None:
        return
    rows = [
        (_readable(name), one.mean, one.standard_deviation, one.lowest, one.highest)
        for name, one in found.spread.items()
    ]
    yield table(
        ["score", "mean", "standard deviation", "lowest", "highest"], rows, caption=f"{len(found.names)} models"
    )
    columns = [_readable(name) for name in found.scores]
    of_models = zip(*found.scores.values(), strict=True)
    rows = [(name, *values) for name, values in zip(found.names, of_models, strict=True)]
    yield details("Each model", table(["model", *columns], rows))


def _score_table(scores: Mapping[str, Measured], others: Mapping[str, Mapping[str, Measured]] | None = None) -> Markup:
    """Scores with their intervals, beside others of the same names."""
    columns = {"": scores, **(others or {})}
    heads = [part for name in columns for part in (name or "value", "from, to")]
    rows: list[list[Any]] = []
    for name in scores:
        row: list[Any] = [_readable(name)]
        for column in columns.values():
            measured = column.get(name)
            row += [None, None] if measured is None else [measured.value, _interval(measured)]
        rows.append(row)
    return table(["score", *heads], rows)


def _placed(texts: object, number: int, place: str) -> Markup:
    """An example and below it where it stands: the file's name and the line, else its number."""
    where = place.replace("\\", "/").rpartition("/")[2] or f"number {number:,}"
    return join([texts, element("br"), element("span", data(where), class_="figures")])


def _stacked(first: str, second: str) -> Markup:
    return join([data(first), element("br"), data(second)])


def _readable(name: str) -> str:
    known = {
        "matthews": "Matthews",
        "pearson": "Pearson",
        "spearman": "Spearman",
        "f1": "F1",
        "macro_f1": "macro F1",
        "micro_f1": "micro F1",
    }
    return known.get(name, name.replace("_", " "))


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _number(value: float | None) -> str:
    return "" if value is None else format_number(value, _DIGITS)


def _interval(measured: Measured) -> str:
    return f"{_number(measured.low)} to {_number(measured.high)}"
