"""How good predictions are, batch by batch: what adds up is kept as sums, the rest as pairs, as each class says.

Each has ``add`` for a batch, and ``results``, which gives them by name. They equal scikit-learn's and scipy's, by
convention too where there is nothing to divide by: an F1 or a Matthews coefficient is 0 there, a correlation with a
constant not a number.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bertkit.errors import UsageError
from bertkit.tasks.tags import Tags

_CONSTANT = 1e-28
"""Of squares: a spread that rounding makes of numbers that are all the same."""


class LabelScore(NamedTuple):
    """The scores of one label, or of one type of entity."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int  # how often it is the true one


class ClassificationScores:
    """One label of C for each example; kept is their confusion matrix, 8 C^2 bytes."""

    def __init__(self, num_labels: int) -> None:
        self.counts = np.zeros((num_labels, num_labels), np.int64)  # (C, C): true label, predicted label

    def add(self, labels: ArrayLike, predictions: ArrayLike) -> None:
        """(n,) true and predicted labels, 0 to C - 1.

        Raises:
            UsageError: numbers that differ, or a label that is none.
        """
        labels, predictions = _alike(labels, predictions, np.int64)
        num_labels = len(self.counts)
        for named, values in (("a label", labels), ("a prediction", predictions)):
            if len(values) and not 0 <= values.min() <= values.max() < num_labels:
                wrong = values[(values < 0) | (values >= num_labels)][0]
                raise UsageError(f"{named} is {wrong}: expected 0 to {num_labels - 1}, for {num_labels} labels")
        self.counts += np.bincount(labels * num_labels + predictions, minlength=num_labels**2).reshape(num_labels, -1)

    def results(self) -> dict[str, float]:
        """``accuracy``, which is the micro F1 too; ``macro_f1``, the mean over the labels that occur; ``matthews``;
        of two labels also ``f1``, that of the second."""
        return _as_floats(class_results(self.counts.diagonal(), self.counts.sum(axis=1), self.counts.sum(axis=0)))


class MultiLabelScores:
    """Any number of C labels for each example; kept are counts, 24 C bytes."""

    def __init__(self, num_labels: int) -> None:
        self.correct = np.zeros(num_labels, np.int64)
        self.true = np.zeros(num_labels, np.int64)
        self.predicted = np.zeros(num_labels, np.int64)
        self.num_examples = 0
        self.num_exact = 0

    def add(self, labels: ArrayLike, predictions: ArrayLike) -> None:
        """(n, C) which labels are true and which are predicted, 0 or 1.

        Raises:
            UsageError: numbers that differ.
        """
        labels, predictions = _alike(labels, predictions, np.bool_)
        if labels.shape[1:] != self.true.shape:
            raise UsageError(
                f"labels have shape {labels.shape}: expected (number of examples, {len(self.true)} labels)"
            )
        self.correct += (labels & predictions).sum(axis=0)
        self.true += labels.sum(axis=0)
        self.predicted += predictions.sum(axis=0)
        self.num_examples += len(labels)
        self.num_exact += int((labels == predictions).all(axis=1).sum())

    def results(self) -> dict[str, float]:
        """``accuracy``, the share of examples whose labels are all right; ``micro_f1``, over all decisions;
        ``macro_f1``, the mean over all labels."""
        accuracy = ratio(self.num_exact, self.num_examples)
        return _as_floats({"accuracy": accuracy, **several_results(self.correct, self.true, self.predicted)})


class RegressionScores:
    """A number for each example; kept are all pairs, 16 bytes each, as ranks need them."""

    def __init__(self) -> None:
        self._pairs: list[np.ndarray] = [np.zeros((0, 2))]  # each (n, 2)

    def add(self, targets: ArrayLike, predictions: ArrayLike) -> None:
        """(n,) true and predicted numbers.

        Raises:
            UsageError: numbers that differ, or that are not finite.
        """
        pairs = np.stack(_alike(targets, predictions, np.float64), axis=-1)
        if not np.isfinite(pairs).all():
            raise UsageError(f"example {int((~np.isfinite(pairs)).any(axis=1).argmax())} of a batch is not finite")
        self._pairs.append(pairs)

    def results(self) -> dict[str, float]:
        """``pearson``, ``spearman``, ``mean_squared_error``, ``mean_absolute_error``."""
        pairs = np.concatenate(self._pairs)
        results = number_results(*pairs.T, np.ones((1, len(pairs))))
        return {name: float(value[0]) for name, value in results.items()}


class EntityScores:
    """Entities spelled by the tags of words: right if first word, last word and type are; kept are counts, 24 bytes a
    type, and the confusion matrix of the tags."""

    def __init__(self, tags: Tags) -> None:
        self.tags = tags
        self.words = ClassificationScores(len(tags.names))
        self.counts = np.zeros((3, len(tags.types)), np.int64)  # correct, true, predicted

    def add(self, labels: ArrayLike, predictions: ArrayLike, cu_words: ArrayLike) -> None:
        """(W,) true and predicted tags, as numbers, of N texts end to end; (N + 1,) first word of each text, and W."""
        self.words.add(labels, predictions)
        true, predicted = (self.tags.entities(tags, cu_words) for tags in (labels, predictions))
        both, times = np.unique(np.concatenate([true, predicted]), axis=0, return_counts=True)
        for place, found in enumerate((both[times == 2], true, predicted)):
            self.counts[place] += np.bincount(found[:, 2], minlength=len(self.tags.types))

    def results(self) -> dict[str, float]:
        """``f1``, ``precision`` and ``recall`` over all entities; ``macro_f1``, the mean over the types that occur;
        ``accuracy``, of the tags."""
        return _as_floats(entity_results(*self.counts)) | {"accuracy": self.words.results()["accuracy"]}


