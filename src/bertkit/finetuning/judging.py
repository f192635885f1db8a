"""Evaluate a trained model on dev examples: thresholds, predictions, metrics, and gain over another model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertkit.batch import LabeledEncodings
from bertkit.checkpoint.own_record import read_record, write_record
from bertkit.checkpoint.trained_task import task_json
from bertkit.evidence import Measured
from bertkit.evidence.scores import measured_scores
from bertkit.finetuning.baselines import FROZEN
from bertkit.finetuning.fitted_head import FittedHead, refit_head
from bertkit.finetuning.network import what_head_reads
from bertkit.inference import InferenceReport
from bertkit.model import Model, load
from bertkit.tasks import TextTask, metric_of
from bertkit.training import without_dropout


@dataclass(frozen=True)
class Judged:
    """Predictions for dev examples, with thresholds set on them."""

    task: TextTask
    predictions: list[Any]
    metrics: dict[str, float]
    report: InferenceReport


def judge(model: Model, dev: Sequence[Any]) -> Judged:
    """Set a model's thresholds and compute its metrics, on dev examples."""
    report, trained = InferenceReport(), model.trained
    predictions = model.predict(dev, report=report)
    task = trained.task.with_calibrated_thresholds(dev, predictions)
    if task != trained.task:
        model.checkpoint.trained = trained = replace(trained, task=task)
        predictions = model.predict(dev, report=InferenceReport())  # with its new thresholds
    scorer = task.scorer()
    scorer.add(dev, predictions)
    metrics = scorer.results()
    model.checkpoint.trained = replace(trained, metrics=metrics)
    return Judged(task, predictions, metrics, report)


def set_thresholds(folder: Path, held_out: Sequence[Any], predictions: Sequence[Any]) -> None:
    """Set the thresholds of a stored model on held-out examples, and of its adapter if it has one.

    Args:
        predictions: for the held-out examples, by a model of the same task that was not trained on them.
    """
    trained = load(folder, device="cpu").trained
    task = trained.task.with_calibrated_thresholds(held_out, predictions)
    if task == trained.task:
        return
    content = task_json(replace(trained, task=task))
    for record_folder in (folder, folder / "adapter"):
        if (record := read_record(record_folder)) is not None:
            write_record(record_folder, record | {"task": content})


def gain_of(judged: Judged, other: Judged, dev: Sequence[Any], metric: str) -> Measured | None:
    """Gain of a model over another on the same examples in one metric, with its 95 % confidence interval; None for a
    task or a metric without intervals, or if it is not a number."""
    measured = measured_scores(judged.task, dev, judged.predictions, other.predictions, other.task).get(metric)
    if measured is None or math.isnan(measured.value):
        return None
    if metric_of(metric).higher_is_better:
        return measured
    return Measured(-measured.value, -measured.high, -measured.low)


def gain_sentence(metric: str, gain: Measured, examples: str) -> str:
    """One line on the gain of fine-tuning over frozen features.

    >>> gain_sentence("accuracy", Measured(0.021, 0.004, 0.039), "500 dev examples")
    'over frozen features, fine-tuning gained 0.021 accuracy (95 % interval 0.004 to 0.039, 500 dev examples)'
    """
    interval = f"95 % interval {gain.low:.3f} to {gain.high:.3f}, {examples}"
    sentence = f"over frozen features, fine-tuning gained {gain.value:.3f} {metric} ({interval})"
    if gain.low > 0:
        return sentence
    if gain.high < 0:
        return f"{sentence}: it is worse, so use frozen features"
    return f"{sentence}, which may be chance: frozen features may serve as well, in less time"


NO_GAIN = f"fine-tuning gained nothing over {FROZEN}: the frozen model is kept"
"""The line instead of `gain_sentence` if the initial weights are the best."""


def shown(metric: str, metrics: Mapping[str, float]) -> str:
    """A metric as it is logged: shares in percent.

    >>> shown("accuracy", {"accuracy": 0.933}), shown("spearman", {"spearman": 0.8164})
    ('93.3 % accuracy', '0.816 spearman')
    """
    value = metrics[metric]
    return f"{100 * value:.1f} % {metric}" if metric_of(metric).is_share else f"{value:.3f} {metric}"


def frozen_line(
    model: Model, fitted: FittedHead, judged: Judged | None, dev_named: str, metric: str, num_train: int
) -> str:
    """The first log line of a run: the quality of frozen features."""
    if judged is not None:
        score = f"{shown(metric, judged.metrics)} on {dev_named}"
    elif fitted.metrics:
        of_all = "" if fitted.num_held_out == num_train else f" of the {num_train:,}"
        held_out = f"{fitted.num_held_out:,}{of_all} training examples"
        score = f"{shown(metric, fitted.metrics)} in cross-validation on {held_out}"
    else:
        score = "quality unknown without dev examples"
    origin = f"C={fitted.inverse_penalty:g}" if fitted.num_examples else "kept"
    return f"{FROZEN}: {score}; head input: {what_head_reads(model)} ({origin})"


def evaluate_in_training(model: Model, data: LabeledEncodings, dev: Sequence[Any]) -> dict[str, float]:
    """The metrics on dev examples during training, without dropout.

    Args:
        data: the training examples, to which a head without gradients is fitted.
    """
    refit_head(model, data)
    with without_dropout(model.network):
        return model.evaluate(dev, report=InferenceReport())
