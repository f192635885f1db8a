"""The scores of a model with their intervals, and nothing else."""

from collections.abc import Sequence
from typing import Any

from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.evidence.outcomes import JudgedTask, outcomes_of
from bertkit.evidence.scoring import scoring_of
from bertkit.model import Model


def measured_scores(model: Model, examples: Sequence[Any]) -> dict[str, Measured]:
    """Scores by name, as `Model.evaluate` names them; none of a task that is neither a classifier's nor a tagger's.

    Raises:
        DataError: no examples; a label that is missing, or not one of the model's.
    """
    if not isinstance(model.trained.task, JudgedTask):
        return {}
    outcomes = outcomes_of(model, examples)
    scoring = scoring_of(outcomes.task)
    rows = scoring.rows(outcomes.targets, outcomes.predicted, outcomes.example_of, len(examples))
    return bootstrap_scores(scoring, rows)
