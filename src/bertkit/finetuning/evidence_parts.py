"""What an evaluation knows of a classifier or a tagger, in short tables for its model card.

The figures are those of the report and its JSON; charts, texts and single examples stand only there.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bertkit.evidence import Evidence, Measured, findings_of
from bertkit.finetuning.markdown import interval, table

_MOST_LABELS = 20
_DIGITS = 4


def evidence_facts(evidence: Evidence) -> dict[str, Any]:
    """Counts of the examples, by name; None of what the task has not."""
    errors, lengths = evidence.label_errors, evidence.lengths
    judged = "" if errors.num_judged == evidence.num_examples else f" of {errors.num_judged} labels"
    return {
        "words": evidence.num_words,
        "words not read": evidence.num_unread_words,
        "texts cut": lengths.num_cut,
        "tokens cut": lengths.num_tokens_cut,
        "texts read in windows": lengths.num_in_windows or None,
        "likely label errors": None if errors.num_likely is None else f"{errors.num_likely}{judged}",
    }


def evidence_parts(evidence: Evidence) -> Iterator[str]:
    """What the scores say, and a part with a heading for each kind of evidence that is there."""
    if sentences := [sentence for _, sentence in findings_of(evidence)]:
        yield "".join(f"- {sentence}\n" for sentence in sentences)
    for heading, part in (
        ("Labels", _labels(evidence)),
        ("Confusions", _confusions(evidence)),
        ("Thresholds", _thresholds(evidence)),
        ("Calibration", _calibration(evidence)),
        ("Length", _lengths(evidence)),
        ("Leakage from training", _leakage(evidence)),
        ("Baseline", _baseline(evidence)),
        ("Learning curve", _learning_curve(evidence)),
        ("Seeds", _seeds(evidence)),
        ("What is not here", _missing(evidence)),
    ):
        if part:
            yield f"### {heading}\n\n{part}"


def _labels(evidence: Evidence) -> str:
    rows = {
        one.label: (one.precision, one.recall, one.f1, interval(*one.f1_interval), one.support, one.num_predicted)
        for one in evidence.labels
    }
    return _of_labels(("precision", "recall", "F1", "95 % interval", "true", "predicted"), rows, evidence)


def _confusions(evidence: Evidence) -> str:
    """The most frequent."""
    found = evidence.confusions
    if found is None:
        return ""
    rows = [(f"`{one.true}`", f"`{one.predicted}`", one.count) for one in found.most_frequent]
    return table(("true", "predicted", found.of), rows)


def _thresholds(evidence: Evidence) -> str:
    rows = {one.label: (one.in_use, one.f1_in_use, one.best, one.f1_held_out) for one in evidence.thresholds or ()}
    return _of_labels(("in use", "its F1", "best", "F1 held out"), rows, evidence)


def _calibration(evidence: Evidence) -> str:
    found = evidence.calibration
    if found is None:
        return ""
    rows: list[tuple[Any, ...]] = [("as it is", None, found.expected_calibration_error, found.loss)]
    if (scaled := found.scaled) is not None:
        rows.append(("scaled", scaled.temperature, scaled.expected_calibration_error, scaled.loss))
    told = table(("", "temperature", "expected calibration error", "loss"), rows, _DIGITS)
    how = "" if scaled is None else (
        " Scaled: each half of the examples by the temperature that was fitted on the other half; the one told is "
        "that of all of them."
    )  # fmt: skip
    return f"{told}\nOver {found.judgments}.{how}\n"


def _lengths(evidence: Evidence) -> str:
    rows = [(one.name, one.num_examples, *_told(one.score)) for one in evidence.lengths.slices]
    return table(("", evidence.unit, evidence.metric, "95 % interval"), rows, _DIGITS)


def _leakage(evidence: Evidence) -> str:
    found = evidence.leakage
    if found is None:
        return ""
    facts = {
        "training examples": found.num_train,
        "in them word for word": found.num_exact,
        "nearly": found.num_near,
        "with another label there": found.num_other_label,
    }
    rows = [(name, *_told(one)) for name, one in (found.scores_without or {}).items()]
    without = table(("metric without them", "value", "95 % interval"), rows, _DIGITS)
    return table(("", ""), facts.items()) + (f"\n{without}" if without else "")


def _baseline(evidence: Evidence) -> str:
    found = evidence.baseline
    if found is None:
        return ""
    rows = [(name, *_told(one), *_told(found.difference[name])) for name, one in found.scores.items()]
    head = ("metric", "baseline", "95 % interval", "model less baseline", "95 % interval")
    return f"Trained on the same {found.num_train} examples: {found.method}.\n\n" + table(head, rows, _DIGITS)


def _learning_curve(evidence: Evidence) -> str:
    baseline = None if evidence.baseline is None else evidence.baseline.by_size
    rows = [
        (name, point.num_train, *_told(point.score))
        for name, points in (("model", evidence.by_size), ("baseline", baseline))
        for point in points or ()
    ]
    return table(("", "training examples", evidence.metric, "95 % interval"), rows, _DIGITS)


def _seeds(evidence: Evidence) -> str:
    found = evidence.seeds
    if found is None:
        return ""
    rows = [(name, one.mean, one.standard_deviation, one.lowest, one.highest) for name, one in found.spread.items()]
    head = ("metric", "mean", "standard deviation", "lowest", "highest")
    return f"{len(found.names)} models.\n\n" + table(head, rows, _DIGITS)


def _missing(evidence: Evidence) -> str:
    return table(("part", "why"), [(name.replace("_", " "), why) for name, why in evidence.missing.items()])


def _of_labels(head: Sequence[str], rows: Mapping[str, Sequence[Any]], evidence: Evidence) -> str:
    """A row for each of the most frequent labels, and how many more there are."""
    most = {one.label for one in sorted(evidence.labels, key=lambda one: -one.support)[:_MOST_LABELS]}
    shown = [(f"`{label}`", *row) for label, row in rows.items() if label in most]
    more = f"\nThese are the most frequent; there are {len(rows) - len(shown)} more.\n"
    return table(("label", *head), shown, _DIGITS) + (more if len(shown) < len(rows) else "")


def _told(measured: Measured) -> tuple[float, str]:
    """Value and interval."""
    return measured.value, interval(measured.low, measured.high)
