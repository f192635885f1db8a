"""Multiple choice: which of several choices continues a text, or answers a question.

Devlin et al. 2018, section 4.4: each choice is the second text of a separate pair and gets one score; the choices of
a question are adjacent. Shape letters: S sequences, N questions, C choices.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np

from bertkit.batch import LabeledEncodings
from bertkit.errors import UsageError
from bertkit.tasks.cross_entropy import ClassLoss
from bertkit.tasks.example_file import ExampleFile, GuessRank
from bertkit.tasks.examples import ChoiceQuestion, Sequences, other_input
from bertkit.tasks.probabilities import softmax
from bertkit.tasks.reading.choices import read_choices
from bertkit.tasks.sentence_vectors import OnSentenceVectors
from bertkit.tokenizer import Encodings

_SMALLEST = 1e-16  # probability, in the loss of predictions
_SMALLEST_SHARE = 1e-6  # share of an index that is never correct in training


@dataclass(frozen=True)
class ChoicePrediction:
    """The likeliest choice of a question."""

    choice: int  # from 0
    text: str
    probabilities: tuple[float, ...]  # of every choice, summing to 1


@dataclass(frozen=True)
class MultipleChoice(OnSentenceVectors):
    """One of C choices."""

    name: ClassVar[str] = "multiple-choice"
    guess_rank: ClassVar[GuessRank | None] = GuessRank.OWN_COLUMNS
    head: ClassVar[str] = "multiple_choice"
    of_tokens: ClassVar[bool] = False
    example_type: ClassVar[type] = ChoiceQuestion
    whole: ClassVar[str] = "a choice cannot be split into windows"
    best_by: ClassVar[str] = "accuracy"
    pipeline: ClassVar[str] = "multiple-choice"

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> Self:
        return cls()

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[ChoiceQuestion]:
        if file.columns:
            raise UsageError("multiple choice files have fixed column names: omit columns")
        return read_choices(file.path, labeled=file.labeled, bad_rows=file.bad_rows)

    @classmethod
    def of_examples(cls, examples: Sequence[ChoiceQuestion], options: Mapping[str, Any]) -> Self:
        cls.check_options(options, examples)
        return cls()

    @classmethod
    def unusable_examples(
        cls, examples: Sequence[ChoiceQuestion], *, held_out: bool = False
    ) -> list[tuple[ChoiceQuestion, str]]:
        """See `TextTask.unusable_examples`: examples with another number of choices than most."""
        numbers = Counter(len(example.choices) for example in examples)
        usual = max(numbers, key=numbers.__getitem__, default=0)
        return [
            (example, f"has {len(example.choices)} choices, most questions have {usual}: give it as many, or remove it")
            for example in examples
            if len(example.choices) != usual
        ]

    @classmethod
    def example(
        cls, item: tuple[str, Sequence[str]] | ChoiceQuestion, label: Any = None, location: str = ""
    ) -> ChoiceQuestion:
        """See `TextTask.example`: a question, or the beginning of a text, and its choices; the label is an index."""
        if isinstance(item, ChoiceQuestion):
            return item
        if not (isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], str)):
            raise other_input(item, "a question and its choices", location)
        context, choices = item[0], item[1].tolist() if hasattr(item[1], "tolist") else item[1]  # an array
        if isinstance(choices, str) or not choices or not all(isinstance(choice, str) for choice in choices):
            raise UsageError(f"choices are {choices!r:.80}: expected a list of strs")
        if label is not None and not (isinstance(label, Real) and float(label).is_integer()):
            problem = f"the right choice is {label!r:.60}: expected a number from 0 to {len(choices) - 1}"
            raise ChoiceQuestion(context, (), location=location).error(problem)
        return ChoiceQuestion(context, tuple(choices), None if label is None else int(float(label)), location=location)

    def sequences(self, examples: Sequence[ChoiceQuestion]) -> Sequences:
        """As `TextTask.sequences`: one for each choice, or over sentence vectors one for the context and one for the
        choice."""
        pairs = [(example.context, choice) for example in examples for choice in example.choices]
        example_of = [number for number, example in enumerate(examples) for _ in example.choices]
        if self.num_vectors == 2:
            return Sequences([text for pair in pairs for text in pair], None, np.repeat(example_of, 2).tolist())
        return Sequences([context for context, _ in pairs], [choice for _, choice in pairs], example_of)

    def labeled(self, examples: Sequence[ChoiceQuestion], encodings: Encodings) -> LabeledEncodings:
        """See `TextTask.labeled`: (N,) indices of the right choices.

        Raises:
            DataError: a question without a label, or with another number of choices than the first.
        """
        num_choices = len(examples[0].choices)
        for example in examples:
            if len(example.choices) != num_choices:
                problem = f"has {len(example.choices)} choices, the first question has {num_choices}"
                raise example.error(f"{problem}: give it as many, or remove it")
        return LabeledEncodings(encodings, _labels(examples), group_size=num_choices * max(self.num_vectors, 1))

    @property
    def known_labels(self) -> None:
        """Choices have no names."""
        return None

    def over_vectors(self, example: ChoiceQuestion) -> Self:
        """See `TextTask.over_vectors`: scores a choice by its vector and the context's."""
        return replace(self, num_vectors=2, label_names=("score",))

    @property
    def loss_function(self) -> ClassLoss:
        return ClassLoss(of_choices=True)

    def decode(
        self, examples: Sequence[ChoiceQuestion], encodings: Encodings, logits: np.ndarray
    ) -> list[ChoicePrediction]:
        """See `TextTask.decode`; questions may differ in their number of choices."""
        predictions, start = [], 0
        for example in examples:
            scores = logits[start : start + len(example.choices), 0]
            start += len(example.choices)
            probabilities = softmax(scores).tolist()
            best = int(scores.argmax())
            predictions.append(ChoicePrediction(best, example.choices[best], tuple(probabilities)))
        return predictions

    def constant_predictions(
        self, train: Sequence[ChoiceQuestion], dev: Sequence[ChoiceQuestion]
    ) -> tuple[str, list[ChoicePrediction]]:
        """The most frequent index of the right choice in training."""
        labels = [example.label for example in train if example.label is not None]
        most = max(len(example.choices) for example in dev)
        counts = np.maximum(np.bincount(labels, minlength=most), _SMALLEST_SHARE)
        predictions = []
        for example in dev:
            shares = counts[: len(example.choices)] / counts[: len(example.choices)].sum()
            best = int(shares.argmax())
            predictions.append(ChoicePrediction(best, example.choices[best], tuple(shares.tolist())))
        return "most frequent index", predictions

    def scorer(self) -> ChoiceScorer:
        return ChoiceScorer()


class ChoiceScorer:
    """Loss and accuracy."""

    def __init__(self) -> None:
        self._losses, self._right = array("d"), array("d")

    def add(self, examples: Sequence[ChoiceQuestion], predictions: Sequence[ChoicePrediction]) -> None:
        for label, prediction in zip(_labels(examples).tolist(), predictions, strict=True):
            self._losses.append(-float(np.log(max(prediction.probabilities[label], _SMALLEST))))
            self._right.append(prediction.choice == label)

    def results(self) -> dict[str, float]:
        return {name: sum(values) / max(len(values), 1) for name, values in self.values().items()}

    def values(self) -> dict[str, list[float]]:
        return {"loss": self._losses.tolist(), "accuracy": self._right.tolist()}


def _labels(examples: Sequence[ChoiceQuestion]) -> np.ndarray:
    """(N,) int64.

    Raises:
        DataError: a question without a label, or with an invalid index.
    """
    for example in examples:
        label, number = example.label, len(example.choices)
        if label is None or not 0 <= label < number:
            raise example.error(f"the right choice is {label}: expected a number from 0 to {number - 1}")
    return np.array([example.label for example in examples], np.int64)
