"""Calibration of a model on labeled rows: a temperature, and a threshold with a promised error, recall or precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.checkpoint.own_record import change_section
from bertkit.checkpoint.trained_task import task_json
from bertkit.errors import DataError, UsageError
from bertkit.evidence.calibration import FEWEST_EXAMPLES, fitted_temperature, judgments_of
from bertkit.evidence.conformal import Answers, answers_needed, answers_threshold, recall_threshold
from bertkit.evidence.intervals import wilson_interval
from bertkit.evidence.outcomes import outcomes_of
from bertkit.extraction.opening import SECTION
from bertkit.model import Model, check_model
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.tags import Scheme, entities_in

SHARES = {"error": 0.05, "recall": 0.95, "precision": 0.9}
"""Promises by kind, with the share that is promised unless another is given."""

LOWEST_SCORE = 0.001
"""Scores of extraction models up to this are not looked at: such entities count as missed."""

Span = tuple[int, int, str]
"""First character, end (exclusive) and label."""


@dataclass(frozen=True)
class ErrorPromise:
    """Settings of a classifier, and what they do to the rows that the threshold was chosen on."""

    error: float  # promised: the share of the texts with an answer that get a wrong label, at most, on average
    temperature: float
    threshold: float
    num_rows: int
    share_answered: float
    share_wrong: float  # of the answered ones
    low: float  # Wilson's 95 % interval of this share
    high: float


@dataclass(frozen=True)
class EntityPromise:
    """The threshold of a tagger or extraction model, and what it does to the rows that it was chosen on."""

    kind: str  # recall: the smallest share of entities that are found; precision: of those found that are right
    share: float  # promised
    temperature: float  # 1 for an extraction model
    threshold: float
    labels: tuple[str, ...]
    num_rows: int
    num_entities: int
    recall: float
    precision: float


def promises_of(model: Model) -> tuple[str, ...]:
    """What a threshold of a model can promise: some of the keys of SHARES."""
    check_model(model)
    return ("recall", "precision") if model.is_extractor else model.trained.task.promises


def promise(model: Model, examples: Sequence[Any], kind: str, share: float) -> ErrorPromise | EntityPromise:
    """`promise_error` or `promise_entities`."""
    if kind == "error":
        return promise_error(model, examples, share)
    return promise_entities(model, examples, kind, share)


def promise_error(model: Model, examples: Sequence[Any], error: float) -> ErrorPromise:
    """Fit the temperature on a random quarter of the rows, and choose the threshold on the others; the model uses both
    from now on.

    Args:
        examples: labeled rows that the model was not trained on, as in `Model.evaluate`.
        error: above 0 and below 1.

    Raises:
        DataError: too few rows, a single label, a label that the model lacks, or an error that no threshold keeps.
        UsageError: a model without one label for each text, or an error out of range.
    """
    _check(model, "error", error)
    task: Any = model.trained.task
    rows = [task.labeled_example(example) for example in examples]
    targets = task.targets(rows)
    first, second = _parts(len(rows))
    if len(second) < answers_needed(error):
        raise DataError(
            f"{len(rows)} rows, a quarter of them for the temperature: an error of {error:g} needs at least "
            f"{answers_needed(error)} others; give more rows, or promise less"
        )
    if len(np.unique(targets)) < 2:
        raise DataError(f"every row has the label {task.label_names[targets[0]]!r}: expected at least two labels")
    temperature = _fit_temperature(model, [rows[index] for index in first])
    predictions = model.predict(rows)
    confidence = np.array([max(each.probabilities.values()) for each in predictions])
    answers = Answers(confidence, task.predicted(predictions) != targets, np.arange(len(rows)))
    threshold = _threshold(answers.of_rows(second), error, "a smaller share of wrong labels")
    model.change_task(threshold=threshold)
    answered = confidence[second] > threshold
    wrong = answers.is_wrong[second][answered]
    interval = wilson_interval(int(wrong.sum()), len(wrong))
    return ErrorPromise(
        error, temperature, threshold, len(rows), float(answered.mean()), float(wrong.mean()), *interval
    )  # fmt: skip


def promise_entities(model: Model, examples: Sequence[Any], kind: str, share: float) -> EntityPromise:
    """Choose the threshold of a tagger or of an extraction model, for the labels of the rows; it is used from now on.

    The temperature of a tagger is fitted on a random quarter of the rows.

    Args:
        examples: labeled rows that the model was not trained on; for an extraction model texts with BIO tags.
        kind: "recall" or "precision".
        share: above 0 and below 1.

    Raises:
        DataError: no entities, too few, or a share that no threshold reaches.
        UsageError: a model that finds no entities, or a share out of range.
    """
    _check(model, kind, share)
    scheme: Scheme = "BIO"
    if not model.is_extractor:
        task: Any = model.trained.task
        examples, scheme = [task.labeled_example(example) for example in examples], task.scheme
    entities = [_spans(example, scheme) for example in examples]
    labels = tuple(sorted({label for spans in entities for *_, label in spans}))
    if not labels:
        raise DataError(f"{len(examples)} rows have no entity: expected texts with labeled entities")
    temperature, used = 1.0, np.arange(len(examples))
    if not model.is_extractor:
        first, used = _parts(len(examples))
        temperature = _fit_temperature(model, [examples[index] for index in first])
    found = _found(model, examples, labels)
    (scores, row_of), answers = _scores_of(entities, found), _answers(entities, found)
    if kind == "recall":
        chosen = np.isin(row_of, used)
        threshold = recall_threshold(scores[chosen], np.searchsorted(used, row_of[chosen]), len(used), share)
    else:
        threshold = _threshold(answers.of_rows(used), 1 - share, "a larger share of right entities")
    if model.is_extractor:
        threshold = max(LOWEST_SCORE, threshold)
    model.change_task(threshold=threshold)
    known, given = scores[np.isin(row_of, used)], answers.of_rows(used)
    right = ~given.is_wrong[given.confidence > threshold]
    return EntityPromise(
        kind, share, temperature, threshold, labels, len(examples), len(scores),
        float((known > threshold).mean()), float(right.mean()) if len(right) else 1.0,
    )  # fmt: skip


def store_promise(folder: Path, model: Model, promise: ErrorPromise | EntityPromise) -> None:
    """Write temperature and threshold of a model into its folder."""
    if not model.is_extractor:
        change_section(folder, "task", task_json(model.trained))
    elif isinstance(promise, EntityPromise):
        content = {"threshold": promise.threshold, promise.kind: promise.share, "labels": promise.labels}
        change_section(folder, SECTION, content | {"num_entities": promise.num_entities})


def _check(model: Model, kind: str, share: float) -> None:
    if not 0 < share < 1:
        raise UsageError(f"{kind}={share}: expected a share above 0 and below 1, such as 0.05 or 0.95")
    if kind not in promises_of(model):
        able = " or ".join(promises_of(model)) or "nothing"
        name = "extraction" if model.is_extractor else model.trained.task.name
        raise UsageError(f"the model was trained for {name}, which can promise {able}, and no {kind}")


def _parts(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted indices of a random quarter, and of the others."""
    order = np.random.default_rng(0).permutation(number)
    return np.sort(order[: number // 4]), np.sort(order[number // 4 :])


def _fit_temperature(model: Model, examples: Sequence[Any]) -> float:
    """Set the temperature of a model to the one fitted on these examples, and its threshold to 0.

    It stays 1 for few examples, and if all predictions are right: then the lowest temperature, with the probabilities 0
    and 1, would have the lowest loss.
    """
    model.change_task(temperature=1.0, threshold=0.0)
    judgments = judgments_of(outcomes_of(model, examples, progress=False))
    assert judgments is not None, "tasks with a promise have probabilities"
    is_known = len(examples) >= FEWEST_EXAMPLES and not judgments.right.all()
    temperature = fitted_temperature(judgments.logits, judgments.targets) if is_known else 1.0
    model.change_task(temperature=temperature)
    return temperature


def _threshold(answers: Answers, risk: float, wanted: str) -> float:
    threshold = answers_threshold(answers, risk)
    if threshold is None:
        raise DataError(
            f"no threshold keeps the share of wrong answers up to {risk:g}: of {len(answers.is_wrong)} answers, "
            f"{answers.is_wrong.mean() if len(answers.is_wrong) else 0:.1%} are wrong; give more rows, train the "
            f"model, or do not ask for {wanted}"
        )
    return threshold


def _found(model: Model, examples: Sequence[Any], labels: Sequence[str]) -> list[dict[Span, float]]:
    """The entities that each text is said to have, with their scores."""
    if model.is_extractor:
        results = model.extract([example.text for example in examples], labels, threshold=LOWEST_SCORE)
        return [{(e.start, e.end, e.label): e.score for e in some} for some in results]
    predictions = [each.entities for each in model.predict(examples)]
    return [{(e.start, e.end, e.label): e.probability for e in some} for some in predictions]


def _scores_of(entities: list[list[Span]], found: list[dict[Span, float]]) -> tuple[np.ndarray, np.ndarray]:
    """(M,) scores of the labeled entities, -1 for those not found, and (M,) their rows."""
    scores = [score_of.get(span, -1.0) for spans, score_of in zip(entities, found, strict=True) for span in spans]
    return np.array(scores), np.repeat(np.arange(len(entities)), [len(spans) for spans in entities])


def _answers(entities: list[list[Span]], found: list[dict[Span, float]]) -> Answers:
    wrong = [span not in spans for spans, score_of in zip(entities, found, strict=True) for span in score_of]
    scores = [score for score_of in found for score in score_of.values()]
    return Answers(np.array(scores), np.array(wrong, np.bool_), np.repeat(np.arange(len(found)), list(map(len, found))))


def _spans(example: TaggedText, scheme: Scheme) -> list[Span]:
    words = example.words or ()
    spans = entities_in(example.tags or (), scheme)
    return [(words[first][0], words[end - 1][1], label) for first, end, label in spans]
