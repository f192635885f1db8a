"""Evaluate a classifier or tagger in detail, in one run over labeled examples."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import DependencyError, UsageError
from bertkit.evidence.baseline import Baseline, baseline_of
from bertkit.evidence.calibration import FEWEST_EXAMPLES, Calibration, calibration_of
from bertkit.evidence.intervals import (
    NUM_SCORE_RESAMPLES,
    Interval,
    Measured,
    bootstrap_f1,
    bootstrap_scores,
    measured_mean,
)
from bertkit.evidence.label_errors import LabelErrors, label_errors_of
from bertkit.evidence.leakage import Leakage, leakage_of
from bertkit.evidence.lengths import Lengths, lengths_of
from bertkit.evidence.outcomes import Outcomes, judged_task, outcomes_of
from bertkit.evidence.thresholds import Threshold, thresholds_of
from bertkit.evidence.trained_again import Seeds, seeds_of
from bertkit.files.json_files import json_value
from bertkit.model import Model, check_model
from bertkit.tasks.metrics import label_scores
from bertkit.tasks.scoring import Scoring

_NUM_CONFUSIONS = 15


@dataclass(frozen=True)
class LabelRow:
    """The scores of one label or entity type."""

    label: str
    precision: float
    recall: float
    f1: float
    f1_interval: Interval
    support: int  # number of examples with this label
    num_predicted: int


@dataclass(frozen=True)
class Confusion:
    """How often a label was predicted instead of another."""

    true: str
    predicted: str
    count: int


@dataclass(frozen=True)
class Confusions:
    """Confusion matrix."""

    of: str  # "examples", "words"
    labels: tuple[str, ...]
    counts: list[list[int]]  # row: true, column: predicted
    most_frequent: list[Confusion]


@dataclass(frozen=True)
class Evidence:
    """Evaluation of a classifier or tagger on labeled examples. All intervals are 95 % confidence intervals.

    ``missing`` holds the reason for each absent part.
    """

    task: str
    metric: str  # the score that selects models, as in training
    unit: str  # the resampled unit for intervals: "examples", "texts"
    num_examples: int
    num_words: int | None  # for taggers
    num_unread_words: int | None  # cut, or without a token, so without a prediction
    num_resamples: int
    scores: dict[str, Measured]
    labels: list[LabelRow]
    confusions: Confusions | None
    thresholds: list[Threshold] | None
    calibration: Calibration | None
    lengths: Lengths
    label_errors: LabelErrors
    leakage: Leakage | None
    baseline: Baseline | None
    seeds: Seeds | None
    missing: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The evidence as JSON values; numbers that are not finite become null."""
        return json_value(asdict(self))


def gather_evidence(
    model: Model,
    examples: Sequence[Any],
    train: Sequence[Any] | None = None,
    *,
    seeds: Sequence[str | Path | Model] = (),
    progress: bool | None = None,
) -> Evidence:
    """Evaluate a classifier or tagger on labeled examples that it was not trained on.

    Args:
        examples: labeled examples, as for `Model.evaluate`.
        train: training data of the model: for leakage, the baseline and its learning curve.
        seeds: models of the same task trained with other seeds.
        progress: show a bar after two seconds; None: on a terminal.

    Raises:
        DataError: no examples; a label that is missing or unknown to the model.
        MissingHeadError: the model has no task, or its head was never trained.
        UsageError: the task is neither classification nor tagging; models of different tasks; or one model as seeds.
    """
    if isinstance(seeds, str | Path | Model):
        raise UsageError(f"seeds={seeds!r:.60}: expected a list of models, even for one")
    check_model(model)
    read = judged_task(model.trained.task).labeled_example
    examples, train = [read(one) for one in examples], None if train is None else [read(one) for one in train]
    outcomes = outcomes_of(model, examples, progress=progress)
    task, scoring = outcomes.task, outcomes.task.scoring
    missing: dict[str, str] = {}
    metric: str = task.best_by
    scores = bootstrap_scores(scoring, outcomes.rows)
    layout, words = model.trained.layout, outcomes.was_read
    losses, has_loss = outcomes.losses, outcomes.probabilities is not None  # not of words and numbers
    if not train:
        why = "needs the examples that the model was trained on" + ("" if train is None else ": none given")
        missing |= {"leakage": why, "baseline": why}
    evidence = Evidence(
        task=task.name,
        metric=metric,
        unit="examples" if words is None else "texts",
        num_examples=len(examples),
        num_words=None if words is None else len(words),
        num_unread_words=None if words is None else int((~words).sum()),
        num_resamples=NUM_SCORE_RESAMPLES,
        scores=scores | ({"loss": measured_mean(losses)} if has_loss and losses is not None else {}),
        labels=_labels(scoring, outcomes.rows),
        confusions=_confusions(outcomes),
        thresholds=thresholds_of(outcomes),
        calibration=calibration_of(outcomes),
        lengths=lengths_of(outcomes, metric, layout.max_length, layout.on_long),
        label_errors=label_errors_of(outcomes),
        leakage=leakage_of(model, outcomes, train, progress=progress) if train else None,
        baseline=_baseline(outcomes, train, metric, missing) if train else None,
        seeds=seeds_of(model, scores, outcomes, seeds, progress) if seeds else None,
        missing=missing,
    )
    _say_what_is_missing(evidence, outcomes)
    return evidence


