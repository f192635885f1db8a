"""The scores of predictions with their intervals, and nothing else."""

from collections.abc import Sequence
from typing import Any

from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.tasks import JudgedTask, TextTask


def measured_scores(task: TextTask, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Measured]:
    """Scores by name, as `Model.evaluate` names them; none of a task that is neither a classifier's nor a tagger's.

    Args:
        examples: with labels, at least one.
        predictions: of them, as `Model.predict` gives them.

    Raises:
        DataError: a label that is missing, or not one of the task's.
    """
    if not isinstance(task, JudgedTask):
        return {}
    truth, predicted = task.truth(examples), task.predicted(predictions)
    rows = task.scoring.rows(truth, predicted, task.example_of(examples), len(examples))
    return bootstrap_scores(task.scoring, rows)
