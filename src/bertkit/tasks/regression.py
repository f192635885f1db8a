"""Regression and ordinal regression over texts and text pairs.

Shape letters: B sequences, N examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bertkit.batch import LabeledBatch
from bertkit.errors import DataError, UsageError
from bertkit.later import nn, torch
from bertkit.tasks.example_file import GuessRank
from bertkit.tasks.examples import TextExample
from bertkit.tasks.field_types import AboveZero
from bertkit.tasks.loss import Loss, LossFunction, mean_of, sums_of
from bertkit.tasks.reading.labels import LabelKind
from bertkit.tasks.scoring import Numbers
from bertkit.tasks.task import Option, TextTask
from bertkit.tasks.texts import OfTexts, class_numbers, mean_over_windows, names_of
from bertkit.tokenizer import Encodings

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST, _SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)
_FINEST = 16 * float(np.finfo(np.float32).eps)
"""Smallest standard deviation of scores, relative to their mean, that predictions in float32 can resolve."""


@dataclass(frozen=True)
class ScorePrediction:
    """A number for a text."""

    score: float


@dataclass(frozen=True)
class LevelPrediction:
    """The level nearest to the number for a text."""

    label: str
    score: float  # 0 at the lowest level, 1 at the next, ...


@dataclass(frozen=True)
class NumberLoss(LossFunction):
    """Mean squared error of (N, 1) logits, for targets ``center + scale * logit``, in units of ``scale``."""

    center: float = 0.0
    scale: float = 1.0

    is_recordable: ClassVar[bool] = True

    def loss(self, outputs: Tensor, part: LabeledBatch, totals: Tensor) -> Loss:
        loss = (outputs.squeeze(-1) - (part.labels - self.center) / self.scale).square().sum()
        return Loss(mean_of(loss, totals[0]), sums_of(loss, len(outputs)))


@dataclass(frozen=True)
class _OneNumber(OfTexts):
    """One output, trained by squared error.

    During training the head predicts (number - ``center``) / ``scale``, so that targets in any unit can be learned at
    the usual learning rates; `fold_target_scaling` moves both into the head.
    """

    label_names: tuple[str, ...] = ("score",)
    center: float = 0.0  # the number for head output 0
    scale: AboveZero = 1.0  # change of the number per unit of head output

    best_by: ClassVar[str] = "spearman"
    problem_type: ClassVar[str | None] = "regression"

    @property
    def loss_function(self) -> NumberLoss:
        return NumberLoss(self.center, self.scale)

    def fold_target_scaling(self, head: nn.Module) -> Self:
        """Multiply ``scale`` into the weights of the head and add ``center`` to its bias: its logit is the number."""
        *_, last = (part for part in head.modules() if isinstance(part, nn.Linear))
        with torch.no_grad():
            last.weight.mul_(self.scale)
            last.bias.mul_(self.scale).add_(self.center)
        return replace(self, center=0.0, scale=1.0)

    def unfold_target_scaling(self, head: nn.Module, initial: Self) -> Self:
        if (self.center, self.scale) == (initial.center, initial.scale):
            return self
        replace(self, center=-initial.center / initial.scale, scale=1 / initial.scale).fold_target_scaling(head)
        return replace(self, center=initial.center, scale=initial.scale)

    def adopt_head(self, head: Any, stored: TextTask | None) -> bool:
        """See `TextTask.adopt_head`: the logit of the stored head is the number; levels must have the same order."""
        if not isinstance(stored, type(self)) or stored.known_labels != self.known_labels:
            return False
        stored.fold_target_scaling(head).unfold_target_scaling(head, self)
        return True

    def predicted(self, predictions: Sequence[ScorePrediction | LevelPrediction]) -> np.ndarray:
        """(N,) float64."""
        return np.array([prediction.score for prediction in predictions], np.float64)

    def losses(self, truth: np.ndarray, predictions: Sequence[ScorePrediction | LevelPrediction]) -> np.ndarray:
        """(N,) squared error."""
        return (truth - self.predicted(predictions)) ** 2

    @property
    def scoring(self) -> Numbers:
        return Numbers(self.known_labels or ())

    def _scores(self, encodings: Encodings, logits: np.ndarray) -> list[float]:
        return (mean_over_windows(encodings, logits)[:, 0] * self.scale + self.center).tolist()


@dataclass(frozen=True)
class Regression(_OneNumber):
    """A real number for each text."""

    name: ClassVar[str] = "regression"
    guess_rank: ClassVar[GuessRank | None] = GuessRank.LABELS
    label_kind: ClassVar[LabelKind] = "number"

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> Self | None:
        """See `TextTask.of_published`: one label with this problem type or none; several numbers are no task."""
        is_one = len(label_names or ()) == 1 and problem_type in (None, cls.problem_type)
        return cls(label_names) if label_names is not None and is_one else None

    @property
    def known_labels(self) -> None:
        """Numbers have no names."""
        return None

    @classmethod
    def of_examples(cls, examples: Sequence[TextExample], options: Mapping[str, Any]) -> Self:
        """See `TextTask.of_examples`; there are no options."""
        cls.check_options(options, examples)
        numbers = np.array([_number_of(example) for example in examples])
        if np.ptp(numbers) == 0:
            raise DataError(f"every example has the score {numbers[0]:g}: expected different scores")
        center, scale = float(numbers.mean()), float(numbers.std())
        if scale < max(_SMALLEST, _FINEST * abs(center)):
            raise DataError(
                f"the scores have the mean {center:.10g} and the standard deviation {scale:g}, which float32 cannot "
                "resolve: subtract their mean from every score, or use a smaller unit"
            )
        return cls(center=center, scale=scale)

    @classmethod
    def _label(cls, label: Any) -> Any:
        """Numbers stay numbers."""
        return label

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """(N,) float32."""
        return np.array([_number_of(example) for example in examples], np.float32)

    def decode(
        self, examples: Sequence[TextExample], encodings: Encodings, logits: np.ndarray
    ) -> list[ScorePrediction]:
        """The number for each text: the mean over its windows."""
        return [ScorePrediction(score) for score in self._scores(encodings, logits)]


@dataclass(frozen=True)
class OrdinalRegression(_OneNumber):
    """Ordinal regression: one of several ordered levels, such as stars, by a number."""

    levels: tuple[str, ...] = ()  # from the lowest to the highest

    name: ClassVar[str] = "ordinal-regression"
    label_kind: ClassVar[LabelKind] = "class"
    options: ClassVar[Mapping[str, Option]] = {
        "levels": Option(list[str], "For ordinal regression, from the lowest to the highest.", is_of_reading=True)
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.levels)) < max(1, len(self.levels)):
            raise UsageError(f"levels={self.levels!r:.60}: expected one or more, each once, from the lowest")

    @property
    def known_labels(self) -> tuple[str, ...]:
        """The levels."""
        return self.levels

    @classmethod
    def labels_in(cls, options: Mapping[str, Any]) -> Sequence[str] | None:
        """The levels, if given."""
        return options.get("levels")

    @classmethod
    def of_examples(cls, examples: Sequence[TextExample], options: Mapping[str, Any]) -> Self:
        """See `TextTask.of_examples`.

        Args:
            options: "levels", from the lowest to the highest; by default the examples' labels, in numeric
                order.

        Raises:
            DataError: labels that are not numbers, without "levels"; or fewer than two.
        """
        cls.check_options(options)
        examples_of = names_of(examples)
        levels = tuple(options.get("levels") or examples_of)
        if not options.get("levels"):
            for name, having in examples_of.items():
                if not _is_number(name):
                    raise having[0].error(f"the level {name!r} is not a number: pass levels= in order, from the lowest")
        task = cls(levels=levels)
        targets = task.targets(examples)
        if np.ptp(targets) == 0:
            raise DataError(f"every example has the level {levels[int(targets[0])]!r}: expected different levels")
        return replace(task, center=float(targets.mean()), scale=float(targets.std()))

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """(N,) float32, 0 for the lowest level, 1 for the next, ..."""
        return class_numbers(examples, self.levels, "level").astype(np.float32)

    def decode(
        self, examples: Sequence[TextExample], encodings: Encodings, logits: np.ndarray
    ) -> list[LevelPrediction]:
        """The level nearest to the mean number over the windows of a text."""
        scores = self._scores(encodings, logits)
        indices = np.clip(np.rint(scores), 0, len(self.levels) - 1).astype(int).tolist()
        return [LevelPrediction(self.levels[index], score) for index, score in zip(indices, scores, strict=True)]


def _number_of(example: TextExample) -> float:
    """The score of an example.

    Raises:
        DataError: it is not a number that float32 can hold.
    """
    try:
        number = float(example.label)  # pyrefly: ignore
    except (TypeError, ValueError, OverflowError):
        raise example.error(f"its score is {example.label!r:.60}: expected a number") from None
    if not math.isfinite(number):
        raise example.error(f"its score is {example.label}: expected a finite number; correct it, or remove the row")
    if abs(number) > _LARGEST:
        raise example.error(f"its score is {example.label}: expected {_LARGEST:.1e} or less; use a larger unit")
    return number


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False
