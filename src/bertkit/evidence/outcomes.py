"""Predictions and targets of labeled examples as arrays, computed once for every part of the evidence.

Shape letters: N examples, W words, C labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bertkit.errors import DataError, UsageError
from bertkit.inference import InferenceReport
from bertkit.model import Model, check_model
from bertkit.tasks import JudgedTask, TextTask
from bertkit.tokenizer import Encodings

_EXCERPT = 300  # maximum number of characters shown of a text


@dataclass(frozen=True)
class Outcomes:
    """Predictions and targets of N examples, as arrays; `bertkit.tasks.judged` describes their form."""

    task: JudgedTask
    examples: Sequence[Any]
    targets: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray | None  # (rows of ``targets``, C); None: no probabilities
    num_tokens: np.ndarray  # (N,) int64, tokens of the whole text, special tokens included
    num_tokens_cut: np.ndarray  # (N,) int64
    num_windows: np.ndarray  # (N,) int64
    was_read: np.ndarray | None = None  # (W,) bool: the word was encoded; None: not a tagger
    losses: np.ndarray | None = None  # (N,); None: no losses
    num_unknown: int = 0  # [UNK] tokens
    num_empty: int = 0  # texts or pairs without a known token

    @cached_property
    def example_of(self) -> np.ndarray:
        """Index of the example of each row of ``targets``, int64."""
        return self.task.example_of(self.examples)

    @cached_property
    def rows(self) -> np.ndarray:
        """(N, K) rows that scores are computed from."""
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
        """Label names, levels in ascending order; None: numbers."""
        return self.task.known_labels

    def levels(self, numbers: np.ndarray) -> np.ndarray:
        """(N,) int64 index of the level nearest to each number."""
        return np.clip(np.rint(numbers), 0, len(self.names or ()) - 1).astype(np.int64)

    @cached_property
    def in_first_half(self) -> np.ndarray:
        """(N,) bool: a random half, so that choices made on one half can be measured on the other."""
        first = np.zeros(len(self.examples), np.bool_)
        first[np.random.default_rng(0).permutation(len(first))[: len(first) // 2]] = True
        return first


def judged_task(task: TextTask) -> JudgedTask:
    """Check that evidence can be gathered for a task.

    Raises:
        UsageError: it cannot.
    """
    if not isinstance(task, JudgedTask):
        raise UsageError(
            f"{task.name} has metrics only (bertkit evaluate, Model.evaluate): evidence requires a task with classes, "
            "levels, numbers or tags"
        )
    return task


def outcomes_of(model: Model, examples: Sequence[Any], *, progress: bool | None = None) -> Outcomes:
    """Run a model over labeled examples, once.

    Raises:
        DataError: no examples; a label that is missing or unknown to the model.
        MissingHeadError: the model has no task, or its head was never trained.
        UsageError: the task is neither classification nor tagging.
    """
    check_model(model)
    task = judged_task(model.trained.task)
    if not examples:
        raise DataError("no examples to evaluate the model on: expected at least one")
    targets = task.truth(examples)
    taken = OutcomeArrays(task)
    for _ in model.predict_stream(examples, report=InferenceReport(), decode=taken.decode, progress=progress):
        pass
    return taken.outcomes(examples, targets)


class OutcomeArrays:
    """Replacement for the ``decode`` of a task that keeps only arrays."""

    def __init__(self, task: JudgedTask) -> None:
        self.task, self.num_unknown, self.num_empty = task, 0, 0
        self._parts: list[tuple[np.ndarray | None, ...]] = []

    def decode(self, examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[Any]:
        predictions: Sequence[Any] = self.task.decode(examples, encodings, logits)
        self.num_unknown += int(encodings.num_unknown.sum())
        self.num_empty += int(encodings.are_empty().sum())
        owned = encodings.owned[:, 1] - encodings.owned[:, 0]
        lengths, cut, windows = (
            np.bincount(encodings.text_index, of_sequence, len(examples)).astype(np.int64)
            for of_sequence in (owned, encodings.num_tokens_cut, np.ones_like(owned))
        )
        probabilities, was_read = self.task.probabilities(examples, predictions, encodings, logits)
        windows //= getattr(self.task, "num_vectors", 0) or 1  # the texts of a pair are not windows
        predicted = self.task.predicted(predictions)
        losses = self.task.losses(self.task.truth(examples), predictions)
        self._parts.append((predicted, probabilities, lengths + cut, cut, windows, was_read, losses))
        return [None] * len(examples)

    def outcomes(self, examples: Sequence[Any], targets: np.ndarray) -> Outcomes:
        """The outcomes of all decoded examples, in order, with their targets."""
        arrays: list[Any] = [
            None if parts[0] is None else np.concatenate(parts) for parts in zip(*self._parts, strict=True)
        ]
        return Outcomes(self.task, examples, targets, *arrays, num_unknown=self.num_unknown, num_empty=self.num_empty)


def excerpt(text: str, around: int = 0) -> str:
    """A text, or for a long text the part around a character."""
    start = max(0, min(around - _EXCERPT // 2, len(text) - _EXCERPT))
    end = start + _EXCERPT
    return ("… " if start else "") + text[start:end] + (" …" if end < len(text) else "")
