"""Scores of predictions, also for many bootstrap samples at once.

Each example has a row of numbers, and scores are computed from weighted rows. Shape letters: N examples, G distinct
rows, R draws, C labels or entity types, K columns.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bertkit.errors import UsageError
from bertkit.tasks.metrics import class_results, entity_results, number_results, ratio, several_results
from bertkit.tasks.tags import Tags


@dataclass(frozen=True)
class Scoring(ABC):
    """Rows, and the scores computed from them, by name."""

    labels: tuple[str, ...]  # labels with scores
    may_have_none: ClassVar[bool] = False  # a row may have none of the labels

    @abstractmethod
    def rows(self, targets: np.ndarray, predicted: np.ndarray, example_of: np.ndarray, num_examples: int) -> np.ndarray:
        """(N, K) a row for each example, from arrays described in `bertkit.tasks.judged`."""

    @property
    def num_columns(self) -> int:
        """K."""
        return 2

    @abstractmethod
    def results(self, rows: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        """(R,) values of each score.

        Args:
            rows: (G, K)
            weights: (R, G) float64, count of each row in the draw.
        """

    def counts(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(3, R, C) counts of each label: correctly predicted, true, predicted; empty without labels."""
        return np.zeros((3, len(weights), 0))


@dataclass(frozen=True)
class OneLabel(Scoring):
    """One of C labels; a row holds the true and the predicted label."""

    def rows(self, targets, predicted, example_of, num_examples):
        _check_range(targets, predicted, len(self.labels))
        return np.stack([targets, predicted], axis=1)

    def counts(self, rows, weights):
        true, predicted = (np.arange(len(self.labels)) == rows[:, index, None] for index in (0, 1))
        return np.stack([weights @ part for part in (true & predicted, true, predicted)])

    def results(self, rows, weights):
        return class_results(*self.counts(rows, weights))


@dataclass(frozen=True)
class SeveralLabels(Scoring):
    """Any of C labels; a row holds the true and the predicted labels."""

    @property
    def num_columns(self) -> int:
        return 2 * len(self.labels)

    def rows(self, targets, predicted, example_of, num_examples):
        if targets.shape[1:] != (len(self.labels),):
            raise UsageError(f"targets have shape {targets.shape}: expected (examples, {len(self.labels)} labels)")
        return np.concatenate([targets, predicted], axis=1)

    def counts(self, rows, weights):
        true, predicted = np.split(rows.astype(np.bool_), 2, axis=1)
        return np.stack([weights @ part for part in (true & predicted, true, predicted)])

    def results(self, rows, weights):
        true, predicted = np.split(rows.astype(np.bool_), 2, axis=1)
        exact = ratio(weights @ (true == predicted).all(axis=1), weights.sum(axis=1))
        return {"accuracy": exact, **several_results(*self.counts(rows, weights))}


@dataclass(frozen=True)
class Numbers(Scoring):
    """A number; a row holds the true and the predicted one, and for levels the nearest level."""

    def rows(self, targets, predicted, example_of, num_examples):
        rows = np.stack([targets, predicted], axis=1)
        if not np.isfinite(rows).all():
            index = int((~np.isfinite(rows)).any(axis=1).argmax())
            target, prediction = rows[index]
            raise UsageError(
                f"example {index} has the score {target:g}, predicted {prediction:g}: expected finite numbers"
            )
        return rows

    def counts(self, rows, weights):
        nearest = np.clip(np.rint(rows), 0, max(len(self.labels) - 1, 0)).astype(np.int64)
        return OneLabel(self.labels).counts(nearest, weights)

    def results(self, rows, weights):
        of_levels = class_results(*self.counts(rows, weights)) if self.labels else {}
        return of_levels | number_results(rows[:, 0], rows[:, 1], weights)


