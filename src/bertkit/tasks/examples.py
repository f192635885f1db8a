"""Examples: texts and pairs with labels, words with tags, questions about a text, questions with choices.

``place`` is the file and line that errors name, such as "train.conll, line 17"; what is not known is None.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bertkit.errors import DataError, OverLengthError
from bertkit.tokenizer.encoding import Span

Label = str | float | tuple[str, ...]


@dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts, and what is to be said of it."""

    text: str
    pair: str | None = None
    label: Label | None = None  # a name; a number; any number of names; None: not known
    place: str = ""  # file and line, for errors

    @property
    def num_characters(self) -> int:
        return len(self.text) + len(self.pair or "")

    def error(self, problem: str) -> DataError:
        """The error of this example, which names its file and line, or else its text."""
        return DataError(f"{self.place or repr(self.text[:60])}: {problem}")


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A text, its words as characters of it, and a tag for each word."""

    text: str
    words: tuple[Span, ...] | None = None  # None: as the task finds them
    tags: tuple[str, ...] | None = None
    place: str = ""

    @property
    def num_characters(self) -> int:
        return len(self.text)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a text, and its true answers as characters of the text, () where it has none."""

    question: str
    context: str
    answers: tuple[Span, ...] | None = None
    id: str = ""
    place: str = ""

    @property
    def num_characters(self) -> int:
        return len(self.question) + len(self.context)

    @property
    def answer_texts(self) -> list[str]:
        """The true answers as they stand in the text."""
        return [self.context[start:end] for start, end in self.answers or ()]


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """A question, or how a text begins, and its choices; ``label`` is the number of the right one."""

    context: str
    choices: tuple[str, ...]
    label: int | None = None
    id: str = ""
    place: str = ""

    @property
    def num_characters(self) -> int:
        return sum(len(self.context) + len(choice) for choice in self.choices)


QUERY, POSITIVE, NEGATIVE = 0, 1, 2
"""What a text of a `TextSet` is."""


@dataclass(frozen=True, slots=True)
class TextSet:
    """A text with texts that belong to it and others that do not; of a scored pair, ``score`` says how much."""

    query: str
    positives: tuple[str, ...] = ()  # (): the text itself, encoded twice with other dropout masks
    negatives: tuple[str, ...] = ()
    score: float | None = None
    place: str = ""
    scores: tuple[float, ...] = ()  # of each of the other texts, as a teacher or a judge gives them; (): none
    dataset: int = 0  # the number of the data set it is from
    guide: np.ndarray | None = field(default=None, repr=False, compare=False)  # (texts, G) vectors of a guide model

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts in the order in which they are encoded."""
        return (self.query, *(self.positives or (self.query,)), *self.negatives)

    @property
    def roles(self) -> list[int]:
        """QUERY, POSITIVE or NEGATIVE of each of ``texts``."""
        return [QUERY, *[POSITIVE] * max(1, len(self.positives)), *[NEGATIVE] * len(self.negatives)]

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.texts))

    def error(self, problem: str) -> DataError:
        """The error of this row, which names its file and line, or else its query."""
        return error_in(self.place, self.query, problem)


def error_in(place: str, text: str, problem: str) -> DataError:
    """The error of an example, which names its place, or else its text."""
    return DataError(f"{place or repr(text[:60])}: {problem}")


@contextmanager
def naming_long_ones(
    examples: Sequence[Any], first_index: int, example_of: Sequence[int] | None = None
) -> Iterator[None]:
    """Have the error of an example that is too long name its place, or else its number.

    Args:
        first_index: the number of the first example.
        example_of: for each of the texts to encode its example, from 0; None: they are as many, in order.
    """
    try:
        yield
    except OverLengthError as error:
        index = error.index if example_of is None else example_of[error.index]
        name = examples[index].place or f"example {first_index + index}"
        raise OverLengthError(f"{name}: {error.problem}", index, error.problem) from None
