"""Advice on a run: about its training rows before it, about its results after it."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import DataError
from bertkit.evidence.leakage import normalized_sides, normalized_words
from bertkit.finetuning.baselines import FREQUENT_TAG, FROZEN, TF_IDF, goodness
from bertkit.reports.recorded_run import logged_lines
from bertkit.tasks import JudgedTask, TextTask
from bertkit.tasks.texts import OfTexts
from bertkit.tasks.twins import spelled_alike
from bertkit.training import Outcome

FEWEST_OF_A_LABEL = 5
FEWEST_WITH_GAIN = 100
"""Training rows: the smallest number in benchmarks/default_settings.py, at which four of five data sets gain."""

_MOST_NAMED = 8
_STILL_FALLING = 0.05  # relative decrease of the loss
_MUCH_WORSE = 2.0  # increase of the loss
_FEWEST_LOSSES = 6  # minimum number of logged losses to judge the trend by


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


def rare_labels(task: TextTask, train: Sequence[Any]) -> str | None:
    """A sentence on classes with fewer than five rows, if there are any."""
    if not isinstance(task, OfTexts) or task.known_labels is None:
        return None
    counts = Counter(name for one in train for name in (one.label if isinstance(one.label, tuple) else (one.label,)))
    rare = sorted((number, name) for name, number in counts.items() if number < FEWEST_OF_A_LABEL)
    if not rare:
        return None
    shown = ", ".join(f"{name} {number}" for number, name in rare[:_MOST_NAMED]) + (
        ", ..." if rare[_MOST_NAMED:] else ""
    )
    return (
        f"{len(rare)} of {len(counts)} labels have fewer than {FEWEST_OF_A_LABEL} rows ({shown}): predictions of these "
        "are unreliable; add rows, or merge labels"
    )


def dev_in_training(train: Sequence[Any], dev: Sequence[Any]) -> str | None:
    """A sentence on dev texts that are in training rows, up to case, white space and punctuation, if there are any."""
    counts = Counter(map(normalized_sides, dev))
    firsts = {sides[0] for sides in counts}  # compared first: other texts, such as contexts, can be long
    candidates = (example for example in train if tuple(normalized_words(example.texts[0])) in firsts)
    known = {sides for sides in map(normalized_sides, candidates) if sides in counts}
    if not (number := sum(counts[sides] for sides in known)):
        return None
    return (
        f"{number:,} of {len(dev):,} dev examples have the text of a training row, so scores on dev are too high: use "
        "other rows"
    )


def on_rows(task: TextTask, train: Sequence[Any], dev: Sequence[Any]) -> Iterator[str]:
    """Advice on training and dev rows."""
    if len(train) < FEWEST_WITH_GAIN:
        yield (
            f"{len(train)} rows: {FEWEST_WITH_GAIN} is the smallest number for which fine-tuning was measured to gain "
            "over frozen features (docs/guides/finetuning.md)"
        )
    if sentence := rare_labels(task, train):
        yield sentence
    if sentence := spelled_alike(task.known_labels or ()):
        yield sentence
    if dev and (sentence := dev_in_training(train, dev)):
        yield sentence


def still_falling(losses: Sequence[float]) -> str | None:
    """Advice if the training loss was still falling at the end of a finished run.

    >>> still_falling([3.0, 2.0, 1.6, 1.3, 1.1, 0.9, 0.7, 0.5, 0.3])
    'the training loss was still falling at the end (1.100 to 0.500): more epochs or a higher learning rate may help'
    """
    if len(losses) < _FEWEST_LOSSES:
        return None
    third = len(losses) // 3
    before, last = (float(np.mean(part)) for part in (losses[-2 * third : -third], losses[-third:]))
    if last > (1 - _STILL_FALLING) * before or f"{last:.3f}" == f"{before:.3f}":
        return None
    return (
        f"the training loss was still falling at the end ({before:.3f} to {last:.3f}): more epochs or a higher "
        "learning rate may help"
    )


def got_worse(losses: Sequence[float], saved: float) -> str | None:
    """Advice if the last weights, which nothing was compared with, have a far higher training loss than the first.

    Args:
        losses: logged in training, at least one.
        saved: loss of the last batch by the last weights; it can be a single row, so the lowest of three decides.

    >>> got_worse([0.693], 25.8)
    'the training loss rose from 0.693 to 25.8: the model got worse, so train again with a lower learning rate'
    >>> got_worse([0.35, 0.31, 2.9], 3.0) is None
    True
    """
    first, last = losses[0], min([*losses[1:], saved][-3:])
    if last <= _MUCH_WORSE * first:
        return None
    return (
        f"the training loss rose from {first:.4g} to {last:.4g}: the model got worse, so train again with a lower "
        "learning rate"
    )


def advice_on(outcome: Outcome, best_by: str, log: Path, *, has_gained: bool) -> Iterator[str]:
    """Advice on a finished run.

    Args:
        log: the file of its events.
        has_gained: False if fine-tuning is no better than frozen features; then longer training is not advised.
    """
    if outcome.baselines:
        yield from not_above_baselines(best_by, outcome.metrics[best_by], outcome.baselines)
    events = [event for _, event in logged_lines(log, [])]
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
        if not name.startswith(FROZEN) and goodness(metric, value) <= goodness(metric, other):
            reason = (
                "word counts predict as well as this model: check the labels, or use that method"
                if name.startswith((TF_IDF, FREQUENT_TAG))
                else "nothing was learned: check the labels and the text columns"
            )
            yield f"{metric} on dev, {value:.3f}, is not better than {name}, {other:.3f}: {reason}"
