"""Baselines without fine-tuning: a constant prediction, and classifiers of words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bertkit.errors import DependencyError
from bertkit.evidence.baseline import predict_baseline
from bertkit.model import Model
from bertkit.tasks import JudgedTask, TextTask, metric_of
from bertkit.tasks.encoded_rows import EncodedRows
from bertkit.tasks.scoring import Scores
from bertkit.tokenizer import Encodings

FROZEN = "frozen features"
FROZEN_DEFAULT = f"{FROZEN}, default head"  # for runs with another head
TF_IDF, FREQUENT_TAG = "TF-IDF", "most frequent tag of each word"
_KINDS: Mapping[str, Literal["frozen", "words"]] = {FROZEN: "frozen", TF_IDF: "words", FREQUENT_TAG: "words"}
_MOST_ROWS = 10_000
"""Maximum number of training examples for the word baseline; its name says if it is a random part of more."""


def simple_baselines(model: Model, train: Sequence[Any], dev: Sequence[Any], metric: str) -> dict[str, float]:
    """Score baselines on dev examples, by name: a constant prediction; and, if scikit-learn is installed and the metric
    is not the loss, the baseline of `bertkit.evidence`: TF-IDF, or the most frequent tag of each word for taggers.

    A threshold that the task sets on dev examples is set for the constant, too. The correlation with a constant counts
    as 0.

    Args:
        model: a model for the task of the examples.
    """
    task = model.trained.task
    if not isinstance(task, JudgedTask):
        name, predictions = task.constant_predictions(train, dev)
        return {name: _score(task, dev, predictions, metric)}
    encodings = EncodedRows.of(dev).encoded(task, model.tokenizer, model.trained.layout)
    name, constant = task.constant_logits(train)
    number = len(encodings.input_ids if task.of_tokens else encodings)
    scores = {name: _score_of_logits(task, dev, encodings, np.tile(constant, (number, 1)), metric)}
    method = FREQUENT_TAG if task.of_words else TF_IDF
    if len(train) > _MOST_ROWS:
        order = np.random.default_rng(0).permutation(len(train))[:_MOST_ROWS]
        train, method = [train[index] for index in order.tolist()], f"{method}, {_MOST_ROWS:,} rows"
    try:
        predicted = predict_baseline(task, train, dev)
    except DependencyError:
        return scores
    results = Scores(task.scoring)
    results.add(task.truth(dev), predicted, task.example_of(dev))
    if metric in results.results():
        scores[method] = _or_zero(results.results()[metric])
    return scores


def kind_of(name: str) -> Literal["frozen", "words", "constant"]:
    """What a baseline predicts from: features of the encoder, words, or nothing. Details follow a comma in its name."""
    return _KINDS.get(name.partition(", ")[0], "constant")


def goodness(metric: str, value: float) -> float:
    """A value of a metric for comparison, so that higher is better: -inf if it is NaN, as for constant predictions."""
    if math.isnan(value):
        return -math.inf
    return value if metric_of(metric).higher_is_better else -value


def comparison(metric: str, metrics: Mapping[str, float], baselines: Mapping[str, float]) -> str:
    """One line that compares fine-tuning with the baselines.

    >>> comparison("accuracy", {"accuracy": 0.821}, {"most frequent label": 0.013, "frozen features": 0.863})
    'accuracy on dev 0.821; most frequent label 0.013, frozen features 0.863: the saved model is worse by 0.042'
    """
    if not metrics:
        return "without dev examples the quality of the model is unknown: evaluate it with bertkit evaluate"
    gain = goodness(metric, metrics[metric]) - max(goodness(metric, value) for value in baselines.values())
    others = ", ".join(f"{name} {value:.3f}" for name, value in baselines.items())
    verdict = f"{'better' if gain > 0 else 'worse'} by {abs(gain):.3f}" if gain else "no better"
    return f"{metric} on dev {metrics[metric]:.3f}; {others}: the saved model is {verdict}"


def _score_of_logits(
    task: TextTask, dev: Sequence[Any], encodings: Encodings, logits: np.ndarray, metric: str
) -> float:
    tuned = task.with_calibrated_thresholds(dev, task.decode(dev, encodings, logits))
    return _score(tuned, dev, tuned.decode(dev, encodings, logits), metric)


def _score(task: TextTask, dev: Sequence[Any], predictions: Sequence[Any], metric: str) -> float:
    scorer = task.scorer()
    scorer.add(dev, predictions)
    return _or_zero(scorer.results()[metric])


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
