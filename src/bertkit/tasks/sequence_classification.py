"""Single- and multi-label classification of texts and text pairs.

Devlin et al. 2018, section 4.1. Shape letters: B sequences, N examples, C labels.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from bertkit.errors import DataError, UsageError
from bertkit.tasks.cross_entropy import LabelSetLoss, OneOfClasses, Weighted, balanced_weights, weights_asked_for
from bertkit.tasks.example_file import GuessRank
from bertkit.tasks.examples import TextExample
from bertkit.tasks.field_types import Probabilities
from bertkit.tasks.probabilities import sigmoid, softmax
from bertkit.tasks.reading.labels import LabelKind
from bertkit.tasks.scoring import OneLabel, SeveralLabels
from bertkit.tasks.task import Option
from bertkit.tasks.texts import OfTexts, class_numbers, index_of_name, mean_over_windows, names_of
from bertkit.tasks.thresholds import best_label_threshold
from bertkit.tokenizer import Encodings

_SMALLEST = 1e-16  # probability, in the loss of predictions


@dataclass(frozen=True)
class LabelPrediction:
    """The likeliest label of a text, if its probability is above the threshold of the task."""

    label: str | None  # None: the model abstains
    probabilities: dict[str, float]  # of every label, summing to 1

    @property
    def likeliest(self) -> str:
        """The likeliest label, also if the model abstains."""
        return self.label or max(self.probabilities, key=self.probabilities.__getitem__)


@dataclass(frozen=True)
class LabelsPrediction:
    """The labels of a text whose probability reaches their threshold."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]  # of every label, each 0 to 1


@dataclass(frozen=True)
class _Classification(OfTexts, Weighted):
    """Base class of single- and multi-label classification."""

    label_names: tuple[str, ...] = ()  # declared again, as it may be None in `OfTexts`

    @classmethod
    def of_examples(cls, examples: Sequence[TextExample], options: Mapping[str, Any]) -> Self:
        """See `TextTask.of_examples`.

        Args:
            options: "class_weights", "balanced" or a weight for each label name; "label_smoothing", 0 to below 1.

        Raises:
            DataError: fewer than two labels, or a label with a single example.
        """
        cls.check_options(options)
        examples_of = names_of(examples)
        if len(examples_of) > 2 and all(len(having) == 1 for having in examples_of.values()):
            raise DataError(
                f"{len(examples)} examples have {len(examples_of)} different labels: expected several examples of each "
                "label; for numbers choose regression, or choose another label column"
            )
        for example, why in cls.unusable_examples(examples):
            raise example.error(why)
        cls._check_names(examples_of)
        balanced = cls._balanced(np.array([len(having) for having in examples_of.values()]), len(examples))
        names = tuple(examples_of)
        return cls(label_names=names, **weights_asked_for(options, names, balanced))

    @classmethod
    def unusable_examples(
        cls, examples: Sequence[TextExample], *, held_out: bool = False
    ) -> list[tuple[TextExample, str]]:
        """See `TextTask.unusable_examples`: examples with a label that no other example has."""
        if held_out:
            return []
        known = names_of(examples)
        alone = {id(having[0]): (having[0], name) for name, having in known.items() if len(having) == 1}
        others = {name.casefold(): name for name in sorted(known, key=lambda name: len(known[name]))}
        return [
            (
                example,
                f"no other example has the label {name!r}"
                + (f"; did you mean {other!r}" if (other := others[name.casefold()]) != name else "")
                + ": add examples, or skip it (skip_bad); in cross-validation stratify the folds, and choose more",
            )
            for example, name in alone.values()
        ]

    @classmethod
    def contradiction(cls, examples: Sequence[TextExample]) -> str:
        """See `RowTask.contradiction`: no label at all, or numbers that are no classes."""
        labels = names_of(examples)
        if not labels:
            return "no label in any row"
        are_numbers = all(re.fullmatch(r"-?\d+(\.\d+)?", label) for label in labels)
        measure = next((label for label in labels if are_numbers and not float(label).is_integer()), "")
        return f"numbers such as {measure} as labels" if measure else ""

    @classmethod
    @abstractmethod
    def _check_names(cls, examples_of: Mapping[str, Sequence[TextExample]]) -> None: ...

    @classmethod
    @abstractmethod
    def _balanced(cls, counts: np.ndarray, num_examples: int) -> np.ndarray: ...

    @property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.label_names)}


