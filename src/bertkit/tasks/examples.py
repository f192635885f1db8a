"""Kinds of rows: texts and pairs with labels, words with tags, questions about a text, questions with choices, texts
with positives and negatives, texts with vectors, pairs of source and target.

``location`` is the file and line for errors, such as "train.conll, line 17". Unknown values are None.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from bertkit.errors import DataError, OverLengthError, UsageError
from bertkit.tasks.tags import entities_in, guess_scheme, notation_of, spell
from bertkit.tasks.words import words_of
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.encoding import Span
from bertkit.tokenizer.layout import Layout

Label = str | float | tuple[str, ...]


class Example:
    """A row for a task: a frozen dataclass."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def location(self) -> str:
            """File and line, for errors."""
            ...

    @property
    def typical_input(self) -> str:
        """Python code of an input for prediction, for model cards."""
        raise NotImplementedError

    @property
    def texts(self) -> tuple[str, ...]:
        """Its texts, equal for repeated rows; the first one names it in errors."""
        raise NotImplementedError

    @property
    def num_characters(self) -> int:
        """Length of its texts as they are encoded."""
        return sum(map(len, self.texts))

    @property
    def labels(self) -> list[str]:
        """Names of its labels, to count."""
        label = getattr(self, "label", None)
        return list(label) if isinstance(label, tuple) else [str(label)] if isinstance(label, str | int) else []

    def row(self) -> dict[str, Any]:
        """The row of a jsonl file that is read as an equal example, without its location."""
        raise NotImplementedError

    def error(self, problem: str) -> DataError:
        """An error that names its file and line, or else its first text."""
        return DataError(f"{self.location or repr(self.texts[0][:60])}: {problem}")


@dataclass(frozen=True)
class TextExample(Example):
    """A text, or a pair of texts, with its label."""

    text: str
    pair: str | None = None
    label: Label | None = None  # a name; a number; any number of names; None: not known
    location: str = ""  # file and line, for errors
    id: str = field(default="", repr=False, compare=False)  # repeated in predictions; not part of the data's digest

    @property
    def typical_input(self) -> str:
        return '"A good day."' if self.pair is None else '("A good day.", "The day is good.")'

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or both texts of the pair."""
        return (self.text,) if self.pair is None else (self.text, self.pair)

    def row(self) -> dict[str, Any]:
        label = list(self.label) if isinstance(self.label, tuple) else self.label
        row = _row_of(self) | {"text": self.text} | ({} if self.pair is None else {"pair": self.pair})
        return row | {"labels" if isinstance(label, list) else "label": label}


@dataclass(frozen=True, slots=True)
class TaggedText(Example):
    """A text, the character spans of its words, and a tag for each word."""

    text: str
    words: tuple[Span, ...] | None = None  # None: split by the task
    tags: tuple[str, ...] | None = None
    location: str = ""
    id: str = field(default="", repr=False, compare=False)  # as in `TextExample`

    @property
    def typical_input(self) -> str:
        return '"Ada Lovelace was born in London."'

    @property
    def texts(self) -> tuple[str, ...]:
        """The text alone."""
        return (self.text,)

    @property
    def labels(self) -> list[str]:
        """Types of its entities, or the labels of its words."""
        row = self.row()
        return row.get("tags", [span["label"] for span in row.get("spans", [])])

    def row(self) -> dict[str, Any]:
        """As `Example.row`; tags that spell entities become spans, and words other than those of the rule "punctuation"
        are in "word_spans"."""
        words, tags = self.words or (), self.tags or ()
        row = _row_of(self) | {"text": self.text}
        scheme = guess_scheme({*tags, "O"})
        entities = entities_in(tags, scheme, notation_of({*tags, "O"}, scheme))
        if spell(entities, len(words), "BIO") == list(tags):
            row["spans"] = [
                {"start": words[first][0], "end": words[end - 1][1], "label": label} for first, end, label in entities
            ]
        else:
            row["tags"] = list(tags)
        if "tags" in row or words != words_of(self.text, "punctuation"):
            row["word_spans"] = [list(word) for word in words]
        return row


@dataclass(frozen=True, slots=True)
class Question(Example):
    """A question about a text, and the character spans of its true answers in the text, () if there are none."""

    question: str
    context: str
    answers: tuple[Span, ...] | None = None
    id: str = ""
    location: str = ""

    @property
    def typical_input(self) -> str:
        return '("Who wrote it?", "It was written by Ada Lovelace.")'

    @property
    def texts(self) -> tuple[str, ...]:
        """The question and its context."""
        return self.question, self.context

    @property
    def labels(self) -> list[str]:
        """The number of its answers."""
        return [f"{len(self.answers or ())} answers"]

    def row(self) -> dict[str, Any]:
        answers = [
            {"text": text, "answer_start": start}
            for text, (start, _) in zip(self.answer_texts, self.answers or (), strict=True)
        ]
        return _row_of(self) | {"question": self.question, "context": self.context, "answers": answers}

    @property
    def answer_texts(self) -> list[str]:
        """The texts of the true answers."""
        return [self.context[start:end] for start, end in self.answers or ()]


@dataclass(frozen=True, slots=True)
class ChoiceQuestion(Example):
    """A question, or the beginning of a text, and its choices; ``label`` is the index of the right one."""

    context: str
    choices: tuple[str, ...]
    label: int | None = None
    id: str = ""
    location: str = ""

    @property
    def typical_input(self) -> str:
        return '("The sky is", ["blue", "a table"])'

    @property
    def texts(self) -> tuple[str, ...]:
        """The context and its choices."""
        return (self.context, *self.choices)

    @property
    def num_characters(self) -> int:
        return sum(len(self.context) + len(choice) for choice in self.choices)

    def row(self) -> dict[str, Any]:
        return _row_of(self) | {"context": self.context, "choices": list(self.choices), "label": self.label}


QUERY, POSITIVE, NEGATIVE = 0, 1, 2
"""Roles of the texts of a `TextSet`."""


@dataclass(frozen=True, slots=True)
class TextSet(Example):
    """A text with positives and negatives, or a scored pair."""

    query: str
    positives: tuple[str, ...] = ()  # (): the text itself, encoded twice with different dropout masks
    negatives: tuple[str, ...] = ()
    score: float | None = None
    location: str = ""
    scores: tuple[float, ...] = ()  # of each other text, by a teacher or a judge; (): none
    dataset: int = 0  # number of its data set
    guide: np.ndarray | None = field(default=None, repr=False, compare=False)  # (texts, G) vectors of a guide model

    @property
    def typical_input(self) -> str:
        return '("A good day.", "The day is good.")'

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts in encoding order."""
        return (self.query, *(self.positives or (self.query,)), *self.negatives)

    @property
    def roles(self) -> list[int]:
        """QUERY, POSITIVE or NEGATIVE of each of ``texts``."""
        return [QUERY, *[POSITIVE] * max(1, len(self.positives)), *[NEGATIVE] * len(self.negatives)]

    @property
    def targets(self) -> tuple[float, ...]:
        """Scores of the other texts; without any, 1 for positives and 0 for negatives."""
        scores = self.scores if self.score is None else (self.score,) * (len(self.texts) - 1)
        return scores or tuple(float(role == POSITIVE) for role in self.roles[1:])

    def row(self) -> dict[str, Any]:
        names = ("query", "positives", "negatives", "score", "scores")
        return {name: value for name in names if (value := getattr(self, name)) not in (None, ())}

    def with_positive(self) -> Self:
        """This row; without a positive, a DataError."""
        if not self.positives:
            raise self.error("has no second text, to compare the first one with: give every row two")
        return self


