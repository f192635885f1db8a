"""The scores of many draws of the same examples at once: what a bootstrap needs.

Each kind of task has a row of numbers for each example, and scores that are made of weighted rows. Shape letters:
N examples, G different rows, R draws, C labels or types of entities, K columns.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bertkit.tasks.metrics import class_results, entity_results, number_results, ratio, several_results
from bertkit.tasks.tags import Tags


@dataclass(frozen=True)
class Scoring(ABC):
    """Rows, and the scores that they make; the scores are named as those of the task's scorer."""

    labels: tuple[str, ...]  # that have scores
    may_have_none: ClassVar[bool] = False  # whether a row may have none of the labels

    @abstractmethod
    def rows(self, targets: np.ndarray, predicted: np.ndarray, example_of: np.ndarray, num_examples: int) -> np.ndarray:
        """(N, K) a row for each example, from arrays as `Outcomes` has them."""

    @abstractmethod
    def results(self, rows: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        """(R,) of each score.

        Args:
            rows: (G, K)
            weights: (R, G) float64, how often each row was drawn.
        """

    def counts(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(3, R, C) how often each label was rightly predicted, was true, was predicted; none without labels."""
        return np.zeros((3, len(weights), 0))


@dataclass(frozen=True)
class OneLabel(Scoring):
    """One of C labels; a row is the true and the predicted one."""

    def rows(self, targets, predicted, example_of, num_examples):
        return np.stack([targets, predicted], axis=1)

    def counts(self, rows, weights):
        true, predicted = (np.arange(len(self.labels)) == rows[:, place, None] for place in (0, 1))
        return np.stack([weights @ part for part in (true & predicted, true, predicted)])

    def results(self, rows, weights):
        return class_results(*self.counts(rows, weights))


@dataclass(frozen=True)
class SeveralLabels(Scoring):
    """Any of C labels; a row is which are true and which are predicted."""

    def rows(self, targets, predicted, example_of, num_examples):
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
    """A number; a row is the true and the predicted one. Of levels also which one is nearest."""

    def rows(self, targets, predicted, example_of, num_examples):
        return np.stack([targets, predicted], axis=1)

    def counts(self, rows, weights):
        nearest = np.clip(np.rint(rows), 0, max(len(self.labels) - 1, 0)).astype(np.int64)
        return OneLabel(self.labels).counts(nearest, weights)

    def results(self, rows, weights):
        of_levels = class_results(*self.counts(rows, weights)) if self.labels else {}
        return of_levels | number_results(*rows.T, weights)


@dataclass(frozen=True)
class WordLabels(Scoring):
    """A plain label for each word; a row is how often each label was right, true, predicted in a text."""

    def rows(self, targets, predicted, example_of, num_examples):
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
    """Entities; a row is how many of each type were right, true, found in a text, how many words it has, and how many
    of these have the right tag."""

    tags: Tags
    may_have_none: ClassVar[bool] = True

    def rows(self, targets, predicted, example_of, num_examples):
        words = np.bincount(example_of, minlength=num_examples)
        right = np.bincount(example_of, targets == predicted, num_examples)
        cu_words = np.append(0, np.cumsum(words))
        true, found = (self.tags.entities(labels, cu_words) for labels in (targets, predicted))
        both, times = np.unique(np.concatenate([true, found]), axis=0, return_counts=True)
        of_types = [
            _per_example(some[:, 2], example_of[some[:, 0]], num_examples, len(self.labels))
            for some in (both[times == 2], true, found)
        ]
        return np.concatenate([*of_types, words[:, None], right[:, None].astype(np.int64)], axis=1)

    def counts(self, rows, weights):
        return np.stack(np.split(weights @ rows[:, :-2], 3, axis=1))

    def results(self, rows, weights):
        words, right = (weights @ rows[:, -2:]).T
        return entity_results(*self.counts(rows, weights)) | {"accuracy": ratio(right, words)}


def _per_example(labels: np.ndarray, example_of: np.ndarray, num_examples: int, num_labels: int) -> np.ndarray:
    """(N, C) how often each label stands in each example."""
    return np.bincount(example_of * num_labels + labels, minlength=num_examples * num_labels).reshape(num_examples, -1)
