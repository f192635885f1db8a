"""Base class of tasks whose examples are texts or pairs of texts."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np

from bertkit.batch import LabeledEncodings
from bertkit.errors import DataError
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import Sequences, TextExample, other_input
from bertkit.tasks.judged import JudgedTask
from bertkit.tasks.reading.labels import LabelKind
from bertkit.tasks.reading.texts import check_label_columns, read_labeled_file
from bertkit.tasks.sentence_vectors import OnSentenceVectors
from bertkit.tokenizer import Encodings


@dataclass(frozen=True)
class OfTexts(JudgedTask, OnSentenceVectors):
    """A task over texts and pairs."""

    label_kind: ClassVar[LabelKind]  # kind of labels in its files
    head: ClassVar[str] = "sequence_classification"
    of_tokens: ClassVar[bool] = False
    example_type: ClassVar[type] = TextExample
    pipeline: ClassVar[str] = "text-classification"
    peft_type: ClassVar[str | None] = "SEQ_CLS"

    @classmethod
    def check_columns(cls, examples: Sequence[Any], columns: Mapping[str, str]) -> None:
        if cls.label_kind == "set":
            check_label_columns(examples, columns)

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[TextExample]:
        return read_labeled_file(file, cls.label_kind if file.labeled else None)

    @classmethod
    def example(cls, item: str | tuple[str, str] | TextExample, label: Any = None, location: str = "") -> TextExample:
        """See `TextTask.example`: a text, a pair of texts, or an example already."""
        if isinstance(item, TextExample):
            return item
        if isinstance(item, str):
            return TextExample(item, label=cls._label(label), location=location)
        if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(text, str) for text in item):
            return TextExample(*item, label=cls._label(label), location=location)
        raise other_input(item, "a str, or a pair of them", location)

    @classmethod
    def _label(cls, label: Any) -> Any:
        """Convert a label for examples, as in files: a number to a name, a name without white space around it, and a
        list of names to a tuple."""
        if isinstance(label, list | tuple):
            return tuple(part.strip() if isinstance(part, str) else part for part in label)
        if isinstance(label, str):
            return label.strip()
        return str(label) if isinstance(label, Real | np.bool_) else label

    @property
    def whole(self) -> str:  # pyrefly: ignore
        """As `TextTask.whole`: pairs have no windows over sentence vectors."""
        return "each text of a pair has one vector" if self.num_vectors == 2 else ""

    def sequences(self, examples: Sequence[TextExample]) -> Sequences:
        """As `TextTask.sequences`; over sentence vectors each text is a sequence.

        Raises:
            DataError: single texts among pairs, or single texts for a model of pairs, or the reverse.
        """
        if not self.num_vectors:
            for example in examples if any(one.pair is not None for one in examples) else ():
                if example.pair is None:
                    raise example.error("has no second text, but other examples have one")
            return super().sequences(examples)
        for example in examples:
            if len(example.texts) != self.num_vectors:
                has, wanted = (
                    ("has a second text", "single texts") if self.num_vectors == 1 else ("has one text", "pairs")
                )
                raise example.error(f"{has}, but this model was trained with {wanted}")
        texts = [text for example in examples for text in example.texts]
        return Sequences(texts, None, (np.arange(len(texts)) // self.num_vectors).tolist())

    def over_vectors(self, example: TextExample) -> Self | None:
        """See `TextTask.over_vectors`: over the vector of a text, or those of both texts of a pair."""
        return None if self.of_vectors else replace(self, num_vectors=1 if example.pair is None else 2)

    def labeled(self, examples: Sequence[TextExample], encodings: Encodings) -> LabeledEncodings:
        """See `TextTask.labeled`; every window of a text has the text's label."""
        if self.num_vectors == 2:
            return LabeledEncodings(encodings, self.targets(examples), group_size=2)
        return LabeledEncodings(encodings, self.targets(examples)[encodings.text_index])


def mean_over_windows(encodings: Encodings, logits: np.ndarray) -> np.ndarray:
    """(S, C) logits of sequences to (N, C) of texts: the mean over windows, weighted by the tokens they own."""
    owned = (encodings.owned[:, 1] - encodings.owned[:, 0]).astype(np.float64)
    starts = np.flatnonzero(np.diff(encodings.text_index, prepend=-1))
    if len(starts) == len(logits):
        return logits
    sums = np.add.reduceat(logits * owned[:, None], starts, axis=0)
    return (sums / np.add.reduceat(owned, starts)[:, None]).astype(np.float32)


def ordered_names(names: Collection[str]) -> tuple[str, ...]:
    """Names in numeric order if all are numbers, else alphabetically; "nan" is no number, as it has no order."""
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        return tuple(sorted(names))
    if any(map(math.isnan, numbers.values())):
        return tuple(sorted(names))
    return tuple(sorted(names, key=lambda name: (numbers[name], name)))


def names_of(examples: Sequence[TextExample]) -> dict[str, list[TextExample]]:
    """Examples by label name, in order of the names.

    Raises:
        DataError: no examples, or one whose label is not a name.
    """
    examples_of: dict[str, list[TextExample]] = {}
    for example in examples:
        for name in example.label if isinstance(example.label, tuple) else (example.label,):
            if not isinstance(name, str) or not name:
                raise example.error(f"its label is {name!r}: expected a name")
            examples_of.setdefault(name, []).append(example)
    if not examples:
        raise DataError("no examples to train on: expected at least one")
    return {name: examples_of[name] for name in ordered_names(set(examples_of))}


def class_numbers(examples: Sequence[TextExample], names: Sequence[str], what: str = "label") -> np.ndarray:
    """(N,) int64 the indices of the names that are the labels of examples.

    Args:
        what: what a name is, for errors.

    Raises:
        DataError: a label that is missing or not one of the names.
    """
    numbers, results = {name: number for number, name in enumerate(names)}, np.empty(len(examples), np.int64)
    for i, example in enumerate(examples):
        if not isinstance(example.label, str):
            raise example.error(f"its {what} is {example.label!r}: expected one of {', '.join(names)}")
        results[i] = index_of_name(numbers, example.label, example)
    return results


def index_of_name(names: Mapping[str, int], name: str, example: TextExample) -> int:
    """The index of a label name.

    Raises:
        DataError: it is not one of the task's.
    """
    if name not in names:
        shown = ", ".join(list(names)[:8]) + (", ..." if len(names) > 8 else "")
        raise example.error(f"the label {name!r} is not one of the model's ({shown}): correct it, or train with it")
    return names[name]