@dataclass(frozen=True)
class SequenceClassification(OneOfClasses, _Classification):
    """One label of C for each text."""

    name: ClassVar[str] = "sequence-classification"
    guess_rank: ClassVar[GuessRank | None] = GuessRank.LABELS
    label_kind: ClassVar[LabelKind] = "class"
    probability_function: ClassVar[str | None] = "softmax"
    best_by: ClassVar[str] = "accuracy"
    problem_type: ClassVar[str | None] = "single_label_classification"
    promises: ClassVar[tuple[str, ...]] = ("error",)

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> Self | None:
        """See `TextTask.of_published`; without a problem type, at least two labels."""
        is_other = problem_type in ("regression", "multi_label_classification")
        if label_names is None or is_other or (problem_type is None and len(label_names) == 1):
            return None
        return cls(label_names)

    @classmethod
    def _check_names(cls, examples_of: Mapping[str, Sequence[TextExample]]) -> None:
        if len(examples_of) < 2:
            raise DataError(f"every example has the label {next(iter(examples_of))!r}: expected at least two labels")

    @classmethod
    def _balanced(cls, counts: np.ndarray, num_examples: int) -> np.ndarray:
        return balanced_weights(counts)

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """(N,) int64."""
        return class_numbers(examples, self.label_names)

    def decode(
        self, examples: Sequence[TextExample], encodings: Encodings, logits: np.ndarray
    ) -> list[LabelPrediction]:
        """The likeliest label, by mean logits over the windows of a text; None up to the threshold."""
        probabilities = softmax(mean_over_windows(encodings, logits))
        best = probabilities.argmax(axis=1).tolist()
        return [
            LabelPrediction(
                self.label_names[index] if row[index] > self.threshold else None,
                dict(zip(self.label_names, row, strict=True)),
            )
            for index, row in zip(best, probabilities.tolist(), strict=True)
        ]

    def predicted(self, predictions: Sequence[LabelPrediction]) -> np.ndarray:
        """(N,) int64, the likeliest labels: metrics count texts for which the model abstains."""
        return np.array([self._numbers[prediction.likeliest] for prediction in predictions], np.int64)

    @property
    def scoring(self) -> OneLabel:
        return OneLabel(self.label_names)

    def probabilities(
        self, examples: Sequence[Any], predictions: Sequence[LabelPrediction], encodings: Encodings, logits: np.ndarray
    ) -> tuple[np.ndarray, None]:
        """(N, C) float32."""
        return _probabilities(predictions, self.label_names).astype(np.float32), None

    def losses(self, truth: np.ndarray, predictions: Sequence[LabelPrediction]) -> np.ndarray:
        """(N,) negative log-likelihood, nats."""
        results = _probabilities(predictions, self.label_names)[np.arange(len(truth)), truth]
        return -np.log(np.maximum(results, _SMALLEST))


