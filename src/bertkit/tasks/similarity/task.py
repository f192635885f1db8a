"""Sentence encoders: vectors whose cosine says how similar texts are (Reimers & Gurevych 2019).

Shape letters: S sequences, E width of the vectors.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from bertkit.architectures import Network
from bertkit.batch import Batch, LabeledBatch, LabeledEncodings
from bertkit.errors import DataError, UsageError
from bertkit.tasks.examples import NEGATIVE, QUERY, TextSet, naming_long_ones
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.reading.text_sets import read_text_sets
from bertkit.tasks.similarity.losses import DIRECTIONS, OBJECTIVES, LossOptions, loss_of
from bertkit.tasks.similarity.rows import Roles, RowFeed, check_rows, labeled_rows
from bertkit.tasks.similarity.scorer import ComparedVectors, SimilarityScorer
from bertkit.tasks.task import ExampleFile, Loss, Option, TextTask
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout
from bertkit.transformer import EncoderOutput

Kind = Literal["pairs", "scores", "binary"]

_SCORED = ("cosent", "cosine", "contrastive")
_MARGINS = {"triplet": 1.0, "contrastive": 0.5}


@dataclass(frozen=True)
class Similarity(TextTask):
    """Vectors of texts whose cosines say how similar they are."""

    objective: str = "in-batch"  # a name from OBJECTIVES
    kind: Kind = "pairs"  # of examples: texts that belong together, pairs with scores, pairs with 0 and 1
    temperature: float = 0.05
    margin: float = 0.5
    directions: str = "query-to-document"
    dimensions: tuple[int, ...] = ()
    query_prompt: str = ""
    document_prompt: str = ""

    name: ClassVar[str] = "similarity"
    head: ClassVar[str] = ""
    of_tokens: ClassVar[bool] = False
    example_type: ClassVar[type] = TextSet
    feed: ClassVar[type[LabeledFeed]] = RowFeed
    pipeline: ClassVar[str] = "sentence-similarity"
    of_vectors: ClassVar[bool] = True
    unit_vectors: ClassVar[bool] = False
    training_defaults: ClassVar[Mapping[str, Any]] = {"learning_rate": 2e-5, "num_epochs": 1}
    options: ClassVar[Mapping[str, Option]] = {
        "objective": Option(
            str, f"Of similarity: {', '.join(OBJECTIVES)}; by default contrastive for scores of 0 and 1, cosent for "
            "other scores, and in-batch for pairs, triplets and texts without scores."
        ),
        "temperature": Option(float, "Of similarity, what in-batch and cosent divide cosines by; by default 0.05."),
        "margin": Option(float, "Of similarity; by default 1 for triplet (Euclidean), 0.5 for contrastive (cosine)."),
        "directions": Option(str, f"Of similarity with in-batch: {', '.join(DIRECTIONS)}."),
        "dimensions": Option(list[int], "Of similarity: widths at which the first components are trained too."),
        "query_prompt": Option(str, "Of similarity: text put before every query."),
        "document_prompt": Option(str, "Of similarity: text put before every positive and negative."),
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, known in (("objective", OBJECTIVES), ("directions", DIRECTIONS)):
            if getattr(self, option) not in known:
                raise UsageError(f"{option}={getattr(self, option)!r}: expected one of {', '.join(known)}")
        if not 0 < self.temperature < math.inf or not 0 <= self.margin < math.inf:
            raise UsageError(
                f"temperature={self.temperature!r}, margin={self.margin!r}: expected numbers above 0, and at least 0"
            )
        if any(width < 1 for width in self.dimensions) or len(set(self.dimensions)) < len(self.dimensions):
            raise UsageError(f"dimensions={list(self.dimensions)}: expected different widths of at least 1")

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
        """As `TextTask.of_examples`.

        Raises:
            DataError: no rows; an objective that needs scores, negatives or several rows without them; a score out of
                range.
        """
        cls.check_options(options)
        if len(examples) < 2:
            raise DataError(f"{len(examples)} rows: expected at least two, to compare texts of one with the other")
        check_rows(examples)
        scores = [row.score for row in examples if row.score is not None]
        kind: Kind = "pairs" if not scores else "binary" if {0.0, 1.0} == set(scores) else "scores"
        usual = {"pairs": "in-batch", "scores": "cosent", "binary": "contrastive"}
        objective = options.get("objective") or usual[kind]
        settings: dict[str, Any] = {"objective": objective, "kind": kind, "margin": _MARGINS.get(objective, 0.5)}
        task = cls(**settings | dict(options))
        task._check_scores(examples, scores)
        if len({text for row in examples for text in row.texts}) == 1:
            raise DataError("every text is the same: there is nothing to learn")
        if objective == "triplet" and not any(row.negatives for row in examples):
            raise DataError("objective=triplet needs a negative in every row, and no row has one")
        return task

    def _check_scores(self, examples: Sequence[TextSet], scores: Sequence[float]) -> None:
        if self.objective in _SCORED and not scores:
            raise DataError(f"objective={self.objective} needs a score for each pair, and no row has one")
        if self.objective not in _SCORED and scores:
            raise DataError(f"objective={self.objective} takes rows without scores: use {', '.join(_SCORED)}")
        for row in examples:
            if row.score is not None and not math.isfinite(row.score):
                raise row.error(f"its score is {row.score}: expected a finite number")
            if self.objective == "cosine" and not -1 <= (row.score or 0.0) <= 1:
                raise row.error(
                    f"its score is {row.score}: objective=cosine expects -1 to 1; divide the scores, or use cosent, "
                    "which reads their order alone"
                )
            if self.objective == "contrastive" and row.score not in (0, 1):
                raise row.error(f"its score is {row.score}: objective=contrastive expects 0 and 1")
        if scores and min(scores) == max(scores):
            raise DataError(f"every pair has the score {scores[0]:g}: there is nothing to learn")

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[TextSet]:
        """As `TextTask.read`."""
        return read_text_sets(file.path, labeled=file.labeled, columns=file.columns, bad_rows=file.bad_rows)

    @classmethod
    def card_example(cls, example: TextSet) -> str:
        """As `TextTask.card_example`."""
        return '("A good day.", "The day is good.")'

    @classmethod
    def example(cls, item: Any, label: Any = None, place: str = "") -> TextSet:
        """As `TextTask.example`: (text, positive, negative, ...), or a text alone; the label is the score of a pair."""
        if isinstance(item, TextSet):
            return item
        texts = [item] if isinstance(item, str) else item
        if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"an example is {item!r:.80}: expected a text, or a text with a positive and negatives")
        if label is not None and (not isinstance(label, Real | np.bool_) or len(texts) != 2):
            raise UsageError(f"an example with the score {label!r:.40} has {len(texts)} texts: expected a pair")
        score = None if label is None else float(label)
        return TextSet(texts[0], tuple(texts[1:2]), tuple(texts[2:]), score, place)

    def encode(
        self, tokenizer: Tokenizer, examples: Sequence[TextSet], layout: Layout, first_index: int = 0
    ) -> Encodings:
        """As `TextTask.encode`: a sequence for each text."""
        if layout.on_long == "window":
            raise UsageError("a text of a sentence encoder has one vector: use on_long='truncate' or 'error'")
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
        options = LossOptions(self.temperature, self.margin, self.directions)
        loss = loss_of(self.objective, outputs, Roles.of(part.labels), options, self.dimensions)
        number = float(totals[0])
        sums = [float(loss.value.detach()) * number, loss.num_right, loss.num_masked, number]
        return Loss(loss.value, torch.tensor(sums, dtype=torch.float64))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Loss; of in-batch also how many comparisons of a row are left out as texts that belong together, and the
        share of rows whose positive is nearest in the batch."""
        loss, right, masked, number = sums.tolist()
        results = {"loss": loss / max(number, 1)}
        if self.objective == "in-batch":
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
        """As `TextTask.constant_predictions`: every two texts are equally similar."""
        return "equal similarity", [
            ComparedVectors.of(np.zeros((len(row.roles), 1)), np.array(row.roles[1:]) == NEGATIVE) for row in dev
        ]

    def scorer(self) -> SimilarityScorer:
        return SimilarityScorer(self.kind)
