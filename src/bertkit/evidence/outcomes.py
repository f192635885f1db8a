"""Predictions for labeled examples and what is true, as arrays: computed once, read by every part of the evidence.

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
from bertkit.tasks import JudgedTask, TextTask
from bertkit.tokenizer import Encodings

_EXCERPT = 300  # characters of a text that are shown


@dataclass(frozen=True)
class Outcomes:
    """Predictions for N examples and what is true of them, in arrays whose form `bertkit.tasks.judged` describes."""

    task: JudgedTask
    examples: Sequence[Any]
    targets: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray | None  # of every label, for each row of ``targets``; None: the task has none
    num_tokens: np.ndarray  # (N,) int64, of the whole text, special tokens included
    num_tokens_cut: np.ndarray  # (N,) int64
    num_windows: np.ndarray  # (N,) int64
    was_read: np.ndarray | None = None  # (W,) bool: the model has encoded the word; None: not words
    losses: np.ndarray | None = None  # (N,) of each example; None: the task has none

    @cached_property
    def example_of(self) -> np.ndarray:
        """The number of the example that each row of ``targets`` is of, int64."""
        return self.task.example_of(self.examples)

    @cached_property
    def rows(self) -> np.ndarray:
        """(N, K) what the scores of examples are made of."""
        return self.task.scoring.rows(self.targets, self.predicted, self.example_of, len(self.examples))

    @property
    def has_several(self) -> bool:
        """Whether an example may have several labels."""
        return self.targets.ndim == 2

    @property
    def has_numbers(self) -> bool:
        """Whether targets are numbers, or levels in an order."""
        return self.targets.dtype.kind == "f"

    @property
    def names(self) -> tuple[str, ...] | None:
        """Label names, of levels from the lowest to the highest; None: numbers."""
        return self.task.known_labels

    def levels(self, numbers: np.ndarray) -> np.ndarray:
        """(N,) int64 the index of the level nearest to each number."""
        return np.clip(np.rint(numbers), 0, len(self.names or ()) - 1).astype(np.int64)

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
    targets = task.truth(examples)
    taken = OutcomeArrays(task)
    for _ in model.predict_stream(examples, report=PredictReport(), decode=taken.decode, progress=progress):
        pass
    return Outcomes(task, examples, targets, *taken.arrays())


class OutcomeArrays:
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
        probabilities, was_read = self.task.probabilities(examples, predictions, encodings, logits)
        windows //= getattr(self.task, "num_vectors", 0) or 1  # the texts of a pair are no windows
        predicted = self.task.predicted(predictions)
        losses = self.task.losses(self.task.truth(examples), predictions)
        self._parts.append((predicted, probabilities, lengths + cut, cut, windows, was_read, losses))
        return [None] * len(examples)

    def arrays(self) -> tuple[Any, ...]:
        """The fields of `Outcomes` from ``predicted`` on."""
        return tuple(None if parts[0] is None else np.concatenate(parts) for parts in zip(*self._parts, strict=True))


def excerpt(text: str, around: int = 0) -> str:
    """A text, or where it is long the part around a character."""
    start = max(0, min(around - _EXCERPT // 2, len(text) - _EXCERPT))
    end = start + _EXCERPT
    return ("… " if start else "") + text[start:end] + (" …" if end < len(text) else "")
