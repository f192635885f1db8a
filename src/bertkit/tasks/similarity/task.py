"""Sentence encoders: vectors whose cosine is the similarity of texts (Reimers & Gurevych 2019).

Shape letters: S sequences, E width of the vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from bertkit.batch import Batch, LabeledBatch, LabeledEncodings
from bertkit.errors import DataError, UsageError
from bertkit.later import torch
from bertkit.tasks.examples import NEGATIVE, QUERY, TextSet, naming_long_ones
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.row_feed import RowFeed
from bertkit.tasks.similarity.datasets import BySize, ByTurns
from bertkit.tasks.similarity.losses import DIRECTIONS, OBJECTIVES, LossOptions, loss_of
from bertkit.tasks.similarity.rows import Roles, labeled_rows
from bertkit.tasks.similarity.scorer import ComparedVectors, SimilarityPrediction, SimilarityScorer
from bertkit.tasks.task import Loss, Option
from bertkit.tasks.text_sets import TEACHER, OfTextSets, check_rows
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor

    from bertkit.architectures import Network
    from bertkit.transformer import EncoderOutput

Kind = Literal["pairs", "scores", "binary"]

_SCORED = ("cosent", "cosine", "contrastive")
_TAUGHT = ("margin", "divergence")  # objectives with a score for each text
_MARGINS = {"triplet": 1.0}
_TEMPERATURES = {"divergence": 1.0}
_OF_OBJECTIVES = {  # options that only some objectives have
    "temperature": ("in-batch", "cosent", "divergence"),
    "margin": ("triplet", "contrastive"),
    "directions": ("in-batch",),
    "guide": ("in-batch",),
    "teacher": _TAUGHT,
}
_USUAL_MARGIN, _USUAL_TEMPERATURE = 0.5, 0.05


@dataclass(frozen=True)
class Similarity(OfTextSets):
    """Sentence vectors whose cosine is the similarity of the texts."""

    objective: str = "in-batch"  # a name from OBJECTIVES
    objectives: tuple[str, ...] = ()  # the objective of each of several data sets; (): one data set
    kind: Kind = "pairs"  # of examples: texts that belong together, pairs with scores, pairs with 0 and 1
    temperature: float | None = None  # None: the default of the objective
    margin: float | None = None  # None: the default of the objective
    directions: str = "query-to-document"
    dimensions: tuple[int, ...] = ()
    query_prompt: str = ""
    document_prompt: str = ""
    turns: bool = False  # data sets take turns; otherwise batches are drawn by size
    teacher: str = ""  # name of the model that scored the texts
    guide: str = ""  # name of the model that detects false negatives

    name: ClassVar[str] = "similarity"
    head: ClassVar[str] = ""
    pipeline: ClassVar[str] = "sentence-similarity"
    unit_vectors: ClassVar[bool | None] = None
    training_defaults: ClassVar[Mapping[str, Any]] = {"learning_rate": 2e-5, "num_epochs": 1}
    options: ClassVar[Mapping[str, Option]] = {
        "objective": Option(
            str, f"For similarity: {', '.join(OBJECTIVES)}; by default contrastive for scores of 0 and 1, cosent for "
            "other scores, margin for texts with scores of a teacher, and in-batch for pairs, triplets and texts."
        ),
        "objectives": Option(list[str], "For similarity with several files: the objective of each, in the same order."),
        "temperature": Option(
            float, "For similarity: divisor of cosines in in-batch and cosent (default 0.05), and of inner products in "
            "divergence (default 1)."
        ),
        "margin": Option(float, "For similarity: by default 1 for triplet (Euclidean), 0.5 for contrastive (cosine)."),
        "directions": Option(str, f"For similarity with in-batch: {', '.join(DIRECTIONS)}."),
        "dimensions": Option(list[int], "For similarity: widths N; the first N components are trained as vectors too."),
        "query_prompt": Option(str, "For similarity: prefix of every query."),
        "document_prompt": Option(str, "For similarity: prefix of every positive and negative."),
        "turns": Option(bool, "For similarity with several files: take batches from the files in turn, not by size."),
        "teacher": TEACHER,
        "guide": Option(
            str,
            "For similarity with in-batch: a sentence encoder; texts that it scores above a positive are masked.",
        ),
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in [(self.directions, DIRECTIONS), *((one, OBJECTIVES) for one in self._all_objectives)]:
            if name not in known:
                option = "directions" if known is DIRECTIONS else "objective"
                raise UsageError(f"{option}={name!r}: expected one of {', '.join(known)}")
        for objective in self._all_objectives:
            options = self._loss_options(objective)
            if not 0 < options.temperature < math.inf or not 0 <= options.margin < math.inf:
                raise UsageError(
                    f"temperature={options.temperature!r}, margin={options.margin!r}: expected numbers above 0, and at "
                    "least 0"
                )
        if any(width < 1 for width in self.dimensions) or len(set(self.dimensions)) < len(self.dimensions):
            raise UsageError(f"dimensions={list(self.dimensions)}: expected different widths of at least 1")

    @property
    def _all_objectives(self) -> tuple[str, ...]:
        """The objective of each data set."""
        return self.objectives or (self.objective,)

    def _loss_options(self, objective: str) -> LossOptions:
        temperature, margin = self.temperature, self.margin
        return LossOptions(
            _TEMPERATURES.get(objective, _USUAL_TEMPERATURE) if temperature is None else temperature,
            _MARGINS.get(objective, _USUAL_MARGIN) if margin is None else margin,
            self.directions,
        )

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
        numbers = sorted({row.dataset for row in examples})
        asked = tuple(options.get("objectives") or ())
        if asked and len(asked) != len(numbers):
            raise UsageError(f"{len(asked)} objectives for {len(numbers)} files: give one for each, in their order")
        if len(numbers) < 2:
            own = {"objectives": (), "objective": asked[0]} if asked else {}
            return cls._of_dataset(examples, dict(options) | own)._checked(options)
        tasks = []
        for position, number in enumerate(numbers):
            rows = [row for row in examples if row.dataset == number]
            own = {"objectives": ()} | ({"objective": asked[position]} if asked else {})
            tasks.append(cls._of_dataset(rows, dict(options) | own))
        return replace(tasks[0], objectives=tuple(task.objective for task in tasks))._checked(options)

    def _checked(self, options: Mapping[str, Any]) -> Self:
        """Check that every option has an effect.

        Raises:
            UsageError: an option of another objective, or of several data sets.
        """
        for name, objectives in _OF_OBJECTIVES.items():
            is_given = options.get(name) not in (None, getattr(type(self), name))
            if is_given and set(objectives).isdisjoint(self._all_objectives):
                raise UsageError(
                    f"{name} has no effect on objective={', '.join(self._all_objectives)}, only on "
                    f"{', '.join(objectives)}: omit it, or choose another objective"
                )
        if options.get("turns") and not self.objectives:
            raise UsageError("turns has no effect on one data set: omit it, or give several files")
        return self

    @classmethod
    def _of_dataset(cls, examples: Sequence[TextSet], options: Mapping[str, Any]) -> Self:
        if len(examples) < 2:
            raise DataError(f"{len(examples)} rows: expected at least two, to compare texts of one with the other")
        check_rows(examples, has_teacher=bool(options.get("teacher")))
        scores = [row.score for row in examples if row.score is not None]
        kind: Kind = "pairs" if not scores else "binary" if {0.0, 1.0} == set(scores) else "scores"
        taught = kind == "pairs" and all(row.scores for row in examples)
        usual = {"pairs": "margin" if taught else "in-batch", "scores": "cosent", "binary": "contrastive"}
        settings: dict[str, Any] = {"objective": usual[kind], "kind": kind}
        task = cls(**settings | dict(options))
        task._check_scores(examples, scores)
        if len({text for row in examples for text in row.texts}) == 1:
            raise DataError("every text is the same: expected different texts")
        without = [row for row in examples if not row.negatives] if task.objective == "triplet" else []
        if without:
            raise without[0].error(
                f"has no negative, as {len(without)} of {len(examples)} rows: objective=triplet needs a negative in "
                "every row; add negatives (bertkit mine), leave out these rows, or use in-batch"
            )
        return task

    def _check_scores(self, examples: Sequence[TextSet], scores: Sequence[float]) -> None:
        if self.objective in _SCORED and not scores:
            raise DataError(f"objective={self.objective} needs a score for each pair, and no row has one")
        if self.objective not in _SCORED and scores:
            raise DataError(f"objective={self.objective} takes rows without scores: use {', '.join(_SCORED)}")
        for row in examples:
            if self.objective in _TAUGHT and len(row.scores) < 2 and (row.scores or not self.teacher):
                raise row.error(
                    f"has {len(row.scores)} scores of texts: objective={self.objective} needs two or more; name a "
                    "--teacher to compute them, and add negatives (bertkit mine) where a row has one text"
                )
            if any(not math.isfinite(score) for score in (row.score or 0.0, *row.scores)):
                raise row.error(f"its score is {row.score or row.scores}: expected a finite number")
            if self.objective == "cosine" and not -1 <= (row.score or 0.0) <= 1:
                raise row.error(
                    f"its score is {row.score}: objective=cosine expects -1 to 1; divide the scores, or use cosent, "
                    "which reads their order alone"
                )
            if self.objective == "contrastive" and row.score not in (0, 1):
                raise row.error(f"its score is {row.score}: objective=contrastive expects 0 and 1")
        if scores and min(scores) == max(scores):
            raise DataError(f"every pair has the score {scores[0]:g}: there is nothing to learn")

    def encode(
        self, tokenizer: Tokenizer, examples: Sequence[TextSet], layout: Layout, first_index: int = 0
    ) -> Encodings:
        """As `TextTask.encode`: a sequence for each text."""
        if layout.on_long == "window":
            raise UsageError("a sentence encoder uses one vector per text: use on_long='truncate' or 'error'")
        example_of = [number for number, example in enumerate(examples) for _ in example.roles]
        texts = [
            (self.query_prompt if role == QUERY else self.document_prompt) + text
            for example in examples
            for text, role in zip(example.texts, example.roles, strict=True)
        ]
        with naming_long_ones(examples, first_index, example_of):
            encodings = tokenizer.encode_batch(
                texts, max_length=layout.max_length, on_long=layout.on_long, first_index=first_index, with_offsets=False
            )
        if self.prompts:
            of_query, of_document = map(tokenizer.num_known, (self.query_prompt, self.document_prompt))
            roles = [role for example in examples for role in example.roles]
            encodings = encodings.after_prompts([of_query if role == QUERY else of_document for role in roles])
        return replace(encodings, text_index=np.array(example_of, encodings.text_index.dtype))

    def labeled(self, examples: Sequence[TextSet], encodings: Encodings) -> LabeledEncodings:
        """As `TextTask.labeled`."""
        return labeled_rows(examples, encodings)

    def totals(self, batch: LabeledBatch) -> Tensor:
        """(1,) rows."""
        return torch.tensor([(batch.labels[:, 1] == QUERY).sum()], dtype=torch.float64)

    def loss(self, outputs: Any, part: LabeledBatch, totals: Tensor) -> Loss:
        """The objective's loss of the (S, E) vectors of a whole batch."""
        if self.dimensions and max(self.dimensions) > outputs.shape[1]:
            raise UsageError(f"dimensions={list(self.dimensions)}: this model's vectors have {outputs.shape[1]}")
        roles = Roles.of(part.labels)
        objective = self._all_objectives[roles.dataset]
        loss = loss_of(objective, outputs, roles, self._loss_options(objective), self.dimensions)
        number = float(totals[0])
        sums = [float(loss.value.detach()) * number, loss.num_right, loss.num_masked, number]
        return Loss(loss.value, torch.tensor(sums, dtype=torch.float64))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Loss; for in-batch also the number of masked comparisons per row, and the share of rows whose positive is
        nearest in the batch."""
        loss, right, masked, number = sums.tolist()
        results = {"loss": loss / max(number, 1)}
        if "in-batch" in self._all_objectives:
            results |= {"nearest_accuracy": right / max(number, 1), "masked_per_row": masked / max(number, 1)}
        return results

    def read_out(self, network: Network, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """As `TextTask.read_out`: the sentence vectors."""
        return network.sentence_vectors(encoded, batch)

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

    def card_facts(self) -> dict[str, Any]:
        """As `TextTask.card_facts`: the losses, and the similarity of the vectors."""
        return {"objective": ", ".join(self._all_objectives), "similarity": "cosine"}

    def score_of(self, prediction: SimilarityPrediction) -> float:
        """As `OfTextSets.score_of`: the cosine."""
        return prediction.score

    def scorer(self) -> SimilarityScorer:
        return SimilarityScorer(self.kind)
