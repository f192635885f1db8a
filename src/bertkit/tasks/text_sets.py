"""Base class of tasks over texts with positives and negatives, with checks and metrics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bertkit.errors import DataError, UsageError
from bertkit.later import torch
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import TextSet, other_input
from bertkit.tasks.loss import Loss
from bertkit.tasks.losses import BatchLoss
from bertkit.tasks.losses.loss import RowKind
from bertkit.tasks.losses.options import loss_class, losses_of, parameters_of
from bertkit.tasks.metrics import number_results
from bertkit.tasks.reading.text_sets import read_text_sets
from bertkit.tasks.scorer import RowScorer
from bertkit.tasks.task import Option, TextTask
from bertkit.tasks.thresholds import average_precision, best_threshold

if TYPE_CHECKING:
    from torch import Tensor

TEACHER = Option(
    str,
    "For alignment: the sentence encoder to reproduce; for similarity and cross-encoder: the model that "
    "scores the texts of each query.",
)


@dataclass(frozen=True)
class OfTextSets(TextTask):
    """A task over `TextSet` with losses.

    Raises:
        UsageError: an unknown objective, or a parameter that none of the losses has or whose value is invalid.
    """

    objective: str = ""  # of the losses of the task
    loss_parameters: dict[str, Any] | None = None  # of the losses, by name, where they differ from the defaults

    of_tokens: ClassVar[bool] = False
    of_vectors: ClassVar[bool] = True
    example_type: ClassVar[type] = TextSet

    def __post_init__(self) -> None:
        super().__post_init__()
        having = parameters_of(self.name)
        for name in self.loss_parameters or {}:
            if name not in having:
                raise UsageError(f"{self.name} has no loss with {name}: expected any of {', '.join(having)}")
            self.check_effect(name, having[name])
        _ = self.losses  # their parameters are checked

    @property
    def all_objectives(self) -> tuple[str, ...]:
        """The objective of each data set."""
        return (self.objective,)

    @cached_property
    def losses(self) -> tuple[Any, ...]:
        """The loss of each data set, with those of the parameters that it has."""
        given, having = self.loss_parameters or {}, parameters_of(self.name)
        return tuple(
            loss_class(self.name, objective)(**{name: given[name] for name in given if objective in having[name]})
            for objective in self.all_objectives
        )

    def check_effect(self, option: str, objectives: Sequence[str]) -> None:
        """Check that an option, which has an effect on these objectives, has one on this task.

        Raises:
            UsageError: it has none.
        """
        if set(objectives).isdisjoint(self.all_objectives):
            raise UsageError(
                f"{option} has no effect on objective={', '.join(self.all_objectives)}, only on "
                f"{', '.join(objectives)}: omit it, or choose another objective"
            )

    @classmethod
    def of_options(cls, options: Mapping[str, Any], **settings: Any) -> Self:
        """A task with the options that were given, not None, and further settings."""
        given = {name: value for name, value in options.items() if value is not None}
        parameters = {name: given.pop(name) for name in parameters_of(cls.name) if name in given}
        own = {part.name: given[part.name] for part in fields(cls) if part.name in given}
        return cls(**own | settings, loss_parameters=parameters or None)

    @classmethod
    def objective_for(cls, rows: Sequence[TextSet], objective: str | None = None) -> str:
        """The objective, by default the first for this kind of rows, which are checked.

        Raises:
            DataError: scores that are missing, not used or out of range, or rows without negatives.
            UsageError: an unknown objective.
        """
        losses, taking = losses_of(cls.name), losses_of(cls.name, "scores", "binary", "any")
        kind, scores = row_kind(rows), {score for row in rows for score in row.targets}
        usual = next(name for name, loss in losses.items() if kind in loss.default_for and loss.fits(list(scores)))
        objective = objective or usual
        loss = loss_class(cls.name, objective)
        if loss.needs in ("scores", "binary") and kind not in ("scores", "binary"):
            raise DataError(f"objective={objective} needs a score for each pair, and no row has one")
        if objective not in taking and kind in ("scores", "binary"):
            raise DataError(f"objective={objective} takes rows without scores: use {', '.join(taking)}")
        if loss.needs in ("lists", "teacher") and all(len(row.texts) < 3 for row in rows):
            raise DataError(
                f"objective={objective} compares several texts of a query, and every row has one: add negatives "
                "(bertkit mine), or give pairs scores"
            )
        without = [row for row in rows if not row.negatives] if loss.needs == "triplets" else []
        if without:
            raise without[0].error(
                f"has no negative, as {len(without)} of {len(rows)} rows: objective={objective} needs a negative in "
                f"every row; add negatives (bertkit mine), leave out these rows, or use {usual}"
            )
        for row in rows:
            if not loss.fits(row.targets):
                expected = "0 and 1" if loss.needs == "binary" else "{:g} to {:g}".format(*loss.score_range)
                raise row.error(
                    f"its scores are {shown(row.targets)}: objective={objective} expects {expected}; change them, or "
                    f"use {' or '.join(name for name, other in taking.items() if other.fits(row.targets))}"
                )
        return objective

    def result(self, loss: BatchLoss, totals: Tensor) -> Loss:
        """The loss of a batch with these totals, and the sums for `metrics`."""
        number = float(totals[0])
        sums = [float(loss.value.detach()) * number, *(loss.sums.get(name, 0.0) for name in self._metrics[1:]), number]
        return Loss(loss.value, torch.tensor(sums, dtype=torch.float64))

    @property
    def _metrics(self) -> list[str]:
        return ["loss", *dict.fromkeys(name for loss in self.losses for name in loss.metrics)]

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """As `TextTask.metrics`: the loss, and the metrics of the losses per row."""
        *values, number = sums.tolist()
        return {name: value / max(number, 1) for name, value in zip(self._metrics, values, strict=True)}

    def choices_for(self, train: Sequence[TextSet]) -> Iterator[str]:
        """As `TextTask.choices_for`: also the objectives, and what the rows have."""
        negatives = sum(bool(row.negatives) for row in train)
        yield f"objective {', '.join(self.all_objectives)}: {len(train):,} rows, {negatives:,} of them with negatives"
        yield from super().choices_for(train)

    def card_facts(self) -> dict[str, Any]:
        """As `TextTask.card_facts`: the losses."""
        return {"objective": ", ".join(self.all_objectives)}

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[TextSet]:
        return read_text_sets(file)

    @classmethod
    def example(cls, item: Any, label: Any = None, location: str = "") -> TextSet:
        """As `TextTask.example`: (text, positive, negative, ...), or a text alone; the label is the score of a pair."""
        if isinstance(item, TextSet):
            return item
        texts = [item] if isinstance(item, str) else item
        if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
            raise other_input(item, "a text, or a text with a positive and negatives", location)
        if label is not None and (not isinstance(label, Real | np.bool_) or len(texts) != 2):
            raise UsageError(f"an example with the score {label!r:.40} has {len(texts)} texts: expected a pair")
        score = None if label is None else float(label)
        return TextSet(texts[0], tuple(texts[1:2]), tuple(texts[2:]), score, location)

    @classmethod
    def unusable_examples(cls, examples: Sequence[TextSet], *, held_out: bool = False) -> list[tuple[TextSet, str]]:
        """As `TextTask.unusable_examples`: rows that contradict another one."""
        return list(_contradictions(examples))

    @abstractmethod
    def scorer(self) -> RowScorer:
        """As `TextTask.scorer`."""

    @abstractmethod
    def score_of(self, prediction: Any) -> float:
        """The predicted score of a scored pair."""

    @classmethod
    def in_dataset(cls, example: TextSet, number: int) -> TextSet:
        return replace(example, dataset=number)


def check_rows(rows: Sequence[TextSet], *, has_teacher: bool) -> None:
    """Check that no rows contradict each other, and that all are of one kind.

    Args:
        has_teacher: rows without scores of a teacher get them later.

    Raises:
        DataError: a text that is both a positive and a negative of a query, a pair with the scores 0 and 1, or a row
            with different numbers of scores and texts, or without scores where others have them.
        UsageError: rows of different kinds: with and without scores.
    """
    scored = [row for row in rows if row.score is not None]
    if scored and len(scored) < len(rows):
        raise UsageError("some rows have a score and others do not: give all rows a score, or none")
    for row in rows:
        if row.scores and len(row.scores) != len(row.texts) - 1:
            raise row.error(f"has {len(row.scores)} scores for {len(row.texts) - 1} texts: give each text one")
    without = [row for row in rows if not row.scores]
    if 0 < len(without) < len(rows) and not has_teacher:
        raise without[0].error(
            f"has no scores, as {len(without)} of {len(rows)} rows: give all rows scores, or none; a --teacher adds "
            "those that are missing"
        )
    for row, problem in _contradictions(rows):
        raise row.error(problem)


def row_kind(rows: Sequence[TextSet]) -> RowKind:
    """The kind of rows that `check_rows` accepts."""
    scores = {row.score for row in rows if row.score is not None}
    if scores:
        return "binary" if scores == {0.0, 1.0} else "scores"
    return "teacher" if rows and all(row.scores for row in rows) else "pairs"


def shown(scores: Sequence[float]) -> str:
    """The first scores, in an error."""
    return ", ".join(f"{score:g}" for score in scores[:5])


def _contradictions(rows: Sequence[TextSet]) -> Iterator[tuple[TextSet, str]]:
    """Rows that contradict another one: with a negative that is a positive of the same text there, or the second one of
    a pair with the scores 0 and 1."""
    positives = {(row.query, text): row for row in rows if row.score is None for text in row.positives}
    is_binary, scored = {row.score for row in rows} <= {None, 0.0, 1.0}, {}
    for row in rows:
        for text in row.negatives:
            if (other := positives.get((row.query, text))) is not None:
                yield (
                    row,
                    f"{text[:60]!r} is a negative here and a positive of the same text in {other.location or 'it'}",
                )
                break
        if is_binary and row.score is not None:
            first = scored.setdefault((row.query, row.positives), row)
            if first.score != row.score:
                yield (
                    row,
                    f"the pair has the score {row.score:g} here and {first.score:g} in {first.location or 'a row'}",
                )


def pair_results(targets: np.ndarray, scores: np.ndarray, *, is_binary: bool) -> dict[str, float]:
    """Metrics of (N,) scores: Pearson's and Spearman's correlation with targets; for targets 0 and 1 average precision,
    and the best threshold with its F1 and accuracy."""
    if is_binary:
        return {"average_precision": average_precision(targets, scores), **best_threshold(targets, scores)}
    if not len(scores):
        return {"pearson": float("nan"), "spearman": float("nan")}
    results = number_results(targets, scores, np.ones((1, len(scores))))
    return {name: float(results[name][0]) for name in ("pearson", "spearman")}
