"""Alignment: train a student to reproduce the sentence vectors of a teacher.

Vujanic & Rueckstiess 2025, "LEAF" (arXiv 2509.12539): squared distance to the vector of the teacher, trained on texts
without labels. Student and teacher then share a space: either can embed queries for texts embedded by the other.
Shape letters: S texts, E width of the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bertkit.batch import LabeledBatch, LabeledEncodings
from bertkit.errors import DataError, UsageError
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import TaughtText, other_input
from bertkit.tasks.loss import Loss, LossFunction, mean_of, sums_of
from bertkit.tasks.reading.texts import read_labeled_file
from bertkit.tasks.task import Option, TextTask
from bertkit.tasks.text_sets import TEACHER
from bertkit.tokenizer import Encodings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class VectorPrediction:
    """The vector of a text."""

    vector: tuple[float, ...]


class VectorLoss(LossFunction):
    """Squared distance of (S, E) vectors, averaged over texts."""

    def loss(self, outputs: Tensor, part: LabeledBatch, totals: Tensor) -> Loss:
        loss = (outputs - part.labels).square().sum()
        return Loss(mean_of(loss, totals[0]), sums_of(loss, len(part.labels)))


@dataclass(frozen=True)
class Alignment(TextTask):
    """Vectors close to those of a teacher."""

    teacher: str = ""  # its name
    width: int = 0  # of its vectors
    has_unit_vectors: bool = True  # they have length 1

    name: ClassVar[str] = "alignment"
    head: ClassVar[str] = ""
    files: ClassVar[str] = "Texts without labels: csv, tsv, jsonl, parquet or txt."
    of_tokens: ClassVar[bool] = False
    best_by: ClassVar[str] = "vector_error"
    example_type: ClassVar[type] = TaughtText
    whole: ClassVar[str] = "alignment uses one vector per text"
    pipeline: ClassVar[str] = "sentence-similarity"
    training_defaults: ClassVar[Mapping[str, Any]] = {"learning_rate": 1e-4, "num_epochs": 1}
    options: ClassVar[Mapping[str, Option]] = {"teacher": TEACHER}

    @property
    def unit_vectors(self) -> bool | None:  # pyrefly: ignore
        """As `TextTask.unit_vectors`: False for a teacher whose vectors have other lengths."""
        return None if self.has_unit_vectors else False

    @property
    def vector_width(self) -> int | None:
        """As `TextTask.vector_width`: the teacher's."""
        return self.width or None

    @classmethod
    def of_examples(cls, examples: Sequence[TaughtText], options: Mapping[str, Any]) -> Self:
        """As `TextTask.of_examples`.

        Raises:
            DataError: no texts, or texts that the teacher did not embed.
            UsageError: no teacher.
        """
        cls.check_options(options)
        if not options.get("teacher"):
            raise UsageError("alignment needs a teacher: name a sentence encoder with teacher=")
        if not examples:
            raise DataError("no texts to train on: expected at least one")
        vectors = [example.vector for example in examples if example.vector is not None]
        width = len(vectors[0]) if vectors else 0  # until the teacher has embedded the texts
        is_unit = all(abs(np.linalg.norm(vector) - 1) < 1e-3 for vector in vectors)
        return cls(teacher=str(options["teacher"]), width=width, has_unit_vectors=is_unit)

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[TaughtText]:
        for example in read_labeled_file(file, None):
            yield TaughtText(example.text, location=example.location)

    @classmethod
    def example(cls, item: Any, label: Any = None, location: str = "") -> TaughtText:
        """As `TextTask.example`: a text; the label is its vector."""
        if isinstance(item, TaughtText):
            return item
        if not isinstance(item, str):
            raise other_input(item, "a text", location)
        return TaughtText(item, None if label is None else np.asarray(label, np.float32), location)

    def labeled(self, examples: Sequence[TaughtText], encodings: Encodings) -> LabeledEncodings:
        """As `TextTask.labeled`: (S, E) vectors of the teacher."""
        return LabeledEncodings(encodings, _vectors(examples), with_vectors=True)

    @property
    def loss_function(self) -> VectorLoss:
        return VectorLoss()

    def decode(
        self, examples: Sequence[TaughtText], encodings: Encodings, logits: np.ndarray
    ) -> list[VectorPrediction]:
        return [VectorPrediction(tuple(vector)) for vector in logits.tolist()]

    def constant_predictions(
        self, train: Sequence[TaughtText], dev: Sequence[TaughtText]
    ) -> tuple[str, list[VectorPrediction]]:
        """As `TextTask.constant_predictions`: the mean vector."""
        mean = tuple(_vectors(train).mean(axis=0).tolist())
        return "mean vector", [VectorPrediction(mean)] * len(dev)

    def scorer(self) -> AlignmentScorer:
        return AlignmentScorer()


class AlignmentScorer:
    """``vector_error``, the mean squared distance to the teacher vectors; ``mean_cosine`` with them."""

    def __init__(self) -> None:
        self._errors: list[np.ndarray] = []
        self._cosines: list[np.ndarray] = []

    def add(self, examples: Sequence[TaughtText], predictions: Sequence[VectorPrediction]) -> None:
        truth, predicted = _vectors(examples), np.array([one.vector for one in predictions], np.float32)
        self._errors.append(np.square(predicted - truth).sum(axis=1))
        lengths = np.linalg.norm(predicted, axis=1) * np.linalg.norm(truth, axis=1)
        self._cosines.append(np.divide((predicted * truth).sum(axis=1), lengths, out=lengths * 0, where=lengths > 0))

    def results(self) -> dict[str, float]:
        return {name: float(np.mean(rows)) if rows else float("nan") for name, rows in self.values().items()}

    def values(self) -> dict[str, list[float]]:
        names = {"vector_error": self._errors, "mean_cosine": self._cosines}
        return {name: [value for part in parts for value in part.tolist()] for name, parts in names.items()}


def _vectors(examples: Sequence[TaughtText]) -> np.ndarray:
    """(S, E) float32.

    Raises:
        DataError: a text without a vector, or with one of another width.
    """
    vectors: list[np.ndarray] = []
    for example in examples:
        if example.vector is None or example.vector.shape != (vectors or [example.vector])[0].shape:
            has = "no vector" if example.vector is None else f"a vector of shape {example.vector.shape}"
            raise example.error(f"has {has} of a teacher: train with one --teacher")
        vectors.append(example.vector)
    return np.stack(vectors).astype(np.float32)
