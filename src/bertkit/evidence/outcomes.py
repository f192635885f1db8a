"""What a model says of labeled examples, as arrays: made once, read by every part of the evidence.

Shape letters: N examples, W words, C labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bertkit.errors import DataError, UsageError
from bertkit.inference import PredictReport
from bertkit.model import Model
from bertkit.tasks import (
    MultiLabelClassification,
    OrdinalRegression,
    Regression,
    SequenceClassification,
    TextTask,
    TokenClassification,
)
from bertkit.tokenizer import Encodings

JudgedTask = SequenceClassification | MultiLabelClassification | OrdinalRegression | Regression | TokenClassification
"""The tasks for which evidence is gathered: those of classifiers and taggers."""

_EXCERPT = 300  # characters of a text that are shown


@dataclass(frozen=True)
class Outcomes:
    """What a model said of N examples, beside what is true.

    ``targets`` and ``predicted`` are alike: of one label (N,) int64; of several (N, C) bool; of numbers (N,) float64,
    for levels 0 is the lowest; of words (W,) int64.
    """

    task: JudgedTask
    examples: Sequence[Any]
    targets: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray | None  # of every label, for each row of ``targets``; None: the task has none
    num_tokens: np.ndarray  # (N,) int64, of the whole text, special tokens included
    num_tokens_cut: np.ndarray  # (N,) int64
    num_windows: np.ndarray  # (N,) int64
    was_read: np.ndarray | None = None  # (W,) bool: the model has seen the word; None: not words

    @cached_property
    def example_of(self) -> np.ndarray:
        """The number of the example that each row of ``targets`` is of, int64."""
        return examples_of_rows(self.task, self.examples)

    @cached_property
    def in_first_half(self) -> np.ndarray:
        """(N,) bool: a random half, so that what is chosen on one can be measured on the other."""
        first = np.zeros(len(self.examples), np.bool_)
        first[np.random.default_rng(0).permutation(len(first))[: len(first) // 2]] = True
        return first


def judged_task(task: TextTask) -> JudgedTask:
    """The task, if evidence is gathered for its kind.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(task, JudgedTask):
        raise UsageError(f"evidence is for classifiers and taggers: the metrics of {task.name} are Model.evaluate's")
    return task


def outcomes_of(model: Model, examples: Sequence[Any], *, progress: bool | None = None) -> Outcomes:
    """Run a model over labeled examples, once.

    Raises:
        DataError: no examples; a label that is missing, or not one of the model's.
        MissingHeadError: no task, or a head that was never trained.
        UsageError: a task that is neither a classifier's nor a tagger's.
    """
    task = judged_task(model.trained.task)
    if not examples:
        raise DataError("there are no examples to judge the model by")
    targets = targets_of(task, examples)
    taken = _Taken(task)
    for _ in model.predict_stream(examples, report=PredictReport(), decode=taken.decode, progress=progress):
        pass
    return Outcomes(task, examples, targets, *taken.arrays())


def targets_of(task: JudgedTask, examples: Sequence[Any]) -> np.ndarray:
    """What is true, as `Outcomes` holds it.

    Raises:
        DataError: a label that is missing, or not one of the model's.
    """
    targets = task.targets(examples)
    if isinstance(task, MultiLabelClassification):
        return targets > 0
    return targets.astype(np.float64) if isinstance(task, Regression | OrdinalRegression) else targets


def predicted_of(task: JudgedTask, predictions: Sequence[Any]) -> np.ndarray:
    """What typed predictions say, as `Outcomes` holds it."""
    if isinstance(task, Regression | OrdinalRegression):
        return np.array([prediction.score for prediction in predictions], np.float64)
    names = task.label_names
    if isinstance(task, MultiLabelClassification):
        return np.array([[name in prediction.labels for name in names] for prediction in predictions], np.bool_)
    numbers = {name: number for number, name in enumerate(names)}
    if isinstance(task, TokenClassification):
        labels = (label for prediction in predictions for label in prediction.labels)
    else:
        labels = (prediction.label for prediction in predictions)
    return np.array([numbers[label] for label in labels], np.int64)


def examples_of_rows(task: JudgedTask, examples: Sequence[Any]) -> np.ndarray:
    """The number of the example that each row of targets is of, int64."""
    if not isinstance(task, TokenClassification):
        return np.arange(len(examples))
    return np.repeat(np.arange(len(examples)), [len(example.words or ()) for example in examples])


class _Taken:
    """Takes the place of a task's ``decode``, and keeps of each chunk the arrays alone."""

    def __init__(self, task: JudgedTask) -> None:
        self.task = task
        self._parts: list[tuple[np.ndarray | None, ...]] = []

    def decode(self, examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[Any]:
        predictions: Sequence[Any] = self.task.decode(examples, encodings, logits)
        owned = encodings.owned[:, 1] - encodings.owned[:, 0]
        lengths, cut, windows = (
            np.bincount(encodings.text_index, of_sequence, len(examples)).astype(np.int64)
            for of_sequence in (owned, encodings.num_tokens_cut, np.ones_like(owned))
        )
        was_read, probabilities = self._beside(examples, predictions, encodings, logits)
        said = predicted_of(self.task, predictions)
        self._parts.append((was_read, said, probabilities, lengths + cut, cut, windows))
        return [None] * len(examples)

    def _beside(
        self, examples: Sequence[Any], predictions: Sequence[Any], encodings: Encodings, logits: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Whether words were read, and the probabilities."""
        task = self.task
        if isinstance(task, Regression | OrdinalRegression):
            return None, None
        if isinstance(task, TokenClassification):
            scores, was_read = task.word_scores(examples, encodings, logits)
            return was_read, np.exp(scores).astype(np.float32)
        probabilities = np.array([list(prediction.probabilities.values()) for prediction in predictions])
        is_one = isinstance(task, SequenceClassification)
        return None, probabilities.astype(np.float32) if is_one else probabilities

    def arrays(self) -> tuple[Any, ...]:
        """The fields of `Outcomes` from ``predicted`` on."""
        was_read, *others = (
            None if parts[0] is None else np.concatenate(parts) for parts in zip(*self._parts, strict=True)
        )
        return (*others, was_read)


def excerpt(text: str, around: int = 0) -> str:
    """A text, or where it is long the part around a character."""
    start = max(0, min(around - _EXCERPT // 2, len(text) - _EXCERPT))
    end = start + _EXCERPT
    return ("… " if start else "") + text[start:end] + (" …" if end < len(text) else "")
