"""Advice on a run: about its training rows before it, about its results after it."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertkit.advice import few_rows, got_worse, rare_labels, spelled_alike, still_falling
from bertkit.errors import DataError
from bertkit.finetuning.baselines import goodness, kind_of
from bertkit.reports.recorded_run import logged_events
from bertkit.tasks import JudgedTask, TextTask
from bertkit.tasks.same_texts import dev_in_training
from bertkit.tasks.texts import OfTexts
from bertkit.training import Outcome

_REASONS = {
    "words": "word counts predict as well as this model: check the labels, or use that method",
    "constant": "nothing was learned: check the labels and the text columns",
}
"""Advice for a model that is no better than a baseline, by the kind of the baseline."""


def check_dev(task: TextTask, dev: Sequence[Any], named: str) -> None:
    """Check that dev examples can distinguish models.

    Args:
        named: number and name of the examples.

    Raises:
        DataError: all dev examples have the same class.
    """
    if isinstance(task, JudgedTask) and not task.of_words and task.label_names:
        targets = task.truth(dev)
        if targets.ndim == 1 and targets.dtype.kind == "i" and (targets == targets[0]).all():
            raise DataError(
                f"all {named} have the label {task.label_names[targets[0]]!r}: they cannot select the "
                "weights; expected examples of several labels, such as a random part of all rows"
            )


def check_metric(metric: str, value: float, examples: str) -> None:
    """Check that a metric can select weights.

    Args:
        examples: number and name of the examples that it was computed on.

    Raises:
        DataError: it is NaN.
    """
    if math.isnan(value):
        raise DataError(
            f"{metric} of the {examples} is not a number, so it cannot select the weights: "
            "use several dev examples with different labels, or another metric as best_by"
        )


def _counts(task: TextTask, train: Sequence[Any]) -> Counter[str]:
    """Rows of each label of a classifier."""
    if not isinstance(task, OfTexts) or task.known_labels is None:
        return Counter()
    return Counter(name for one in train for name in (one.label if isinstance(one.label, tuple) else (one.label,)))


def on_rows(task: TextTask, train: Sequence[Any], dev: Sequence[Any]) -> Iterator[str]:
    """Advice on training and dev rows."""
    for finding in (few_rows(len(train)) if task.head else None, rare_labels(_counts(task, train))):
        if finding is not None:
            yield finding.line
    if sentence := spelled_alike(task.known_labels or ()):
        yield sentence
    if dev and (sentence := dev_in_training(train, dev)):
        yield sentence


def advice_on(outcome: Outcome, best_by: str, run: Path, *, has_gained: bool) -> Iterator[str]:
    """Advice on a finished run.

    Args:
        run: the folder of its events.
        has_gained: False if fine-tuning is no better than frozen features; then longer training is not advised.
    """
    if outcome.baselines:
        yield from not_above_baselines(best_by, outcome.metrics[best_by], outcome.baselines)
    events = logged_events(run)
    losses = [event["loss"] for event in events if event["event"] == "step"]
    saved = [event["loss"] for event in events if event["event"] == "checkpoint" and "loss" in event]
    sentence = got_worse(losses, saved[-1]) if outcome.best_step is None and losses and saved else None
    if sentence is None and outcome.reason == "finished" and has_gained:
        sentence = still_falling(losses)
    if sentence is not None:
        yield sentence


def not_above_baselines(metric: str, value: float, baselines: Mapping[str, float]) -> Iterator[str]:
    """Advice if the fine-tuned model does not beat baselines without a language model."""
    for name, other in baselines.items():
        reason = _REASONS.get(kind_of(name))
        if reason is not None and goodness(metric, value) <= goodness(metric, other):
            yield f"{metric} on dev, {value:.3f}, is not better than {name}, {other:.3f}: {reason}"
