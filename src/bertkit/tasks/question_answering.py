"""Extractive question answering: the span of a text that answers a question, or none.

Devlin et al. 2018, sections 4.2 and 4.3. A long text is encoded in windows, with the question before each. In a window
without the whole answer the correct start and end are [CLS], which also means "no answer". Shape letters: S sequences,
T tokens, N questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np

from bertkit.batch import LabeledBatch, LabeledEncodings
from bertkit.later import F
from bertkit.tasks.answers import AnswerScores
from bertkit.tasks.example_file import ExampleFile, GuessRank
from bertkit.tasks.examples import Question, other_input
from bertkit.tasks.field_types import Range
from bertkit.tasks.loss import Loss, LossFunction, mean_of, sums_of
from bertkit.tasks.reading.questions import read_questions
from bertkit.tasks.spans import BestSpans, Windows, best_spans, windows_of
from bertkit.tasks.task import Option, TextTask
from bertkit.tasks.words import words_of
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.encoding import Span
from bertkit.tokenizer.layout import OnLong
from bertkit.tokenizer.ragged import ranges

if TYPE_CHECKING:
    from torch import Tensor

_Length = Annotated[int, Range(f"an integer from 1 to {2**31 - 1:,}", lambda value: 1 <= value < 2**31)]
_Number = Annotated[int, Range("an integer from 1 to 1,000", lambda value: 1 <= value <= 1_000)]
"""Maximum number of candidates: each uses memory for every question of a batch."""

_SHORTEST_LIMIT = 30
"""Minimum of the maximum answer length in tokens, as in google-research/bert ``run_squad.py``."""


@dataclass(frozen=True)
class Answer:
    """A span of the context: ``context[start:end]``."""

    start: int
    end: int
    text: str
    probability: float  # among all spans of the context, and "no answer" if the model can predict it


@dataclass(frozen=True)
class AnswerPrediction:
    """The answer to a question, and the likeliest candidates."""

    answer: Answer | None  # None: no answer
    candidates: tuple[Answer, ...]  # best first
    no_answer_probability: float  # 0 for models that always predict an answer
    no_answer_margin: float  # score of "no answer" minus that of the best candidate


class SpanLoss(LossFunction):
    """Cross-entropy in nats over the tokens of a sequence, averaged over start and end and over sequences; the accuracy
    is the share of sequences whose start and end are right."""

    shares: ClassVar[tuple[str, ...]] = ("accuracy",)

    def loss(self, outputs: Tensor, part: LabeledBatch, totals: Tensor) -> Loss:
        """As `LossFunction.loss`, from (T, 2) logits."""
        logits, labels = part.batch.pad(outputs, float("-inf")).transpose(1, 2), part.labels  # (S, 2, L)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction="sum") / 2
        correct = (logits.detach().argmax(dim=-1) == labels).all(dim=-1).sum()
        return Loss(mean_of(loss, totals[0]), sums_of(loss, correct, len(labels)))


@dataclass(frozen=True)
class QuestionAnswering(TextTask):
    """The span of a context that answers a question."""

    no_answer: bool = False  # questions may have no answer
    no_answer_threshold: float = 0.0  # margin above which "no answer" is predicted; set on dev examples
    max_answer_length: _Length = _SHORTEST_LIMIT  # tokens
    num_candidates: _Number = 20

    name: ClassVar[str] = "question-answering"
    guess_rank: ClassVar[GuessRank | None] = GuessRank.OWN_COLUMNS
    head: ClassVar[str] = "question_answering"
    of_tokens: ClassVar[bool] = True
    example_type: ClassVar[type] = Question
    files: ClassVar[str] = "Questions with answers: SQuAD json, csv, tsv, jsonl or parquet."
    on_long: ClassVar[OnLong] = "window"
    pipeline: ClassVar[str] = "question-answering"
    peft_type: ClassVar[str | None] = "QUESTION_ANS"
    options: ClassVar[Mapping[str, Option]] = {
        "max_answer_length": Option(int, "Maximum answer length in tokens; by default from the data."),
        "num_candidates": Option(int, "Number of answers in a prediction.", 20),
    }

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> Self:
        return cls()

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[Question]:
        return read_questions(file.path, labeled=file.labeled, columns=file.columns, bad_rows=file.bad_rows)

    def advice_on(self, train: Sequence[Question]) -> str | None:
        """Advice if no training question has an answer."""
        if any(question.answers for question in train):
            return None
        return (
            f"none of the {len(train):,} training questions has an answer, so the model learns to answer none: check "
            "the answers, or add questions that have some"
        )

    @property
    def has_thresholds(self) -> bool:
        return self.no_answer

    @property
    def best_by(self) -> str:  # pyrefly: ignore
        """The F1; if questions may have no answer, with the best threshold."""
        return "best_f1" if self.no_answer else "f1"

    @classmethod
    def of_examples(cls, examples: Sequence[Question], options: Mapping[str, Any]) -> Self:
        """See `TextTask.of_examples`.

        Args:
            options: "max_answer_length", tokens; by default 30, or twice the number of words of the 99th percentile of
                answers. "num_candidates".
        """
        cls.check_options(options, examples)
        no_answer, lengths = False, [0]
        for example in examples:
            no_answer |= not _answers_of(example)
            lengths += [len(words_of(text, "punctuation")) for text in example.answer_texts[:1]]
        longest = max(_SHORTEST_LIMIT, 2 * int(np.quantile(lengths, 0.99, method="higher")))
        settings: dict[str, Any] = {"max_answer_length": longest, **options}
        return cls(no_answer=no_answer, **settings)

    @classmethod
    def example(cls, item: tuple[str, str] | Question, label: Any = None, location: str = "") -> Question:
        """See `TextTask.example`: question and context; the label is a span (start, end) of the context; a text that
        occurs in it, at its first occurrence; (text, start); or "" or () if there is no answer."""
        if isinstance(item, Question):
            return item
        if not (isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(text, str) for text in item)):
            raise other_input(item, "a question and its context, two strs", location)
        question = Question(*item, location=location)
        return question if label is None else replace(question, answers=_given_answers(question, label))

    @property
    def sequence_form(self) -> None:
        """All settings have the same sequences."""

    def labeled(self, examples: Sequence[Question], encodings: Encodings) -> LabeledEncodings:
        """See `TextTask.labeled`: (S, 2) indices of the first and last token of the first answer in each sequence that
        contains it completely, else 0 and 0."""
        windows = windows_of(encodings, len(examples))
        offsets = _offsets(examples, encodings, windows)
        labels = np.zeros((len(encodings), 2), np.int64)
        for number, example in enumerate(examples):
            own = slice(windows.cu_windows[number], windows.cu_windows[number + 1])
            answers = _answers_of(example)
            results = _tokens_of(example, answers[0], encodings, offsets, windows, own) if answers else None
            if results is not None:
                first, last = results
                begins, length = windows.begins[own], windows.length[own]
                whole = (begins <= first) & (last < begins + length)
                shift = windows.first[own] - encodings.cu_seqlens[:-1][own] - begins
                labels[own] = np.where(whole[:, None], np.stack([first + shift, last + shift], axis=1), 0)
        return LabeledEncodings(encodings, labels)

    @property
    def loss_function(self) -> SpanLoss:
        return SpanLoss()

    def decode(self, examples: Sequence[Question], encodings: Encodings, logits: np.ndarray) -> list[AnswerPrediction]:
        windows = windows_of(encodings, len(examples))
        offsets = _offsets(examples, encodings, windows)
        scores = np.where(offsets[:, :1] < offsets[:, 1:], logits, -np.inf)  # no answer begins or ends at white space
        results = best_spans(scores[:, 0], scores[:, 1], windows, self.max_answer_length, self.num_candidates)
        none = logits[encodings.cu_seqlens[:-1]].astype(np.float64).sum(axis=1)  # score of [CLS]
        none = np.minimum.reduceat(none, windows.cu_windows[:-1]) if len(examples) else none
        totals = np.logaddexp(results.totals, none) if self.no_answer else results.totals
        predictions = []
        for number, example in enumerate(examples):
            candidates = _candidates(example, number, results, float(totals[number]), offsets)
            margin = float(none[number] - results.scores[number, 0]) if candidates else 0.0
            answered = candidates and not (self.no_answer and margin > self.no_answer_threshold)
            probability = float(np.exp(none[number] - totals[number])) if self.no_answer else 0.0
            predictions.append(AnswerPrediction(candidates[0] if answered else None, candidates, probability, margin))
        return predictions

    def constant_predictions(
        self, train: Sequence[Question], dev: Sequence[Question]
    ) -> tuple[str, list[AnswerPrediction]]:
        """The whole context; if questions may have no answer, the metric's threshold decides for all questions."""
        answers = [Answer(0, len(example.context), example.context, 1.0) for example in dev]
        return "whole context", [AnswerPrediction(answer, (answer,), 0.0, 0.0) for answer in answers]

    def scorer(self) -> AnswerScorer:
        return AnswerScorer(self)

    def with_calibrated_thresholds(self, examples: Sequence[Question], predictions: Sequence[AnswerPrediction]) -> Self:
        """Set the threshold with the best F1 on these examples, if questions may have no answer."""
        if not self.no_answer:
            return self
        scores = AnswerScores(no_answer=True)
        _add(scores, examples, predictions)
        return replace(self, no_answer_threshold=scores.best_threshold())


