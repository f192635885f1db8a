"""Scores of predictions with confidence intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertkit.evidence.intervals import Measured, bootstrap_difference, bootstrap_interval, bootstrap_scores
from bertkit.evidence.pair_scores import measured_pairs
from bertkit.tasks import JudgedTask, TextTask
from bertkit.tasks.text_sets import OfTextSets


def measured_scores(task: TextTask, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Measured]:
    """Scores by name, as in `Model.evaluate`; empty if the task is neither classification nor tagging, nor about texts
    that belong together.

    Args:
        examples: labeled examples, at least one.
        predictions: their predictions, from `Model.predict`.

    Raises:
        DataError: a label that is missing or unknown to the task.
    """
    if isinstance(task, OfTextSets):
        scorer = task.scorer()
        scorer.add(examples, predictions)
        if values := scorer.values():
            return {
                name: Measured(float(np.mean(some)), *bootstrap_interval(some)) for name, some in values.items() if some
            }
        if len({row.score for row in examples}) == 1:
            return {}
        return measured_pairs(examples, np.array([task.score_of(one) for one in predictions], np.float64))
    if not isinstance(task, JudgedTask):
        return {}
    truth, predicted = task.truth(examples), task.predicted(predictions)
    rows = task.scoring.rows(truth, predicted, task.example_of(examples), len(examples))
    return bootstrap_scores(task.scoring, rows)


def measured_difference(
    task: JudgedTask, examples: Sequence[Any], predictions: Sequence[Any], others: Sequence[Any]
) -> dict[str, Measured]:
    """Scores of predictions minus those of others for the same examples, by name; see `measured_scores`."""
    truth, example_of = task.truth(examples), task.example_of(examples)
    rows, other_rows = (
        task.scoring.rows(truth, task.predicted(one), example_of, len(examples)) for one in (predictions, others)
    )
    return bootstrap_difference(task.scoring, rows, other_rows)