def class_results(correct: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """(...) what `ClassificationScores.results` tells, from (..., C) counts for each label: how often it was rightly
    predicted, was true, was predicted."""
    f1 = ratio(2 * correct, true + predicted)
    results = {
        "accuracy": ratio(correct.sum(-1), true.sum(-1)),
        "macro_f1": _mean_where(f1, true + predicted > 0),
        "matthews": _matthews(correct, true, predicted),
    }
    if correct.shape[-1] == 2:
        results["f1"] = f1[..., 1]
    return results


def several_results(correct: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """(...) ``micro_f1`` and ``macro_f1`` of `MultiLabelScores`, from counts as of `class_results`."""
    return {
        "micro_f1": ratio(2 * correct.sum(-1), true.sum(-1) + predicted.sum(-1)),
        "macro_f1": ratio(2 * correct, true + predicted).mean(-1),
    }


def number_results(targets: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """(R,) what `RegressionScores.results` gives, of (G,) pairs that count by (R, G) weights."""
    apart, number = predicted - targets, weights.sum(axis=1)
    return {
        "pearson": _correlation(weights, targets[None], predicted[None]),
        "spearman": _correlation(weights, _ranks(targets, weights), _ranks(predicted, weights)),
        "mean_squared_error": ratio(weights @ apart**2, number),
        "mean_absolute_error": ratio(weights @ np.abs(apart), number),
    }


def entity_results(correct: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """(...) what `EntityScores.results` tells of entities, from (..., types) counts as of `class_results`."""
    num_correct, num_true, num_predicted = (counts.sum(-1) for counts in (correct, true, predicted))
    return {
        "f1": ratio(2 * num_correct, num_true + num_predicted),
        "precision": ratio(num_correct, num_predicted),
        "recall": ratio(num_correct, num_true),
        "macro_f1": _mean_where(ratio(2 * correct, true + predicted), true + predicted > 0),
    }


def _matthews(correct: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The correlation of C labels (Gorodkin 2004)."""
    correct, true, predicted = (counts.astype(np.float64) for counts in (correct, true, predicted))
    number = true.sum(-1)
    spread_true, spread_predicted = number**2 - (true**2).sum(-1), number**2 - (predicted**2).sum(-1)
    shared = correct.sum(-1) * number - (true * predicted).sum(-1)
    return ratio(shared, np.sqrt(spread_true) * np.sqrt(spread_predicted))


def _mean_where(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The mean over the last axis of those that are kept, 0 where none is."""
    return ratio((values * kept).sum(-1), kept.sum(-1))


def _as_floats(results: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(value) for name, value in results.items()}


def _correlation(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(R,) Pearson's of weighted (R or 1, G) values; NaN where one of them is constant."""
    number = weights.sum(axis=1, keepdims=True)
    moved = [values - ratio((weights * values).sum(axis=1, keepdims=True), number) for values in (x, y)]
    (x_spread, both), (_, y_spread) = [[(weights * a * b).sum(axis=1) for b in moved] for a in moved]
    sizes = [(weights * values**2).sum(axis=1) for values in (x, y)]
    varies = (x_spread > _CONSTANT * sizes[0]) & (y_spread > _CONSTANT * sizes[1])
    found = np.divide(both, np.sqrt(x_spread * y_spread), out=np.full(len(both), np.nan), where=varies)
    return np.clip(found, -1.0, 1.0)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(R, G) ranks of (G,) values, each standing as often as (R, G) weights say; those of equal values are their
    mean."""
    different, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(different)))
    number = np.add.reduceat(weights[:, order], starts, axis=1)  # (R, different values)
    return (np.cumsum(number, axis=1) - (number - 1) / 2)[:, place]


def _alike(labels: ArrayLike, predictions: ArrayLike, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    labels, predictions = np.asarray(labels, dtype), np.asarray(predictions, dtype)
    if labels.shape != predictions.shape:
        raise UsageError(f"labels have shape {labels.shape}, predictions {predictions.shape}: expected the same")
    return labels, predictions


def ratio(part: ArrayLike, whole: ArrayLike) -> np.ndarray:
    """``part / whole``, 0 where there is nothing to divide by."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


def label_scores(
    names: Sequence[str], correct: np.ndarray, true: np.ndarray, predicted: np.ndarray
) -> list[LabelScore]:
    """Of (n,) counts for each label."""
    rows = zip(
        names,
        ratio(correct, predicted).tolist(),
        ratio(correct, true).tolist(),
        ratio(2 * correct, true + predicted).tolist(),
        true.tolist(),
        strict=True,
    )
    return [LabelScore(*row) for row in rows]
