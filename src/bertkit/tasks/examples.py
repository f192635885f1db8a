"""Examples: texts and pairs with labels, words with tags, questions about a text, questions with choices.

``location`` is the file and line for errors, such as "train.conll, line 17". Unknown values are None.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from bertkit.errors import DataError, OverLengthError, UsageError
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.encoding import Span
from bertkit.tokenizer.layout import Layout

Label = str | float | tuple[str, ...]


@dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts, with its label."""

    text: str
    pair: str | None = None
    label: Label | None = None  # a name; a number; any number of names; None: not known
    location: str = ""  # file and line, for errors
    id: str = field(default="", repr=False, compare=False)  # repeated in predictions; not part of the data's digest

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or both texts of the pair."""
        return (self.text,) if self.pair is None else (self.text, self.pair)

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.texts))

    def error(self, problem: str) -> DataError:
        """An error that names the example's file and line, or else its text."""
        return DataError(f"{self.location or repr(self.text[:60])}: {problem}")


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A text, the character spans of its words, and a tag for each word."""

    text: str
    words: tuple[Span, ...] | None = None  # None: split by the task
    tags: tuple[str, ...] | None = None
    location: str = ""
    id: str = field(default="", repr=False, compare=False)  # as in `TextExample`

    @property
    def texts(self) -> tuple[str, ...]:
        """The text alone."""
        return (self.text,)

    @property
    def num_characters(self) -> int:
        return len(self.text)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a text, and the character spans of its true answers in the text, () if there are none."""

    question: str
    context: str
    answers: tuple[Span, ...] | None = None
    id: str = ""
    location: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The question and its context."""
        return self.question, self.context

    @property
    def num_characters(self) -> int:
        return len(self.question) + len(self.context)

    @property
    def answer_texts(self) -> list[str]:
        """The texts of the true answers."""
        return [self.context[start:end] for start, end in self.answers or ()]


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """A question, or the beginning of a text, and its choices; ``label`` is the index of the right one."""

    context: str
    choices: tuple[str, ...]
    label: int | None = None
    id: str = ""
    location: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The context and its choices."""
        return (self.context, *self.choices)

    @property
    def num_characters(self) -> int:
        return sum(len(self.context) + len(choice) for choice in self.choices)


QUERY, POSITIVE, NEGATIVE = 0, 1, 2
"""Roles of the texts of a `TextSet`."""


@dataclass(frozen=True, slots=True)
class TextSet:
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

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.texts))

    def with_positive(self) -> Self:
        """This row; without a positive, a DataError."""
        if not self.positives:
            raise self.error("has no second text, to compare the first one with: give every row two")
        return self

    def error(self, problem: str) -> DataError:
        """An error that names the row's file and line, or else its query."""
        return error_in(self.location, self.query, problem)


def error_in(location: str, text: str, problem: str) -> DataError:
    """An error that names the file and line of an example, or else its text."""
    return DataError(f"{location or repr(text[:60])}: {problem}")


def encode_texts(
    tokenizer: Tokenizer, examples: Sequence[Any], layout: Layout, first_index: int, texts: Sequence[str],
    pairs: Sequence[str] | None = None, *, example_of: Sequence[int] | None = None, with_offsets: bool = False,
    whole: str = "",
) -> Encodings:  # fmt: skip
    """The encodings of texts of examples, each alone or with one of ``pairs``; ``text_index`` is that of the example.

    Args:
        first_index: index of the first example, for errors.
        example_of: index of the example of each text; None: one text per example, in order.
        whole: why texts are not split into windows; "": they may be.

    Raises:
        OverLengthError: an example is too long; the message has its file and line, or else its index.
        UsageError: windows, with ``whole``.
    """
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


def digest_of(examples: Sequence[Any]) -> str:
    """Digest of examples, independent of their location."""
    digest = hashlib.sha256()
    for example in examples:
        values = {
            one.name: getattr(example, one.name) for one in fields(example) if one.repr and one.name != "location"
        }
        digest.update(f"{type(example).__qualname__}({values})".encode())
    return digest.hexdigest()[:16]