def _baseline(outcomes: Outcomes, train: Any, metric: str, missing: dict[str, str]) -> Baseline | None:
    try:
        return baseline_of(outcomes, train, metric)
    except DependencyError as error:
        missing["baseline"] = str(error)
        return None


def _labels(scoring: Scoring, rows: np.ndarray) -> list[LabelRow]:
    if not scoring.labels:
        return []
    counts = scoring.counts(rows, np.ones((1, len(rows))))[:, 0].astype(np.int64)
    results = label_scores(scoring.labels, *counts)
    intervals = bootstrap_f1(scoring, rows).T.tolist()
    return [
        LabelRow(one.label, one.precision, one.recall, one.f1, (low, high), one.support, number)
        for one, (low, high), number in zip(results, intervals, counts[2].tolist(), strict=True)
    ]


def _confusions(outcomes: Outcomes) -> Confusions | None:
    """Confusions for tasks with one label per example or word; for levels, of the nearest level."""
    labels, targets, predicted = outcomes.names, outcomes.targets, outcomes.predicted
    if labels is None or outcomes.has_several:
        return None
    if outcomes.has_numbers:
        targets, predicted = outcomes.levels(targets), outcomes.levels(predicted)
    counts = np.bincount(targets * len(labels) + predicted, minlength=len(labels) ** 2).reshape(len(labels), -1)
    wrong = counts * ~np.eye(len(labels), dtype=np.bool_)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_NUM_CONFUSIONS]
    most = [
        Confusion(labels[true], labels[said], int(wrong[true, said]))
        for true, said in zip(*(index.tolist() for index in np.unravel_index(order, wrong.shape)), strict=True)
        if wrong[true, said]
    ]
    return Confusions("examples" if outcomes.was_read is None else "words", labels, counts.tolist(), most)


def _say_what_is_missing(evidence: Evidence, outcomes: Outcomes) -> None:
    missing, task = evidence.missing, outcomes.task
    no_probabilities = f"{task.name} predicts numbers, not probabilities"
    if not evidence.labels:
        missing["labels"] = "the task has no labels"
    if evidence.confusions is None:
        missing["confusions"] = "an example has several labels" if outcomes.has_several else "the task has no labels"
    if evidence.thresholds is None:
        missing["thresholds"] = "only for multi-label tasks and two classes: otherwise the likeliest label is predicted"
    if evidence.calibration is None:
        missing["calibration"] = no_probabilities if outcomes.probabilities is None else "no word was encoded"
    elif evidence.calibration.scaled is None:
        missing["temperature"] = f"needs at least {FEWEST_EXAMPLES} examples, there are {evidence.num_examples}"
    if evidence.seeds is None:
        missing["seeds"] = "needs models of the same task that were trained with other seeds"
    num_seen = sum(row.support > 0 for row in evidence.labels)
    if num_seen == 1 and not task.scoring.may_have_none:
        missing["other_labels"] = (
            "all examples have the same label, so these scores do not show whether the model distinguishes labels"
        )
