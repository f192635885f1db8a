"""All evidence on a classifier or a tagger, from one run over labeled examples."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import DependencyError
from bertkit.evidence.baseline import Baseline, SizeScore, baseline_of
from bertkit.evidence.calibration import FEWEST_EXAMPLES, Calibration, calibration_of
from bertkit.evidence.intervals import (
    NUM_SCORE_RESAMPLES,
    Interval,
    Measured,
    bootstrap_f1,
    bootstrap_interval,
    bootstrap_scores,
)
from bertkit.evidence.label_errors import LabelErrors, label_errors_of
from bertkit.evidence.leakage import Leakage, leakage_of
from bertkit.evidence.lengths import Lengths, lengths_of
from bertkit.evidence.outcomes import Outcomes, judged_task, outcomes_of
from bertkit.evidence.thresholds import Threshold, thresholds_of
from bertkit.evidence.trained_again import Seeds, seeds_of, sizes_of
from bertkit.files.json_files import json_value
from bertkit.model import Model
from bertkit.tasks.metrics import label_scores
from bertkit.tasks.scoring import Scoring

_NUM_CONFUSIONS = 15


@dataclass(frozen=True)
class LabelRow:
    """The scores of one label, or of one type of entity."""

    label: str
    precision: float
    recall: float
    f1: float
    f1_interval: Interval
    support: int  # how often it is the true one
    num_predicted: int


@dataclass(frozen=True)
class Confusion:
    """How often a label was taken for another."""

    true: str
    predicted: str
    count: int


@dataclass(frozen=True)
class Confusions:
    """Which labels are taken for which."""

    of: str  # "examples", "words"
    labels: tuple[str, ...]
    counts: list[list[int]]  # row: true, column: predicted
    most_frequent: list[Confusion]


@dataclass(frozen=True)
class Evidence:
    """What is known of a classifier or a tagger by its labeled examples. All intervals hold 95 %.

    ``missing`` says of each part that is not there why it is not.
    """

    task: str
    metric: str  # the score that decides, as in training
    unit: str  # what is drawn again for intervals: "examples", "texts"
    num_examples: int
    num_words: int | None  # of a tagger
    num_unread_words: int | None  # cut off, or without a token: the tagger says nothing of them
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
    by_size: list[SizeScore] | None  # of models trained on fewer examples, and of this one
    seeds: Seeds | None
    missing: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON values: what is not a finite number is null."""
        return json_value(asdict(self))


def gather_evidence(
    model: Model,
    examples: Sequence[Any],
    train: Sequence[Any] | None = None,
    *,
    seeds: Sequence[str | Path | Model] = (),
    smaller: Mapping[int, str | Path | Model] | None = None,
    progress: bool | None = None,
) -> Evidence:
    """Judge a classifier or a tagger by labeled examples that it was not trained on.

    Args:
        examples: with labels, as `Model.evaluate` takes them.
        train: the same of what the model was trained on: for leakage, the baseline and its learning curve.
        seeds: models of the same task that were trained with other seeds.
        smaller: models of the same task that were trained on fewer examples, by how many: the learning curve.
        progress: show a bar after two seconds; None: where a person is watching.

    Raises:
        DataError: no examples; a label that is missing, or not one of the model's.
        MissingHeadError: no task, or a head that was never trained.
        UsageError: a task that is neither a classifier's nor a tagger's, or models of different tasks.
    """
    read = judged_task(model.trained.task).labeled_example
    examples, train = [read(one) for one in examples], None if train is None else [read(one) for one in train]
    outcomes = outcomes_of(model, examples, progress=progress)
    task, scoring = outcomes.task, outcomes.task.scoring
    missing: dict[str, str] = {}
    metric: str = task.best_by
    scores = bootstrap_scores(scoring, outcomes.rows)
    layout, words = model.trained.layout, outcomes.was_read
    if not train:
        why = "needs the examples that the model was trained on" + ("" if train is None else ": none were given")
        missing |= {"leakage": why, "baseline": why}
    evidence = Evidence(
        task=task.name,
        metric=metric,
        unit="examples" if words is None else "texts",
        num_examples=len(examples),
        num_words=None if words is None else len(words),
        num_unread_words=None if words is None else int((~words).sum()),
        num_resamples=NUM_SCORE_RESAMPLES,
        scores=scores | _loss(outcomes),
        labels=_labels(scoring, outcomes.rows),
        confusions=_confusions(outcomes),
        thresholds=thresholds_of(outcomes),
        calibration=calibration_of(outcomes),
        lengths=lengths_of(outcomes, metric, layout.max_length, layout.on_long),
        label_errors=label_errors_of(outcomes),
        leakage=leakage_of(model, outcomes, train, progress=progress) if train else None,
        baseline=_baseline(outcomes, train, metric, missing) if train else None,
        by_size=_by_size(model, metric, outcomes, scores, smaller or {}, len(train or ()), progress),
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


def _loss(outcomes: Outcomes) -> dict[str, Measured]:
    """Mean negative log-likelihood of labels; none of words and numbers."""
    if outcomes.probabilities is None or outcomes.losses is None:
        return {}
    return {"loss": Measured(float(outcomes.losses.mean()), *bootstrap_interval(outcomes.losses))}


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
    """Of one label for each example or word; of levels the nearest ones."""
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


def _by_size(
    model: Model,
    metric: str,
    outcomes: Outcomes,
    scores: Mapping[str, Measured],
    smaller: Mapping[int, str | Path | Model],
    num_train: int,
    progress: bool | None,
) -> list[SizeScore] | None:
    if not smaller:
        return None
    curve = sizes_of(model, metric, outcomes, smaller, progress)
    curve += [SizeScore(num_train, scores[metric])] if num_train else []
    return sorted(curve, key=lambda point: point.num_train)  # --train may name fewer examples than a model had


def _say_what_is_missing(evidence: Evidence, outcomes: Outcomes) -> None:
    missing, task = evidence.missing, outcomes.task
    no_probabilities = f"{task.name} gives numbers, not probabilities"
    if not evidence.labels:
        missing["labels"] = "the task has no labels"
    if evidence.confusions is None:
        missing["confusions"] = "an example has several labels" if outcomes.has_several else "the task has no labels"
    if evidence.thresholds is None:
        missing["thresholds"] = "only for several labels, or for one of two: otherwise the likeliest label is given"
    if evidence.calibration is None:
        missing["calibration"] = no_probabilities if outcomes.probabilities is None else "no word was read"
    elif evidence.calibration.scaled is None:
        missing["temperature"] = f"needs {FEWEST_EXAMPLES} examples or more, there are {evidence.num_examples}"
    if evidence.by_size is None:
        missing["by_size"] = "needs models that were trained on fewer examples"
    if evidence.seeds is None:
        missing["seeds"] = "needs models of the same task that were trained with other seeds"
    num_seen = sum(row.support > 0 for row in evidence.labels)
    if num_seen == 1 and not task.scoring.may_have_none:
        missing["other_labels"] = "all examples have the same label: of telling labels apart these scores say nothing"