class AnswerScorer:
    """Exact match and F1 as in the SQuAD scripts; if questions may have no answer, also scores of those with one, the
    accuracy of the others, and the best F1 of any threshold, with that threshold."""

    def __init__(self, task: QuestionAnswering) -> None:
        self.task, self.scores = task, AnswerScores(no_answer=task.no_answer)

    def add(self, examples: Sequence[Question], predictions: Sequence[AnswerPrediction]) -> None:
        _add(self.scores, examples, predictions)

    def results(self) -> dict[str, float]:
        if not self.task.no_answer:
            return self.scores.results()
        threshold = self.scores.best_threshold()
        best = {"best_f1": self.scores.results(threshold)["f1"], "best_f1_threshold": threshold}
        return self.scores.results(self.task.no_answer_threshold) | best

    def values(self) -> dict[str, list[float]]:
        """See `RowScorer.values`; those of the best F1 are for its threshold."""
        if not self.task.no_answer:
            values = self.scores.values()
        else:
            best = self.scores.values(self.scores.best_threshold())["f1"]
            values = self.scores.values(self.task.no_answer_threshold) | {"best_f1": best}
        return {name: of_questions.tolist() for name, of_questions in values.items()}


def _add(scores: AnswerScores, examples: Sequence[Question], predictions: Sequence[AnswerPrediction]) -> None:
    for example, prediction in zip(examples, predictions, strict=True):
        _answers_of(example)
        best = prediction.candidates[0].text if prediction.candidates else ""
        scores.add(best, example.answer_texts, prediction.no_answer_margin)


