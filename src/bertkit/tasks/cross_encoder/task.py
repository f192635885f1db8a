"""Cross-encoders (Nogueira & Cho 2019): query and text form one sequence, and the head returns one score.

Shape letters: S pairs, N queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bertkit.batch import LabelColumns, LabeledBatch, LabeledEncodings
from bertkit.errors import DataError
from bertkit.later import torch
from bertkit.tasks.cross_encoder.scorer import Kind, ScoredTexts, TextScores
from bertkit.tasks.examples import Sequences, TextSet
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.loss import Loss, exact
from bertkit.tasks.losses import BatchLoss
from bertkit.tasks.losses.options import LossOptions
from bertkit.tasks.row_feed import RowFeed
from bertkit.tasks.task import Option, TextTask
from bertkit.tasks.text_sets import TEACHER, OfTextSets, check_rows, row_kind, shown
from bertkit.tokenizer import Encodings

if TYPE_CHECKING:
    from torch import Tensor

    from bertkit.architectures import NetworkOutput


@dataclass(frozen=True)
class CrossEncoding(OfTextSets):
    """Scores of the texts of a query by a cross-encoder."""

    label_names: tuple[str, ...] = ("score",)
    objective: str = "cross-entropy"
    kind: Kind = "scores"  # of examples

    name: ClassVar[str] = "cross-encoder"
    head: ClassVar[str] = "sequence_classification"
    feed: ClassVar[type[LabeledFeed]] = RowFeed
    whole: ClassVar[str] = "a pair has one score"
    pipeline: ClassVar[str] = "text-ranking"
    training_defaults: ClassVar[Mapping[str, Any]] = {"learning_rate": 2e-5, "num_epochs": 1}
    options: ClassVar[Mapping[str, Option]] = LossOptions(teacher=TEACHER)  # pyrefly: ignore

    @property
    def best_by(self) -> str:  # pyrefly: ignore
        """The metric of its kind of examples."""
        return {"lists": "ndcg_at_10", "scores": "spearman", "binary": "average_precision"}[self.kind]

    @property
    def known_labels(self) -> None:
        """Scores have no names."""
        return None

    @property
    def score_activation(self) -> str:
        """As `TextTask.score_activation`: maps logits to the range of the targets."""
        return self.losses[0].activation

    @classmethod
    def of_examples(cls, examples: Sequence[TextSet], options: Mapping[str, Any]) -> Self:
        """As `TextTask.of_examples`.

        Raises:
            DataError: no rows, a row without a text to score, or targets that are all equal or invalid for the
                objective.
        """
        cls.check_options(options, examples)
        check_rows(examples, has_teacher=bool(options.get("teacher")))
        scores = [score for row in examples for score in _targets(row)]
        objective = cls.objective_for(examples, options.get("objective"))
        if len(set(scores)) == 1:
            raise DataError(
                f"every text has the score {scores[0]:g}: expected different scores; add negatives (bertkit mine)"
            )
        kinds: Mapping[str, Kind] = {"pairs": "lists", "teacher": "scores", "scores": "scores", "binary": "binary"}
        return cls.of_options(options, objective=objective, kind=kinds[row_kind(examples)])

    def sequences(self, examples: Sequence[TextSet]) -> Sequences:
        """As `TextTask.sequences`: one for each text, with its query."""
        example_of = [number for number, example in enumerate(examples) for _ in example.texts[1:]]
        texts = [text for example in examples for text in example.texts[1:]]
        return Sequences([examples[number].query for number in example_of], texts, example_of)

    def labeled(self, examples: Sequence[TextSet], encodings: Encodings) -> LabeledEncodings:
        """As `TextTask.labeled`: the row and the target of each pair."""
        targets = np.array([target for row in examples for target in _targets(row)], np.float64)
        return LabeledEncodings(encodings, LabelColumns(row=encodings.text_index.astype(np.int64), target=targets))

    def vectors(self, outputs: NetworkOutput) -> Tensor:
        """(S, 1) scores, the input of the loss of the whole batch."""
        return exact(outputs.logits[self.head])

    def adopt_head(self, head: Any, stored: TextTask | None) -> bool:
        """As `TextTask.adopt_head`: any head with one output."""
        return head.classifier.out_features == 1

    def totals(self, batch: LabeledBatch) -> Tensor:
        """(1,) pairs."""
        return torch.tensor([len(batch.labels)], dtype=torch.float64)

    def loss(self, outputs: Any, part: LabeledBatch, totals: Tensor) -> Loss:
        """The objective's loss of the (S, 1) scores of a whole batch."""
        targets, rows = part.labels.target.to(outputs.dtype), part.labels.row
        return self.result(BatchLoss(self.losses[0].of_scores(outputs.squeeze(1), targets, rows)), totals)

    def decode(self, examples: Sequence[TextSet], encodings: Encodings, logits: np.ndarray) -> list[TextScores]:
        """As `TextTask.decode`: the scores of the texts of each query."""
        scores = torch.from_numpy(logits[:, 0])
        values = (scores.sigmoid() if self.score_activation == "Sigmoid" else scores).tolist()
        predictions, start = [], 0
        for example in examples:
            end = start + len(example.texts) - 1
            predictions.append(TextScores(tuple(values[start:end])))
            start = end
        return predictions

    def constant_predictions(self, train: Sequence[TextSet], dev: Sequence[TextSet]) -> tuple[str, list[TextScores]]:
        """As `TextTask.constant_predictions`: the same score for every text."""
        return "equal scores", [TextScores((0.0,) * (len(row.texts) - 1)) for row in dev]

    def score_of(self, prediction: TextScores) -> float:
        return prediction.scores[0]

    def scorer(self) -> ScoredTexts:
        return ScoredTexts(self.kind, _targets)


def _targets(row: TextSet) -> tuple[float, ...]:
    """The target of each text of a row.

    Raises:
        DataError: a row without a text to score, or with a score that is not finite.
    """
    if not row.positives and not row.negatives:
        raise row.error("has a query but no text to score: give it positives or negatives")
    if not all(map(math.isfinite, row.targets)):
        raise row.error(f"its scores are {shown(row.targets)}: expected finite numbers")
    return row.targets