@dataclass(frozen=True)
class MultiLabelClassification(_Classification):
    """Any number of C labels for each text, each decided independently."""

    thresholds: Probabilities = ()  # minimum probability of each predicted label; (): 0.5  # pyrefly: ignore

    name: ClassVar[str] = "multi-label-classification"
    guess_rank: ClassVar[GuessRank | None] = GuessRank.LABELS
    label_kind: ClassVar[LabelKind] = "set"
    probability_function: ClassVar[str | None] = "sigmoid"
    best_by: ClassVar[str] = "micro_f1"
    problem_type: ClassVar[str | None] = "multi_label_classification"

    options: ClassVar[Mapping[str, Option]] = {
        **_Classification.options,
        "label_separator": Option(
            str, "Text between labels in one column, such as | or a comma; by default identified.", is_of_reading=True
        ),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.thresholds and len(self.thresholds) != len(self.label_names):
            raise UsageError(f"{len(self.thresholds)} thresholds for {len(self.label_names)} labels")

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> Self | None:
        return None if label_names is None or problem_type != cls.problem_type else cls(label_names)

    @property
    def has_thresholds(self) -> bool:
        return bool(self.thresholds)

    @classmethod
    def _check_names(cls, examples_of: Mapping[str, Sequence[TextExample]]) -> None:
        if not examples_of:
            raise DataError("no example has a label: expected at least one label")

    @classmethod
    def _balanced(cls, counts: np.ndarray, num_examples: int) -> np.ndarray:
        """Weights by which examples with a label count as much in total as those without it."""
        return np.maximum(num_examples - counts, 1) / counts

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """(N, C) float32, 1 for each label that an example has."""
        numbers, results = self._numbers, np.zeros((len(examples), len(self.label_names)), np.float32)
        for i, example in enumerate(examples):
            names = (example.label,) if isinstance(example.label, str) else example.label
            if not isinstance(names, tuple):
                raise example.error(f"its labels are {names!r}: expected any of {', '.join(numbers)}")
            results[i, [index_of_name(numbers, name, example) for name in names]] = 1
        return results

    @property
    def loss_function(self) -> LabelSetLoss:
        return LabelSetLoss(self.class_weights, self.label_smoothing)

    def decode(
        self, examples: Sequence[TextExample], encodings: Encodings, logits: np.ndarray
    ) -> list[LabelsPrediction]:
        """The labels that reach their thresholds, by mean logits over the windows of a text."""
        probabilities = sigmoid(mean_over_windows(encodings, logits))
        thresholds = self.thresholds or (0.5,) * len(self.label_names)
        has = probabilities >= np.array(thresholds)
        return [
            LabelsPrediction(
                tuple(self.label_names[index] for index in np.flatnonzero(decided)),
                dict(zip(self.label_names, row, strict=True)),
            )
            for decided, row in zip(has, probabilities.tolist(), strict=True)
        ]

    def predicted(self, predictions: Sequence[LabelsPrediction]) -> np.ndarray:
        """(N, C) bool."""
        has = [[name in prediction.labels for name in self.label_names] for prediction in predictions]
        return np.array(has, np.bool_).reshape(-1, len(self.label_names))

    @property
    def scoring(self) -> SeveralLabels:
        return SeveralLabels(self.label_names)

    def probabilities(
        self, examples: Sequence[Any], predictions: Sequence[LabelsPrediction], encodings: Encodings, logits: np.ndarray
    ) -> tuple[np.ndarray, None]:
        """(N, C) float64."""
        return _probabilities(predictions, self.label_names), None

    @staticmethod
    def label_of(example: TextExample) -> Any:
        """The set of its labels."""
        label: Any = example.label
        return {label} if isinstance(label, str) else set(label or ())

    def losses(self, truth: np.ndarray, predictions: Sequence[LabelsPrediction]) -> np.ndarray:
        """(N,) negative log-likelihood of a decision, nats: the mean over labels."""
        results = _probabilities(predictions, self.label_names)
        return -np.log(np.maximum(np.where(truth, results, 1 - results), _SMALLEST)).mean(axis=1)

    def with_calibrated_thresholds(
        self, examples: Sequence[TextExample], predictions: Sequence[LabelsPrediction]
    ) -> Self:
        """Set the threshold of each label with the best F1 on these examples, halfway between two probabilities; 0.5 if
        no or all examples have the label."""
        targets = self.targets(examples) > 0
        results = _probabilities(predictions, self.label_names)
        best = [best_label_threshold(targets[:, i], results[:, i]) for i in range(len(self.label_names))]
        return replace(self, thresholds=tuple(best))


def _probabilities(predictions: Sequence[LabelPrediction | LabelsPrediction], names: Sequence[str]) -> np.ndarray:
    results = [[prediction.probabilities[name] for name in names] for prediction in predictions]
    return np.array(results, np.float64).reshape(-1, len(names))
