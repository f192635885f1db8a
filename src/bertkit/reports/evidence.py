"""Evaluation report: a page, the same figures as JSON, and sections for a model card."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.advice import Finding, good, note, warning
from bertkit.evidence import Evidence, Measured
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
    headline,
    interval_chart,
    join,
    line_chart,
    paragraph,
    reliability_diagram,
    table,
)
from bertkit.reports.parts import Interval, Label, Metric, Only, Table, number, readable
from bertkit.reports.report_file import sections, write_report

_BASELINE = 2  # color
_MOST_LABELS_DRAWN = 40
_FEW_LABELS = 4  # below which a list of confusions is unnecessary
_INTERVAL = "95 % interval"


def write_evidence_report(evidence: Evidence, path: str | Path, *, title: str = "Evidence") -> None:
    """Write a page, and the same figures as JSON to a file of the same name with the ending .json.

    Args:
        path: path of the page, ending in .html.
        title: title of the page, such as the model's name.

    Raises:
        UsageError: another ending, no such folder, or a folder of that name.
    """
    write_report(path, title, {"title": title, **evidence.as_json()}, _page(evidence))


def _page(evidence: Evidence) -> Iterator[Markup]:
    yield paragraph(element("span", _subtitle(evidence), class_="note"))
    yield headline(list(_headline(evidence)))
    yield findings([(kind, data(sentence)) for kind, sentence in findings_of(evidence)])
    yield from sections(evidence_sections(evidence))


def evidence_sections(evidence: Evidence) -> Iterator[tuple[str, list[Any]]]:
    """Titles and parts (`reports.parts`) of the available evidence."""
    for title, parts in (
        ("Scores", [Only("page", score_table(evidence.scores))]),
        ("Labels", _labels(evidence)),
        ("Confusions", _confusions(evidence)),
        ("Thresholds", _thresholds(evidence)),
        ("Calibration", _calibration(evidence)),
        ("Length", _lengths(evidence)),
        ("Likely label errors", _label_errors(evidence)),
        ("Leakage from training", _leakage(evidence)),
        ("Baseline", _baseline(evidence)),
        ("Learning curve", _learning_curve(evidence)),
        ("Seeds", _seeds(evidence)),
        ("Not included", _missing(evidence)),
    ):
        yield title, list(parts)


def _subtitle(evidence: Evidence) -> Markup:
    words = "" if evidence.num_words is None else f", {evidence.num_words:,} words"
    unread = f", {evidence.num_unread_words:,} of them not processed" if evidence.num_unread_words else ""
    return join([
        data(f"{evidence.task} · {evidence.num_examples:,} {evidence.unit}{words}{unread} · "),
        f"95 % confidence intervals, by {evidence.num_resamples:,} bootstrap samples of the {evidence.unit}.",
    ])  # fmt: skip


def _headline(evidence: Evidence) -> Iterator[tuple[str, object, object]]:
    names = [evidence.metric, *(name for name in evidence.scores if name not in (evidence.metric, "loss"))]
    for name in names[: 3 if evidence.baseline is None else 2]:
        yield _capital(readable(name)), number(evidence.scores[name].value), _interval(evidence.scores[name])
    if evidence.baseline is not None:
        gain = evidence.baseline.difference[evidence.metric]
        yield "Above the baseline", number(gain.value), f"{readable(evidence.metric)}, {_interval(gain)}"
    if evidence.calibration is not None:
        error = evidence.calibration.expected_calibration_error
        yield "Calibration error", number(error), "mean difference of accuracy and confidence"


def findings_of(evidence: Evidence) -> Iterator[Finding]:
    """The main results."""
    baseline, leakage, errors = evidence.baseline, evidence.leakage, evidence.label_errors
    name, lengths = readable(evidence.metric), evidence.lengths
    if baseline is not None:
        gain = baseline.difference[evidence.metric]
        if gain.low > 0:
            yield good(f"The model is better than the baseline ({baseline.method}).")
        elif gain.high < 0:
            yield warning(f"The model is worse than the baseline ({baseline.method}).")
        else:
            yield warning(f"The model is not shown to be better than the baseline ({baseline.method}).")
    if leakage is not None and (leakage.num_exact or leakage.num_near):
        exact = f"{leakage.num_exact:,} of {evidence.num_examples:,} examples word for word"
        yield warning(f"Also in the training data: {exact}, {leakage.num_near:,} nearly.")
    elif leakage is not None:
        yield good("No example is in the training data, word for word or nearly.")
    if lengths.num_cut:
        lost = f"{lengths.num_tokens_cut:,} tokens lost"
        yield warning(f"Cut at the model's limit: {lengths.num_cut:,} of {evidence.num_examples:,} texts, {lost}.")
    if lengths.num_unknown:
        shown = f"{lengths.num_unknown:,} of {lengths.num_tokens:,} tokens"
        empty = f"; {lengths.num_empty:,} texts have no known token" if lengths.num_empty else ""
        yield warning(f"Unknown to the model ([UNK]): {shown}{empty}.")
    if errors.num_likely:
        yield note(f"{errors.num_likely:,} of {errors.num_judged:,} given labels may be wrong: check them.")
    if (seeds := evidence.seeds) is not None:
        spread = seeds.spread[evidence.metric]
        yield note(f"With other seeds {name} is between {number(spread.lowest)} and {number(spread.highest)}.")
    if "other_labels" in evidence.missing:
        yield warning(_capital(evidence.missing["other_labels"]) + ".")


def score_table(scores: Mapping[str, Measured], columns: Sequence[str] = ("score", "value", _INTERVAL)) -> Table:
    return Table(columns, [(Metric(name), *_measured(one)) for name, one in scores.items()])


def _labels(evidence: Evidence) -> Iterator[Any]:
    if not evidence.labels:
        return
    if 1 < len(evidence.labels) <= _MOST_LABELS_DRAWN:
        scores = [Score(row.label, row.f1, *row.f1_interval) for row in evidence.labels]
        yield interval_chart("F1 of each label", scores, x_name="F1")
    rows = [
        (Label(one.label), one.precision, one.recall, one.f1, Interval(*one.f1_interval), one.support,
         one.num_predicted)
        for one in evidence.labels
    ]  # fmt: skip
    columns = ("label", "precision", "recall", "F1", _INTERVAL, "true", "predicted")
    yield Table(columns, rows, weights=[one.support for one in evidence.labels])


def _confusions(evidence: Evidence) -> Iterator[Any]:
    confusions = evidence.confusions
    if confusions is None:
        return
    counts, title = np.array(confusions.counts), f"Confusions, in {confusions.of}"
    yield confusion_matrix(title, counts, confusions.labels, note="Shaded by the share of the row.")
    if not confusions.most_frequent:
        yield Only("card", "No label was confused with another.")
        return
    rows = [(Label(one.true), Label(one.predicted), one.count) for one in confusions.most_frequent]
    listed = Table(("true", "predicted", confusions.of), rows, "The most frequent")
    yield listed if len(confusions.labels) > _FEW_LABELS else Only("card", listed)


def _thresholds(evidence: Evidence) -> Iterator[Any]:
    if not evidence.thresholds:
        return
    yield (
        "The best threshold is the one with the highest F1 on these examples. The last column estimates its F1 on "
        "other examples: thresholds are chosen on one half and evaluated on the other, both ways."
    )
    support = {one.label: one.support for one in evidence.labels}
    rows = [(Label(one.label), one.in_use, one.f1_in_use, one.best, one.f1_held_out) for one in evidence.thresholds]
    weights = [support.get(one.label, 0) for one in evidence.thresholds]
    yield Table(("label", "in use", "its F1", "best", "F1 held out"), rows, weights=weights)


def _calibration(evidence: Evidence) -> Iterator[Any]:
    calibration = evidence.calibration
    if calibration is None:
        return
    columns = {one.name: np.array([getattr(row, one.name) for row in calibration.bins])
               for one in fields(calibration.bins[0])}  # fmt: skip
    yield reliability_diagram(
        "Accuracy over confidence",
        *(columns[name] for name in ("confidence", "accuracy", "num_judgments")),
        low=columns["low"],
        high=columns["high"],
        note=f"Over {calibration.judgments}.",
    )
    rows: list[Sequence[Any]] = [("unscaled", None, calibration.expected_calibration_error, calibration.loss)]
    if (scaled := calibration.scaled) is not None:
        rows.append(("scaled", scaled.temperature, scaled.expected_calibration_error, scaled.loss))
    yield Table(("", "temperature", "expected calibration error", "loss"), rows)
    yield Only("card", f"Over {calibration.judgments}.")
    if scaled is not None:
        yield (
            "Scaled: the logits of each half of the examples are divided by the temperature with the lowest loss on "
            f"the other half ({' and '.join(map(number, scaled.of_halves))}). The temperature in the table is that of "
            "all examples; above 1 the model is too confident."
        )


def _lengths(evidence: Evidence) -> Iterator[Any]:
    lengths, name = evidence.lengths, readable(evidence.metric)
    limit = "Texts of any length are processed whole." if lengths.max_length is None else (
        f"The model processes {lengths.max_length:,} tokens at once; on longer texts: {lengths.on_long}."
    )  # fmt: skip
    yield (
        f"{lengths.num_tokens:,} tokens in all, {lengths.shortest:,} to {lengths.longest:,} in a text, median "
        f"{number(lengths.median)}. {limit} Texts cut: {lengths.num_cut:,}, tokens lost: {lengths.num_tokens_cut:,}; "
        f"texts in several windows: {lengths.num_in_windows:,}; unknown tokens ([UNK]): {lengths.num_unknown:,}, texts "
        f"without a known token: {lengths.num_empty:,}."
    )
    rows = [(one.name, one.num_examples, *_measured(one.score)) for one in lengths.slices]
    yield Only("card", Table(("", evidence.unit, evidence.metric, _INTERVAL), rows))
    overall = evidence.scores[evidence.metric].value
    yield interval_chart(
        f"{_capital(name)} by length",
        [
            Score(f"{one.name} ({one.num_examples:,})", one.score.value, one.score.low, one.score.high)
            for one in lengths.slices
        ],
        x_name=name,
        references=[Reference(f"all {number(overall)}", overall)],
        note=f"In brackets the number of {evidence.unit}.",
    )


def _label_errors(evidence: Evidence) -> Iterator[Markup]:
    errors, is_tagger = evidence.label_errors, evidence.num_words is not None
    if errors.num_likely is None:
        yield paragraph("The examples farthest from what the model predicts.")
    else:
        yield paragraph(
            f"{errors.num_likely:,} of {errors.num_judged:,} given labels may be wrong by confident learning "
            "(Northcutt et al. 2021): another label reaches its mean probability in examples with that label. The "
            "weaker the model, the more of these are its own errors. "
            f"The {len(errors.shown):,} that the model contradicts with the highest confidence:"
        )
    if not errors.shown:
        return
    rows = []
    for one in errors.shown:
        texts = [data(one.text), *([element("br"), data(one.pair)] if one.pair else [])]
        cells: list[Any] = [_located(texts, one.number, one.location), _stacked(one.given, one.likely)]
        if errors.num_likely is not None:
            cells.append(_stacked(number(one.given_probability), number(one.likely_probability)))
        rows.append([*([one.word] if is_tagger else []), *cells])
    columns = ["text", _stacked("given", "likely"), *(["probability"] if errors.num_likely is not None else [])]
    yield table([*(["word"] if is_tagger else []), *columns], rows)


def _leakage(evidence: Evidence) -> Iterator[Any]:
    leakage = evidence.leakage
    if leakage is None:
        return
    yield Table(
        ("", ""),
        [
            ("training examples", leakage.num_train),
            ("in them word for word", leakage.num_exact),
            ("nearly", leakage.num_near),
            ("with another label there", leakage.num_other_label),
        ],
    )
    yield (
        "Word for word: except for case, white space and punctuation. Nearly: the model's own vectors have a cosine of "
        f"at least {number(leakage.least_cosine)}, and at least {number(leakage.least_shared_words)} of the words are "
        "in both."
    )
    if leakage.scores_without is not None:
        yield score_table(leakage.scores_without, ("score without them", "value", _INTERVAL))
    elif leakage.shown:
        yield "No example is left without them."
    if leakage.shown:
        rows = [
            (
                _located(data(one.text), one.number, one.location),
                _located(data(one.train_text), one.train_number, one.train_place),
                one.cosine, one.shared_words, "same" if one.same_label else "another",
            )
            for one in leakage.shown
        ]  # fmt: skip
        listed = table(["example", "in training", "cosine", "words shared", "label"], rows)
        yield details(f"{len(leakage.shown):,} of them, near ones first", listed)


def _baseline(evidence: Evidence) -> Iterator[Any]:
    baseline = evidence.baseline
    if baseline is None:
        return
    yield (
        f"{_capital(baseline.method)}, trained on the same {baseline.num_train:,} examples. Both are evaluated on the "
        "same bootstrap samples."
    )
    rows = [
        (Metric(name), *_measured(one), *_measured(baseline.difference[name])) for name, one in baseline.scores.items()
    ]
    yield Table(("score", "baseline", _INTERVAL, "model minus baseline", _INTERVAL), rows)


def _learning_curve(evidence: Evidence) -> Iterator[Any]:
    if evidence.baseline is None:
        return
    points, name = evidence.baseline.by_size, readable(evidence.metric)
    columns = [(point.num_train, point.score.value, point.score.low, point.score.high) for point in points]
    x, y, low, high = np.array(columns, np.float64).T
    value = evidence.scores[evidence.metric].value
    yield line_chart(
        f"{_capital(name)} by the number of training examples", [Line("baseline", x, y, _BASELINE, "dots", low, high)],
        x_name="examples", y_name=name, x_kind="log", references=[Reference(f"the model: {number(value)}", value)],
    )  # fmt: skip
    rows = [("baseline", point.num_train, *_measured(point.score)) for point in points]
    yield Table(("", "training examples", name, _INTERVAL), rows)


def _seeds(evidence: Evidence) -> Iterator[Any]:
    seeds = evidence.seeds
    if seeds is None:
        return
    rows = [
        (Metric(name), one.mean, one.standard_deviation, one.lowest, one.highest) for name, one in seeds.spread.items()
    ]
    caption = f"{len(seeds.names)} models"
    yield Only("card", f"{caption}.")
    yield Table(("score", "mean", "standard deviation", "lowest", "highest"), rows, caption)
    of_models = zip(*seeds.scores.values(), strict=True)
    rows = [(name, *values) for name, values in zip(seeds.names, of_models, strict=True)]
    yield details("Each model", table(["model", *map(readable, seeds.scores)], rows))


def _missing(evidence: Evidence) -> Iterator[Any]:
    if evidence.missing:
        yield Table(("part", "why"), [(name.replace("_", " "), why) for name, why in evidence.missing.items()])


def _located(texts: object, index: int, location: str) -> Markup:
    """An example and below it its location: the file's name and the line, or else its number."""
    where = location.replace("\\", "/").rpartition("/")[2] or f"number {index:,}"
    return join([texts, element("br"), element("span", data(where), class_="figures")])


def _stacked(first: str, second: str) -> Markup:
    return join([data(first), element("br"), data(second)])


def _measured(measured: Measured) -> tuple[float, Interval]:
    return measured.value, Interval(measured.low, measured.high)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _interval(measured: Measured) -> str:
    return f"{number(measured.low)} to {number(measured.high)}"
