"""Scores of predictions with confidence intervals."""

from collections.abc import Sequence
from typing import Any

from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.tasks import JudgedTask, TextTask


def measured_scores(task: TextTask, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Measured]:
    """Scores by name, as in `Model.evaluate`; empty if the task is neither classification nor tagging.

    Args:
        examples: labeled examples, at least one.
        predictions: their predictions, from `Model.predict`.

    Raises:
        DataError: a label that is missing or unknown to the task.
    """
    if not isinstance(task, JudgedTask):
        return {}
    truth, predicted = task.truth(examples), task.predicted(predictions)
    rows = task.scoring.rows(truth, predicted, task.example_of(examples), len(examples))
    return bootstrap_scores(task.scoring, rows)
