"""Base class of tasks over texts with positives and negatives, with checks and metrics."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from bertkit.errors import UsageError
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import TextSet
from bertkit.tasks.metrics import number_results
from bertkit.tasks.reading.text_sets import read_text_sets
from bertkit.tasks.task import Option, RowScorer, TextTask
from bertkit.tasks.thresholds import average_precision, best_threshold

TEACHER = Option(
    str,
    "For alignment: the sentence encoder to reproduce; for similarity and cross-encoder: the model that "
    "scores the texts of each query.",
)


@dataclass(frozen=True)
class OfTextSets(TextTask):
    """A task over `TextSet`."""

    of_tokens: ClassVar[bool] = False
    of_vectors: ClassVar[bool] = True
    example_type: ClassVar[type] = TextSet
    reads_windows: ClassVar[bool] = False

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[TextSet]:
        return read_text_sets(file.path, labeled=file.labeled, columns=file.columns, bad_rows=file.bad_rows)

    @classmethod
    def card_example(cls, example: TextSet) -> str:
        return '("A good day.", "The day is good.")'

    @classmethod
    def example(cls, item: Any, label: Any = None, location: str = "") -> TextSet:
        """As `TextTask.example`: (text, positive, negative, ...), or a text alone; the label is the score of a pair."""
        if isinstance(item, TextSet):
            return item
        texts = [item] if isinstance(item, str) else item
        if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"an example is {item!r:.80}: expected a text, or a text with a positive and negatives")
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