@dataclass(frozen=True)
class WordLabels(Scoring):
    """A plain label for each word; a row counts how often each label was right, true and predicted in a text."""

    @property
    def num_columns(self) -> int:
        return 3 * len(self.labels)

    def rows(self, targets, predicted, example_of, num_examples):
        _check_range(targets, predicted, len(self.labels))
        parts = (targets[targets == predicted], example_of[targets == predicted]), (targets, example_of)
        return np.concatenate(
            [_per_example(*part, num_examples, len(self.labels)) for part in (*parts, (predicted, example_of))], axis=1
        )

    def counts(self, rows, weights):
        return np.stack(np.split(weights @ rows, 3, axis=1))

    def results(self, rows, weights):
        return class_results(*self.counts(rows, weights))


@dataclass(frozen=True)
class EntityLabels(Scoring):
    """Entities; a row counts the correct, true and predicted entities of each type in a text, its words, and its words
    with the correct tag."""

    tags: Tags
    may_have_none: ClassVar[bool] = True

    @property
    def num_columns(self) -> int:
        return 3 * len(self.labels) + 2

    def rows(self, targets, predicted, example_of, num_examples):
        words = np.bincount(example_of, minlength=num_examples)
        right = np.bincount(example_of, targets == predicted, num_examples)
        cu_words = np.append(0, np.cumsum(words))
        true, results = (self.tags.entities(labels, cu_words) for labels in (targets, predicted))
        both, times = np.unique(np.concatenate([true, results]), axis=0, return_counts=True)
        of_types = [
            _per_example(some[:, 2], example_of[some[:, 0]], num_examples, len(self.labels))
            for some in (both[times == 2], true, results)
        ]
        return np.concatenate([*of_types, words[:, None], right[:, None].astype(np.int64)], axis=1)

    def counts(self, rows, weights):
        return np.stack(np.split(weights @ rows[:, :-2], 3, axis=1))

    def results(self, rows, weights):
        words, right = (weights @ rows[:, -2:]).T
        return entity_results(*self.counts(rows, weights)) | {"accuracy": ratio(right, words)}


class Scores:
    """Accumulated scores of examples; keeps distinct rows with their counts."""

    def __init__(self, scoring: Scoring) -> None:
        self.scoring = scoring
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, targets: ArrayLike, predicted: ArrayLike, example_of: np.ndarray | None = None) -> None:
        """Add examples: targets and predictions, as arrays for the scoring.

        Args:
            example_of: index of the example of each row of the arrays; None: one row per example.

        Raises:
            UsageError: different shapes, an unknown label, or a number that is not finite.
        """
        targets, predicted = np.asarray(targets), np.asarray(predicted)
        if targets.shape != predicted.shape:
            raise UsageError(
                f"targets have shape {targets.shape}, predictions {predicted.shape}: expected equal shapes"
            )
        example_of = np.arange(len(targets)) if example_of is None else example_of
        if len(targets):
            rows = self.scoring.rows(targets, predicted, example_of, int(example_of[-1]) + 1)
            self._parts.append(np.unique(rows, axis=0, return_counts=True))

    def results(self) -> dict[str, float]:
        """The scores by name."""
        if not self._parts:
            self._parts.append((np.zeros((0, self.scoring.num_columns)), np.zeros(0, np.int64)))
        rows, times = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        results = self.scoring.results(rows, times[None].astype(np.float64))
        return {name: float(value[0]) for name, value in results.items()}


def _check_range(targets: np.ndarray, predicted: np.ndarray, num_labels: int) -> None:
    for named, values in (("a label", targets), ("a prediction", predicted)):
        wrong = values[(values < 0) | (values >= num_labels)]
        if len(wrong):
            raise UsageError(f"{named} is {wrong[0]}: expected 0 to {num_labels - 1}, for {num_labels} labels")


def _per_example(labels: np.ndarray, example_of: np.ndarray, num_examples: int, num_labels: int) -> np.ndarray:
    """(N, C) count of each label in each example."""
    return np.bincount(example_of * num_labels + labels, minlength=num_examples * num_labels).reshape(-1, num_labels)
