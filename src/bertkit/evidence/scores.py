"""Scores of predictions with confidence intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertkit.evidence.intervals import Measured, bootstrap_difference, bootstrap_scores, measured_mean
from bertkit.evidence.pair_scores import measured_pairs
from bertkit.tasks import JudgedTask, TextTask
from bertkit.tasks.scorer import RowScorer
from bertkit.tasks.text_sets import OfTextSets


def measured_scores(
    task: TextTask, examples: Sequence[Any], predictions: Sequence[Any],
    other_predictions: Sequence[Any] | None = None, other_task: TextTask | None = None,
) -> dict[str, Measured]:  # fmt: skip
    """Scores by name, as in `Model.evaluate`; empty if the task's scores have no intervals.

    Args:
        examples: labeled examples, at least one.
        predictions: their predictions, from `Model.predict`.
        other_predictions: those of another model, whose scores are subtracted; None: nothing is.
        other_task: the task of the other model, if its thresholds differ.

    Raises:
        DataError: a label that is missing or unknown to the task.
    """
    if isinstance(task, JudgedTask):
        rows = _rows(task, examples, predictions)
        if other_predictions is None:
            return bootstrap_scores(task.scoring, rows)
        return bootstrap_difference(task.scoring, rows, _rows(task, examples, other_predictions))
    if values := _values(task, examples, predictions):
        if other_predictions is not None:
            other_values = _values(other_task or task, examples, other_predictions)
            values = {name: row - other_values[name] for name, row in values.items()}
        return {name: measured_mean(row) for name, row in values.items()}
    if not isinstance(task, OfTextSets) or len({row.score for row in examples}) == 1:
        return {}
    other_scores = None if other_predictions is None else _scores_of(task, other_predictions)
    return measured_pairs(examples, _scores_of(task, predictions), other_scores)


def _rows(task: JudgedTask, examples: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    truth, predicted = task.truth(examples), task.predicted(predictions)
    return task.scoring.rows(truth, predicted, task.example_of(examples), len(examples))


def _values(task: TextTask, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, np.ndarray]:
    """The values of examples of the metrics that are means over them."""
    scorer = task.scorer()
    if not isinstance(scorer, RowScorer):
        return {}
    scorer.add(examples, predictions)
    return {name: np.array(values) for name, values in scorer.values().items() if values}


def _scores_of(task: OfTextSets, predictions: Sequence[Any]) -> np.ndarray:
    """Predicted scores of scored pairs."""
    return np.array([task.score_of(prediction) for prediction in predictions], np.float64)
