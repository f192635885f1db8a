"""Effect of the random seed, by models of the same task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import UsageError
from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.evidence.outcomes import Outcomes, judged_task, outcomes_of
from bertkit.model import Model, load


@dataclass(frozen=True)
class Spread:
    """A score over models with different seeds."""

    mean: float
    standard_deviation: float  # over the models, with n - 1
    lowest: float
    highest: float


@dataclass(frozen=True)
class Seeds:
    """The scores of several models of a task on the same examples."""

    names: list[str]
    scores: dict[str, list[float]]  # of each model
    spread: dict[str, Spread]


def seeds_of(
    model: Model,
    scores: Mapping[str, Measured],
    outcomes: Outcomes,
    others: Sequence[str | Path | Model],
    progress: bool | None,
) -> Seeds:
    """Compare the judged model with others of the same task.

    Args:
        model: the judged model; others are loaded with its device and precision.
        scores: scores of the judged model, which comes first.

    Raises:
        UsageError: a model of another task or with other labels.
    """
    names, of_models = ["this model"], [{name: score.value for name, score in scores.items()}]
    for name, results in _judged(model, outcomes, others, progress):
        names.append(name)
        of_models.append({metric: score.value for metric, score in results.items()})
    by_metric = {metric: [results[metric] for results in of_models] for metric in of_models[0]}
    return Seeds(names, by_metric, {metric: _spread(values) for metric, values in by_metric.items()})


def _judged(
    like: Model, outcomes: Outcomes, models: Sequence[Any], progress: bool | None
) -> Iterator[tuple[str, dict[str, Measured]]]:
    """Name and scores of each model, loaded one at a time."""
    device = str(next(like.network.parameters()).device)
    for number, given in enumerate(models, start=2):
        model = given if isinstance(given, Model) else load(given, precision=like.precision, device=device)
        name = f"model {number}" if isinstance(given, Model) else str(given)
        task = judged_task(model.trained.task)
        if type(task) is not type(outcomes.task) or task.known_labels != outcomes.task.known_labels:
            raise UsageError(
                f"{name} is a model for {task.name} with the labels {task.known_labels}, this one for "
                f"{outcomes.task.name} with {outcomes.task.known_labels}: pass models of one task"
            )
        yield name, bootstrap_scores(task.scoring, outcomes_of(model, outcomes.examples, progress=progress).rows)


def _spread(values: Sequence[float]) -> Spread:
    return Spread(float(np.mean(values)), float(np.std(values, ddof=1)), min(values), max(values))
