"""Baselines without fine-tuning: a constant prediction, and classifiers of words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertkit.errors import DependencyError
from bertkit.evidence.baseline import predict_plainly, tf_idf_vectors
from bertkit.model import Model
from bertkit.tasks import JudgedTask, TextTask
from bertkit.tasks.scoring import Scores
from bertkit.tokenizer import Encodings

FROZEN = "frozen features"
FROZEN_DEFAULT = f"{FROZEN}, default head"  # for runs with another head
TF_IDF, FREQUENT_TAG = "TF-IDF", "most frequent tag of each word"
_MOST_ROWS = 10_000
"""Maximum number of training examples for the word baseline; a random part of more."""


def simple_baselines(model: Model, train: Sequence[Any], dev: Sequence[Any], metric: str) -> dict[str, float]:
    """Score baselines on dev examples, by name: a constant prediction; and, if scikit-learn is installed and the metric
    is not the loss, a linear classifier on TF-IDF for classifiers, or the most frequent tag of each word for taggers.

    A threshold that the task sets on dev examples is set for the constant, too. The correlation with a constant counts
    as 0.

    Args:
        model: a model for the task of the examples.
    """
    task = model.trained.task
    if not isinstance(task, JudgedTask):
        name, predictions = task.constant_predictions(train, dev)
        return {name: _score(task, dev, predictions, metric)}
    encodings, (name, constant) = task.encode(model.tokenizer, dev, model.trained.layout), task.constant_logits(train)
    number = len(encodings.input_ids if task.of_tokens else encodings)
    scores = {name: _score_of_logits(task, dev, encodings, np.tile(constant, (number, 1)), metric)}
    order = np.random.default_rng(0).permutation(len(train))[:_MOST_ROWS]
    try:
        predicted = _by_words(task, [train[index] for index in order.tolist()], dev)
    except DependencyError:
        return scores
    results = Scores(task.scoring)
    results.add(task.truth(dev), predicted, task.example_of(dev))
    if metric in results.results():
        scores[FREQUENT_TAG if task.of_words else TF_IDF] = _or_zero(results.results()[metric])
    return scores


def _by_words(task: JudgedTask, train: Sequence[Any], dev: Sequence[Any]) -> np.ndarray:
    """Predictions in the form of `JudgedTask.truth`; for classes by a support vector machine, which is equally accurate
    and fits twenty times as fast as logistic regression with many labels."""
    targets = task.truth(train)
    if task.of_words or targets.dtype.kind == "f":
        return predict_plainly(task, train, dev)
    vectors, train_vectors = tf_idf_vectors(train, dev)
    if targets.ndim == 2:
        return np.stack([_separated(train_vectors, has, vectors) for has in targets.T], axis=1)
    return _separated(train_vectors, targets, vectors)


def _separated(train_vectors: Any, targets: np.ndarray, vectors: Any) -> np.ndarray:
    from sklearn.svm import LinearSVC

    if (targets == targets[0]).all():
        return np.full(vectors.shape[0], targets[0])
    return LinearSVC(random_state=0).fit(train_vectors, targets).predict(vectors)


def higher_is_better(metric: str) -> bool:
    """Whether higher values of a metric are better, unlike losses and errors."""
    return metric != "loss" and not metric.endswith("_error")


def goodness(metric: str, value: float) -> float:
    """A value of a metric for comparison, so that higher is better: -inf if it is NaN, as for constant predictions."""
    if math.isnan(value):
        return -math.inf
    return value if higher_is_better(metric) else -value


def comparison(metric: str, metrics: Mapping[str, float], baselines: Mapping[str, float]) -> str:
    """One line that compares fine-tuning with the baselines.

    >>> comparison("accuracy", {"accuracy": 0.821}, {"most frequent label": 0.013, "frozen features": 0.863})
    'accuracy on dev 0.821; most frequent label 0.013, frozen features 0.863: the saved model is worse by 0.042'
    """
    if not metrics:
        return "without dev examples the quality of the model is unknown: evaluate it with bertkit evaluate"
    sign = 1 if higher_is_better(metric) else -1
    gain = sign * metrics[metric] - max(sign * value for value in baselines.values())
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
