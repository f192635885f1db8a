"""Examples that are one text or a pair, with one label, and what all tasks over them share."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from bertkit.batch import LabeledEncodings
from bertkit.errors import DataError, UsageError
from bertkit.tasks.examples import naming_long_ones
from bertkit.tasks.task import TextTask
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout

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


@dataclass(frozen=True)
class OfTexts(TextTask):
    """What the tasks over texts and pairs have in common."""

    head: ClassVar[str] = "sequence_classification"
    of_tokens: ClassVar[bool] = False
    example_type: ClassVar[type] = TextExample

    @classmethod
    def example(cls, item: str | tuple[str, str] | TextExample, label: Any = None, place: str = "") -> TextExample:
        """As `TextTask.example`: a text, a pair of texts, or an example already."""
        if isinstance(item, TextExample):
            return item
        if isinstance(item, str):
            return TextExample(item, label=cls._label(label), place=place)
        if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(text, str) for text in item):
            return TextExample(*item, label=cls._label(label), place=place)
        raise UsageError(f"an example is {item!r:.80}: expected a str, or a pair of them")

    @classmethod
    def _label(cls, label: Any) -> Any:
        """A label as examples have it: a number is a name, as in files, and a list of names is a tuple."""
        if isinstance(label, list):
            return tuple(label)
        return str(label) if isinstance(label, Real | np.bool_) else label

    def encode(
        self, tokenizer: Tokenizer, examples: Sequence[TextExample], layout: Layout, first_index: int = 0
    ) -> Encodings:
        """As `TextTask.encode`."""
        pairs = [example.pair for example in examples if example.pair is not None]
        if pairs and len(pairs) < len(examples):
            alone = next(example for example in examples if example.pair is None)
            raise alone.error("has no second text, where other examples have one")
        with naming_long_ones(examples, first_index):
            return tokenizer.encode_batch(
                [example.text for example in examples],
                pairs or None,
                max_length=layout.max_length,
                on_long=layout.on_long,
                stride=layout.stride,
                first_index=first_index,
                with_offsets=False,
            )

    def labeled(self, examples: Sequence[TextExample], encodings: Encodings) -> LabeledEncodings:
        """As `TextTask.labeled`; every window of a text has the text's label."""
        return LabeledEncodings(encodings, self.targets(examples)[encodings.text_index])

    @abstractmethod
    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """(N, ...) the labels as the loss reads them.

        Raises:
            DataError: a label that is missing, or not one of this task.
        """


def mean_over_windows(encodings: Encodings, logits: np.ndarray) -> np.ndarray:
    """(S, C) logits of sequences to (N, C) of texts: each window counts by the tokens it owns."""
    owned = (encodings.owned[:, 1] - encodings.owned[:, 0]).astype(np.float64)
    starts = np.flatnonzero(np.diff(encodings.text_index, prepend=-1))
    if len(starts) == len(logits):
        return logits
    sums = np.add.reduceat(logits * owned[:, None], starts, axis=0)
    return (sums / np.add.reduceat(owned, starts)[:, None]).astype(np.float32)


def ordered_names(names: set[str]) -> tuple[str, ...]:
    """Names in the order of the numbers they are, else of the alphabet."""
    try:
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    except ValueError:
        return tuple(sorted(names))


def names_of(examples: Sequence[TextExample]) -> dict[str, list[TextExample]]:
    """The examples of each label that is a name, in order of the names.

    Raises:
        DataError: no examples, or one whose label is not a name.
    """
    found: dict[str, list[TextExample]] = {}
    for example in examples:
        for name in example.label if isinstance(example.label, tuple) else (example.label,):
            if not isinstance(name, str) or not name:
                raise example.error(f"its label is {name!r}: expected a name")
            found.setdefault(name, []).append(example)
    if not examples:
        raise DataError("there are no examples to learn from")
    return {name: found[name] for name in ordered_names(set(found))}


def place_of_name(names: Mapping[str, int], name: str, example: TextExample) -> int:
    """The number of a label name.

    Raises:
        DataError: it is not one of the task's.
    """
    if name not in names:
        shown = ", ".join(list(names)[:8]) + (", ..." if len(names) > 8 else "")
        raise example.error(f"the label {name!r} is not one of the model's ({shown}): correct it, or train with it")
    return names[name]


def check_options(options: Mapping[str, Any], known: Sequence[str], task: str) -> None:
    """Check that every option is one of the task's.

    Raises:
        UsageError: it is not.
    """
    for name in options:
        if name not in known:
            raise UsageError(f"{task} has no {name}: expected {' or '.join(known) or 'no options'}")