@dataclass(frozen=True, eq=False)
class TaughtText(Example):
    """A text with its teacher vector."""

    text: str
    vector: np.ndarray | None = field(default=None, repr=False)  # (E,) float32; None: not known
    location: str = ""

    @property
    def typical_input(self) -> str:
        return '"A good day."'

    @property
    def texts(self) -> tuple[str, ...]:
        """The text alone."""
        return (self.text,)

    def row(self) -> dict[str, Any]:
        return {"text": self.text}


@dataclass(frozen=True)
class SequenceExample(Example):
    """A target with its source; texts for a language model have no source."""

    target: str
    source: str | None = None
    location: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The source, if there is one, and the target."""
        return (self.target,) if self.source is None else (self.source, self.target)

    def row(self) -> dict[str, Any]:
        return {"text": self.target} if self.source is None else {"source": self.source, "target": self.target}


def _row_of(example: Any) -> dict[str, Any]:
    """The id of an example, if it has one, as the beginning of its row."""
    return {"id": example.id} if example.id else {}


class Sequences(NamedTuple):
    """The sequences of examples, in order."""

    texts: Sequence[str]
    pairs: Sequence[str] | None = None  # their second texts
    example_of: Sequence[int] | None = None  # index of the example of each; None: each example has one


def encode_sequences(
    tokenizer: Tokenizer, examples: Sequence[Any], layout: Layout, first_index: int, sequences: Sequences, *,
    with_offsets: bool = False, whole: str = "",
) -> Encodings:  # fmt: skip
    """The encodings of the sequences of examples; ``text_index`` is that of the example.

    Args:
        first_index: index of the first example, for errors.
        whole: why texts are not split into windows; "": they may be.

    Raises:
        OverLengthError: an example is too long; the message has its file and line, or else its index.
        UsageError: windows, with ``whole``.
    """
    texts, pairs, example_of = sequences
    if whole and layout.on_long == "window":
        raise UsageError(f"{whole}: use on_long='truncate' or 'error'")
    try:
        encodings = tokenizer.encode_batch(
            texts, pairs, max_length=layout.max_length, on_long=layout.on_long,
            stride=None if whole else layout.stride, first_index=first_index, with_offsets=with_offsets,
        )  # fmt: skip
    except OverLengthError as error:
        index = error.index if example_of is None else example_of[error.index]
        name = examples[index].location or f"example {first_index + index}"
        raise OverLengthError(f"{name}: {error.problem}", index, error.problem) from None
    if example_of is None:
        return encodings
    return replace(encodings, text_index=np.array(example_of, encodings.text_index.dtype)[encodings.text_index])


def other_input(item: Any, expected: str, location: str) -> UsageError:
    """The error for a caller's input that is no example of a task."""
    return UsageError(f"{f'{location}: ' if location else ''}an example is {item!r:.80}: expected {expected}")


def digest_of(examples: Sequence[Any]) -> str:
    """Digest of examples, independent of their location."""
    digest = hashlib.sha256()
    for example in examples:
        values = {
            one.name: getattr(example, one.name) for one in fields(example) if one.repr and one.name != "location"
        }
        digest.update(f"{type(example).__qualname__}({values})".encode())
    return digest.hexdigest()[:16]
