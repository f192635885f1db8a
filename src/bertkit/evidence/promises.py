"""Calibration of a model on labeled rows: a temperature, and a threshold with a promised error or recall."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.checkpoint.own_record import change_section
from bertkit.checkpoint.trained_task import task_json
from bertkit.errors import DataError, UsageError
from bertkit.evidence.calibration import fitted_temperature
from bertkit.evidence.conformal import error_threshold, recall_threshold, rows_needed
from bertkit.extraction import Extractor, SchemaExtractor
from bertkit.extraction.opening import SECTION
from bertkit.inference import InferenceReport
from bertkit.model import Model
from bertkit.tasks import SequenceClassification
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.tags import entities_in
from bertkit.tasks.texts import mean_over_windows

LOWEST_SCORE = 0.001
"""Scores up to this are not looked at: such entities count as missed."""


@dataclass(frozen=True)
class ErrorPromise:
    """Settings of a classifier, and what they do to the rows that the threshold was chosen on."""

    error: float  # promised: the largest share of all texts that get a wrong label
    temperature: float
    threshold: float
    num_rows: int
    share_answered: float
    share_wrong: float  # of all rows


@dataclass(frozen=True)
class RecallPromise:
    """The threshold of an extraction model, and what it does to the rows that it was chosen on."""

    recall: float  # promised: the smallest share of entities that are found
    threshold: float
    labels: tuple[str, ...]
    num_rows: int
    num_entities: int
    share_found: float


def promise_error(model: Model, examples: Sequence[Any], error: float) -> ErrorPromise:
    """Fit the temperature on a random half of the rows, and the threshold on the other; the model uses both from now
    on.

    Args:
        examples: labeled rows that the model was not trained on, as in `Model.evaluate`.
        error: above 0 and below 1.

    Raises:
        DataError: too few rows, a single label, or a label that the model lacks.
        UsageError: a model without one label for each text, or an error out of range.
    """
    task = model.trained.task
    if not isinstance(task, SequenceClassification):
        raise UsageError(f"the model was trained for {task.name}: expected {SequenceClassification.name}")
    _check_share(error, "error")
    rows, report = [task.labeled_example(example) for example in examples], InferenceReport()
    targets = task.targets(rows)
    if len(rows) < 2 * rows_needed(error):
        raise DataError(
            f"{len(rows)} rows: an error of {error:g} needs at least {2 * rows_needed(error)}, half of them for the "
            "temperature; give more rows, or promise less"
        )
    if len(np.unique(targets)) < 2:
        raise DataError(f"every row has the label {task.label_names[targets[0]]!r}: expected at least two labels")
    model.change_task(temperature=1.0, threshold=0.0)
    parts = model.predict_stream(rows, report=report, decode=_logits)
    logits = np.array([row for _, part in parts for row in part], np.float64)  # (N, C)
    order = np.random.default_rng(0).permutation(len(rows))
    first, second = order[: len(rows) // 2], order[len(rows) // 2 :]
    temperature = fitted_temperature(logits[first], targets[first])
    model.change_task(temperature=temperature)
    predictions = model.predict([rows[index] for index in second], report=report)
    confidence = np.array([max(each.probabilities.values()) for each in predictions])
    is_wrong = task.predicted(predictions) != targets[second]
    threshold = error_threshold(confidence, is_wrong, error)
    model.change_task(threshold=threshold)
    answered = confidence > threshold
    return ErrorPromise(
        error, temperature, threshold, len(rows), float(answered.mean()), float((answered & is_wrong).mean())
    )


def promise_recall(
    extractor: Extractor | SchemaExtractor, examples: Sequence[TaggedText], recall: float
) -> RecallPromise:
    """Choose the threshold of an extraction model, which uses it from now on; for the labels of the rows.

    Args:
        examples: texts with BIO tags.
        recall: above 0 and below 1.

    Raises:
        DataError: no entities, too few, or a recall that no threshold reaches.
        UsageError: a recall out of range.
    """
    _check_share(recall, "recall")
    entities = [_spans(example) for example in examples]
    labels = tuple(sorted({label for spans in entities for *_, label in spans}))
    if not labels:
        raise DataError(f"{len(examples)} rows have no entity: expected texts with labeled entities")
    results = extractor.extract([example.text for example in examples], labels, threshold=LOWEST_SCORE)
    scores, row_of = list[float](), list[int]()
    for row, (spans, found) in enumerate(zip(entities, results, strict=True)):
        score_of = {(each.start, each.end, each.label): each.score for each in found}
        scores += [score_of.get(span, -1.0) for span in spans]
        row_of += [row] * len(spans)
    values = np.array(scores)
    threshold = max(LOWEST_SCORE, recall_threshold(values, np.array(row_of), len(examples), recall))
    extractor.threshold = threshold
    found_share = float((values > threshold).mean())
    return RecallPromise(recall, threshold, labels, len(examples), len(values), found_share)


def store_error(folder: Path, model: Model) -> None:
    """Write the task of a model, with temperature and threshold, into its folder."""
    change_section(folder, "task", task_json(model.trained))


def store_recall(folder: Path, promise: RecallPromise) -> None:
    """Write the threshold of an extraction model into its folder."""
    content = {"threshold": promise.threshold, "recall": promise.recall, "labels": promise.labels}
    change_section(folder, SECTION, content | {"num_entities": promise.num_entities})


def _logits(examples: Sequence[Any], encodings: Any, logits: np.ndarray) -> list[np.ndarray]:
    return list(mean_over_windows(encodings, logits))


def _spans(example: TaggedText) -> list[tuple[int, int, str]]:
    words = example.words or ()
    spans = entities_in(example.tags or (), "BIO")
    return [(words[first][0], words[end - 1][1], label) for first, end, label in spans]


def _check_share(value: float, name: str) -> None:
    if not 0 < value < 1:
        raise UsageError(f"{name}={value}: expected a share above 0 and below 1, such as 0.05 or 0.95")
