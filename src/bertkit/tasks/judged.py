"""Tasks with detailed evaluation: labels, numbers, or labels of words.

Targets and predictions are arrays of the same form, which depends on the labels: (N,) int64, one label for each of N
examples; (N, C) bool, any of C labels; (N,) float64, a number, or a level counted from 0 for the lowest; (W,) int64,
one label for each word.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bertkit.tasks.scoring import Scores, Scoring
from bertkit.tasks.task import TextTask
from bertkit.tokenizer import Encodings

_SHOWN = 8  # labels in a line of the log
_SMALLEST = 1e-6  # share of a label absent from training


@dataclass(frozen=True)
class JudgedTask(TextTask):
    """A task of a classifier, a regressor or a tagger."""

    of_words: ClassVar[bool] = False  # a label for each of ``example.words``: the task has `TokenClassification`'s
    # ``likeliest`` and ``word_scores``
    thresholds: ClassVar[tuple[float, ...]] = ()  # of each label in multi-label tasks; (): 0.5

    def choices_for(self, train: Sequence[Any]) -> Iterator[str]:
        if names := self.known_labels:
            yield f"{len(names)} labels: {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
        yield from super().choices_for(train)

    @abstractmethod
    def targets(self, examples: Sequence[Any]) -> np.ndarray:
        """(N, ...) labels for the loss; (W,) for words.

        Raises:
            DataError: a label that is missing or unknown to the task.
        """

    @abstractmethod
    def predicted(self, predictions: Sequence[Any]) -> np.ndarray:
        """Predictions as an array."""

    @property
    @abstractmethod
    def scoring(self) -> Scoring:
        """Scoring of predictions."""

    def truth(self, examples: Sequence[Any]) -> np.ndarray:
        """Targets of examples as an array.

        Raises:
            DataError: as `targets`.
        """
        targets = self.targets(examples)
        if targets.ndim == 2:
            return targets > 0
        return targets.astype(np.float64) if targets.dtype.kind == "f" else targets

    def example_of(self, examples: Sequence[Any]) -> np.ndarray:
        """Index of the example of each row of the arrays, int64."""
        numbers = np.arange(len(examples))
        return np.repeat(numbers, [len(example.words or ()) for example in examples]) if self.of_words else numbers

    def losses(self, truth: np.ndarray, predictions: Sequence[Any]) -> np.ndarray | None:
        """(N,) loss of each prediction; None for tasks without one."""
        return None

    def scorer(self) -> "JudgedScorer":
        return JudgedScorer(self)

    def probabilities(
        self, examples: Sequence[Any], predictions: Sequence[Any], encodings: Encodings, logits: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Probabilities of every label, for each row of the arrays, or None for tasks without them; and for words, (W,)
        bool, True if the word was encoded.

        Args:
            predictions: from `decode`, for the encodings and logits.
        """
        return None, None

    @staticmethod
    def label_of(example: Any) -> Any:
        """A value that is equal for examples with the same label."""
        return example.label

    def constant_logits(self, train: Sequence[Any]) -> tuple[str, np.ndarray]:
        """A constant baseline: the same (C,) float32 logits for every example, the best for the training examples, and
        the name of the method."""
        targets = self.targets(train)
        if targets.ndim == 2:
            shares = np.clip(targets.mean(axis=0), _SMALLEST, 1 - _SMALLEST)
            return "most frequent label", np.log(shares / (1 - shares)).astype(np.float32)
        if targets.dtype.kind == "f":
            return "mean", targets.mean(keepdims=True).astype(np.float32)
        counts = np.bincount(targets, minlength=len(self.label_names or ()))
        return "most frequent label", np.log(np.maximum(counts / counts.sum(), _SMALLEST)).astype(np.float32)


class JudgedScorer:
    """The scores of `JudgedTask.scoring`, and the mean loss if the task has one."""

    def __init__(self, task: JudgedTask) -> None:
        self.task, self._scores = task, Scores(task.scoring)
        self._has_loss = task.losses(task.truth(()), ()) is not None
        self._loss = 0.0
        self._number = 0

    def add(self, examples: Sequence[Any], predictions: Sequence[Any]) -> None:
        truth = self.task.truth(examples)
        self._scores.add(truth, self.task.predicted(predictions), self.task.example_of(examples))
        losses = self.task.losses(truth, predictions)
        self._loss += 0.0 if losses is None else float(losses.sum())
        self._number += len(examples)

    def results(self) -> dict[str, float]:
        loss = {"loss": self._loss / max(self._number, 1)} if self._has_loss else {}
        return loss | self._scores.results()