def _offsets(examples: Sequence[Question], encodings: Encodings, windows: Windows) -> np.ndarray:
    """(T, 2) int64 characters of the contexts, without white space at the ends of tokens; 0 for other tokens."""
    tokens = ranges(windows.first, windows.length)
    offsets = np.zeros((len(encodings.input_ids), 2), np.int64)
    offsets[tokens] = encodings.tight_offsets(tokens, [example.context for example in examples])
    return offsets


def _candidates(
    example: Question, number: int, spans: BestSpans, total: float, offsets: np.ndarray
) -> tuple[Answer, ...]:
    """The best spans of one question, best first."""
    scores = spans.scores[number]
    count = int(np.isfinite(scores).sum())
    starts = offsets[spans.starts[number, :count], 0].tolist()
    ends = offsets[spans.ends[number, :count], 1].tolist()
    probabilities = np.exp(scores[:count] - total).tolist()
    return tuple(
        Answer(start, end, example.context[start:end], probability)
        for start, end, probability in zip(starts, ends, probabilities, strict=True)
    )


def _given_answers(question: Question, label: Any) -> tuple[Span, ...]:
    """The answers of a label, as in `QuestionAnswering.example`."""
    context, problem = question.context, ""
    match label:
        case "" | () | ("", _):
            return ()
        case str():
            start = context.find(label)
            end = start + len(label)
            if start < 0:
                problem = f"the answer {label!r:.60} is not in its context: correct it"
        case (str(text), Integral() as first):
            start = int(first)
            end = start + len(text)
            if start < 0 or not context.startswith(text, start):
                problem = f"the answer {text!r:.60} is not at {start} in its context: correct it"
        case (Integral() as first, Integral() as beyond):
            start, end = int(first), int(beyond)
            if not 0 <= start < end <= len(context):
                problem = f"the answer {start}-{end} is not a span of its context: correct it"
        case _:
            expected = "a text, (text, start), (start, end), or '' if there is none"
            raise question.error(f"the answer is {label!r:.60}: expected {expected}")
    if problem:
        raise question.error(problem)
    return ((start, end),)


def _answers_of(example: Question) -> tuple[Span, ...]:
    if example.answers is None:
        raise example.error("has no answers: expected answers, or () for no answer")
    return example.answers


def _tokens_of(
    example: Question, answer: Span, encodings: Encodings, offsets: np.ndarray, windows: Windows, own: slice
) -> tuple[int, int] | None:
    """The first and the last token of an answer, as token indices in its context; None if it was cut.

    Raises:
        DataError: the answer has no tokens.
    """
    start, end = answer
    cut_from, cut_to = encodings.cut_spans[own.start, 1].tolist()
    if cut_from < end and start < cut_to:
        return None
    spans = np.zeros((int((windows.begins + windows.length)[own].max()), 2), np.int64)
    for first, length, begins in zip(windows.first[own], windows.length[own], windows.begins[own], strict=True):
        spans[begins : begins + length] = offsets[first : first + length]
    touched = np.flatnonzero(np.maximum(spans[:, 0], start) < np.minimum(spans[:, 1], end))
    if not len(touched):
        shown = example.context[start:end]
        raise example.error(f"the answer {shown!r:.60} has no tokens: correct it, or remove the question")
    return int(touched[0]), int(touched[-1])
