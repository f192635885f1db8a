"""Sentence encoders: vectors whose cosine is the similarity of texts (Reimers & Gurevych 2019).

Shape letters: S sequences, E width of the vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from bertkit.batch import LabeledBatch, LabeledEncodings
from bertkit.errors import DataError, UsageError
from bertkit.later import F, torch
from bertkit.tasks.example_file import GuessRank
from bertkit.tasks.examples import NEGATIVE, QUERY, Sequences, TextSet
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.field_types import Widths
from bertkit.tasks.loss import Loss
from bertkit.tasks.losses import BatchLoss
from bertkit.tasks.losses.options import LossOptions, loss_class, losses_of
from bertkit.tasks.row_feed import RowFeed
from bertkit.tasks.similarity.datasets import BySize, ByTurns
from bertkit.tasks.similarity.rows import Roles, labeled_rows
from bertkit.tasks.similarity.scorer import ComparedVectors, SimilarityPrediction, SimilarityScorer
from bertkit.tasks.task import Option
from bertkit.tasks.text_sets import TEACHER, OfTextSets, check_rows, row_kind, shown
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["pairs", "scores", "binary"]


@dataclass(frozen=True)
class Similarity(OfTextSets):
    """Sentence vectors whose cosine is the similarity of the texts."""

    objective: str = "in-batch"
    objectives: tuple[str, ...] = ()  # the objective of each of several data sets; (): one data set
    kind: Kind = "pairs"  # of examples: texts that belong together, pairs with scores, pairs with 0 and 1
    dimensions: Widths = ()
    query_prompt: str = ""
    document_prompt: str = ""
    turns: bool = False  # data sets take turns; otherwise batches are drawn by size
    teacher: str = ""  # name of the model that scored the texts
    guide: str = ""  # name of the model that detects false negatives

    name: ClassVar[str] = "similarity"
    guess_rank: ClassVar[GuessRank | None] = GuessRank.TEXTS
    head: ClassVar[str] = ""
    files: ClassVar[str] = (
        "Texts that belong together, or pairs with scores: csv, tsv, jsonl, parquet or txt. Several files are separate "
        "data sets, each with its objective and batches."
    )
    whole: ClassVar[str] = "a sentence encoder uses one vector per text"
    pipeline: ClassVar[str] = "sentence-similarity"
    unit_vectors: ClassVar[bool | None] = None
    training_defaults: ClassVar[Mapping[str, Any]] = {"learning_rate": 2e-5, "num_epochs": 1}
    options: ClassVar[Mapping[str, Option]] = LossOptions(  # pyrefly: ignore
        objectives=Option(list[str], "For similarity with several files: the objective of each, in the same order."),
        dimensions=Option(list[int], "For similarity: widths N; the first N components are trained as vectors too."),
        query_prompt=Option(str, "For similarity: prefix of every query."),
        document_prompt=Option(str, "For similarity: prefix of every positive and negative."),
        turns=Option(bool, "For similarity with several files: take batches from the files in turn, not by size."),
        teacher=TEACHER,
        guide=Option(
            str,
            "For similarity with negatives from the batch: a sentence encoder; texts that it scores above a positive "
            "are masked.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        losses = losses_of(self.name).items()
        if self.guide:
            self.check_effect("guide", [name for name, loss in losses if loss.uses_guide])
        if self.teacher:
            self.check_effect("teacher", [name for name, loss in losses if loss.needs == "teacher"])
        if self.turns and not self.objectives:
            raise UsageError("turns has no effect on one data set: omit it, or give several files")

    @property
    def all_objectives(self) -> tuple[str, ...]:
        return self.objectives or (self.objective,)

    @property
    def feed(self) -> type[LabeledFeed]:  # pyrefly: ignore
        """The batches of one data set, or of several."""
        return RowFeed if not self.objectives else ByTurns if self.turns else BySize

    @property
    def best_by(self) -> str:  # pyrefly: ignore
        """The metric of its kind of examples."""
        return {"pairs": "mrr", "scores": "spearman", "binary": "average_precision"}[self.kind]

    @property
    def prompts(self) -> dict[str, str]:
        """Prompts that the model is saved with, as sentence-transformers names them."""
        prompts = {"query": self.query_prompt, "document": self.document_prompt}
        return prompts if any(prompts.values()) else {}

    @classmethod
    def of_examples(cls, examples: Sequence[TextSet], options: Mapping[str, Any]) -> Self:
        """As `TextTask.of_examples`; with several data sets, metrics are for the kind of examples in the first one.

        Raises:
            DataError: no rows; missing scores, negatives or rows that the objective needs; a score out of range.
            UsageError: different numbers of objectives and data sets.
        """
        cls.check_options(options)
        numbers = sorted({row.dataset for row in examples}) or [0]
        asked = options.get("objectives") or (options.get("objective"),) * len(numbers)
        if len(asked) != len(numbers):
            raise UsageError(f"{len(asked)} objectives for {len(numbers)} files: give one for each, in their order")
        datasets = [[row for row in examples if row.dataset == number] for number in numbers]
        has_teacher = bool(options.get("teacher"))
        objectives = tuple(map(cls._objective_of, datasets, asked, [has_teacher] * len(datasets)))
        kind = row_kind(datasets[0])
        return cls.of_options(
            options,
            objective=objectives[0],
            objectives=objectives if len(objectives) > 1 else (),
            kind="pairs" if kind == "teacher" else kind,
        )

    @classmethod
    def _objective_of(cls, examples: Sequence[TextSet], objective: str | None, has_teacher: bool) -> str:
        """The objective of a data set, by default that for its kind of rows, which are checked."""
        if len(examples) < 2:
            raise DataError(f"{len(examples)} rows: expected at least two, to compare texts of one with the other")
        check_rows(examples, has_teacher=has_teacher)
        needs_teacher = bool(objective) and loss_class(cls.name, objective or "").needs == "teacher"
        for row in examples:
            if not all(map(math.isfinite, row.targets)):
                raise row.error(f"its scores are {shown(row.targets)}: expected finite numbers")
            is_taught = len(row.scores) > 1 or row.score is not None or (has_teacher and not row.scores)
            if needs_teacher and not is_taught:
                raise row.error(
                    f"has {len(row.scores)} scores of texts: objective={objective} needs two or more; name a "
                    "--teacher to compute them, and add negatives (bertkit mine) where a row has one text"
                )
        objective = cls.objective_for(examples, objective)
        scores = {row.score for row in examples} - {None}
        if len(scores) == 1:
            raise DataError(f"every pair has the score {scores.pop():g}: there is nothing to learn")
        if len({text for row in examples for text in row.texts}) == 1:
            raise DataError("every text is the same: expected different texts")
        return objective

    def sequences(self, examples: Sequence[TextSet]) -> Sequences:
        """As `TextTask.sequences`: one for each text, after the prompt for its role."""
        example_of = [number for number, example in enumerate(examples) for _ in example.roles]
        texts = [
            (self.query_prompt if role == QUERY else self.document_prompt) + text
            for example in examples
            for text, role in zip(example.texts, example.roles, strict=True)
        ]
        return Sequences(texts, None, example_of)

    def encode(
        self, tokenizer: Tokenizer, examples: Sequence[TextSet], layout: Layout, first_index: int = 0
    ) -> Encodings:
        encodings = super().encode(tokenizer, examples, layout, first_index)
        if not self.prompts:
            return encodings
        of_query, of_document = map(tokenizer.num_known, (self.query_prompt, self.document_prompt))
        roles = [role for example in examples for role in example.roles]
        return encodings.after_prompts([of_query if role == QUERY else of_document for role in roles])

    def labeled(self, examples: Sequence[TextSet], encodings: Encodings) -> LabeledEncodings:
        return labeled_rows(examples, encodings)

    def totals(self, batch: LabeledBatch) -> Tensor:
        """(1,) rows."""
        return torch.tensor([(batch.labels.role == QUERY).sum()], dtype=torch.float64)

    def loss(self, outputs: Any, part: LabeledBatch, totals: Tensor) -> Loss:
        """The objective's loss of the (S, E) vectors of a whole batch."""
        if self.dimensions and max(self.dimensions) > outputs.shape[1]:
            raise UsageError(f"dimensions={list(self.dimensions)}: this model's vectors have {outputs.shape[1]}")
        return self.result(self.batch_loss(outputs, Roles.of(part.labels)), totals)

    def batch_loss(self, vectors: Tensor, roles: Roles) -> BatchLoss:
        """The loss of (S, E) vectors of a data set; with ``dimensions`` the sum over vectors truncated to each of these
        widths and normalized (Matryoshka, Kusupati et al. 2022)."""
        loss = self.losses[roles.dataset]
        if not self.dimensions:
            return loss(vectors, roles)
        parts = [loss(F.normalize(vectors[:, :width], dim=-1), roles) for width in self.dimensions]
        return BatchLoss(torch.stack([part.value for part in parts]).sum(), parts[0].sums)

    def decode(self, examples: Sequence[TextSet], encodings: Encodings, logits: np.ndarray) -> list[ComparedVectors]:
        """As `TextTask.decode`: cosines of a text with its positive and negatives."""
        lengths = np.linalg.norm(logits, axis=1, keepdims=True)
        unit = np.divide(logits, lengths, out=np.zeros_like(logits), where=lengths > 0)
        predictions, start = [], 0
        for example in examples:
            vectors = unit[start : start + len(example.roles)]
            start += len(vectors)
            predictions.append(ComparedVectors.of(vectors, np.array(example.roles[1:]) == NEGATIVE))
        return predictions

    def constant_predictions(
        self, train: Sequence[TextSet], dev: Sequence[TextSet]
    ) -> tuple[str, list[ComparedVectors]]:
        """As `TextTask.constant_predictions`: all pairs are equally similar."""
        return "equal similarity", [
            ComparedVectors.of(np.zeros((len(row.roles), 1)), np.array(row.roles[1:]) == NEGATIVE) for row in dev
        ]

    def choices_for(self, train: Sequence[TextSet]) -> Iterator[str]:
        """As `TextTask.choices_for`: also the rows without a second text."""
        yield from super().choices_for(train)
        if alone := sum(not row.positives for row in train):
            yield f"{alone:,} of {len(train):,} rows are single texts, each its own positive with another dropout mask"

    def card_facts(self) -> dict[str, Any]:
        """As `TextTask.card_facts`: also the similarity of the vectors."""
        return super().card_facts() | {"similarity": "cosine"}

    def score_of(self, prediction: SimilarityPrediction) -> float:
        """As `OfTextSets.score_of`: the cosine."""
        return prediction.score

    def scorer(self) -> SimilarityScorer:
        return SimilarityScorer(self.kind)
