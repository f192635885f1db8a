"""What extraction models of every kind have in common: a stream of texts is led through words and windows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from bertkit.errors import UsageError
from bertkit.extraction.decoding import Entity
from bertkit.extraction.schema import Labels, Schema, named
from bertkit.extraction.schema_reading import Reading
from bertkit.extraction.windows import Window, Words, WordSplitter
from bertkit.inference.auto_precision import PrecisionChoice
from bertkit.inference.runner import Runner, chunks, text_length
from bertkit.tokenizer.tokenizer import refuse_one_text


@dataclass
class ExtractionReport:
    """What was read."""

    num_texts: int = 0
    num_characters: int = 0
    num_words: int = 0
    num_windows: int = 0  # 0 for a tagger
    num_tokens: int = 0  # computed: labels, special tokens and overlaps of windows included
    label_groups: tuple[tuple[str, ...], ...] = ()  # labels that the model read together

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)

    @classmethod
    def of_all(cls, reports: Sequence["ExtractionReport"]) -> "ExtractionReport":
        """The report of several calls with the same labels."""
        counts = [name for name in vars(cls()) if name != "label_groups"]
        sums = {name: sum(getattr(each, name) for each in reports) for name in counts}
        return cls(**sums, label_groups=reports[0].label_groups)


class Chunk(NamedTuple):
    """Some texts of a stream."""

    texts: list[str]
    words: list[Words]
    windows: list[list[Window]]


class _Plan(Protocol):
    """How texts are read for a schema."""

    @property
    def label_groups(self) -> tuple[tuple[str, ...], ...]: ...


Plan = TypeVar("Plan", bound=_Plan)


class WindowedExtractor(ABC, Generic[Plan]):
    """Finds what labels or a schema name in texts of any length.

    Long texts are read in windows, so nothing is left out. What is found has the same bits regardless of the other
    texts and of the order of labels.
    """

    precision: PrecisionChoice  # of its encoders

    def __init__(self, runner: Runner, splitter: WordSplitter, threshold: float) -> None:
        self.threshold = threshold  # default of `extract`: what `bertkit calibrate` stored, or 0.5
        self._runner, self._splitter = runner, splitter

    @property
    def runner(self) -> Runner:
        """The runner of its encoder."""
        return self._runner

    def over(self, runner: Runner) -> Self:
        """The same with another runner of its encoder."""
        other = copy(self)
        other._runner = runner
        return other

    def extract(
        self,
        texts: Iterable[str],
        labels: Labels,
        *,
        threshold: float | None = None,
        nested: bool = False,
        report: ExtractionReport | None = None,
    ) -> list[tuple[Entity, ...]]:
        """The entities of each text, in the order of the text.

        Args:
            labels: what to look for, such as "person"; their order does not matter.
            threshold: entities have a higher score; from 0 to 1; None: that of the model.
            nested: also entities inside others; by default no two overlap.
            report: counts what is read.

        Raises:
            UsageError: no labels, or a label that is empty, given twice or too long; a threshold out of range; a str
                instead of texts.
        """
        return list(self.extract_stream(texts, labels, threshold=threshold, nested=nested, report=report))

    def extract_stream(
        self,
        texts: Iterable[str],
        labels: Labels,
        *,
        threshold: float | None = None,
        nested: bool = False,
        report: ExtractionReport | None = None,
    ) -> Iterator[tuple[Entity, ...]]:
        """`extract` in bounded memory; a text is in memory as a whole."""
        named(labels)
        found = self._read(texts, Schema(entities=labels), threshold, report, together=True, nested=nested)
        return (reading.entities for reading in found)

    def read(
        self,
        texts: Iterable[str],
        schema: Schema,
        *,
        threshold: float | None = None,
        report: ExtractionReport | None = None,
    ) -> list[Reading]:
        """What each text says of the schema; other arguments as in `extract`.

        Raises:
            UsageError: as `extract`; a schema that is empty or too long, or has what the model does not read.
        """
        return list(self.read_stream(texts, schema, threshold=threshold, report=report))

    def read_stream(
        self,
        texts: Iterable[str],
        schema: Schema,
        *,
        threshold: float | None = None,
        report: ExtractionReport | None = None,
    ) -> Iterator[Reading]:
        """`read` in bounded memory; a text is in memory as a whole."""
        return self._read(texts, schema, threshold, report, together=False, nested=False)

    def _read(
        self,
        texts: Iterable[str],
        schema: Schema,
        threshold: float | None,
        report: ExtractionReport | None,
        **options: bool,
    ) -> Iterator[Reading]:
        refuse_one_text(texts)
        threshold = self.threshold if threshold is None else threshold
        check_threshold(threshold)
        plan, report = self._plan_of(schema), report or ExtractionReport()
        report.label_groups = plan.label_groups
        return self._stream(texts, plan, threshold, report, options)

    def _stream(
        self, texts: Iterable[str], plan: Plan, threshold: float, report: ExtractionReport, options: dict[str, bool]
    ) -> Iterator[Reading]:
        for chunk in chunks(texts, text_length):
            words = self._words(chunk)
            windows = [self._windows(each, plan) for each in words]
            report.num_texts += len(chunk)
            report.num_characters += sum(map(len, chunk))
            report.num_words += sum(len(each.starts) for each in words)
            report.num_windows += sum(map(len, windows))
            yield from self._readings(Chunk(chunk, words, windows), plan, threshold, report, **options)

    def _words(self, texts: Sequence[str]) -> list[Words]:
        return self._splitter.split(texts)

    @abstractmethod
    def _plan_of(self, schema: Schema) -> Plan: ...

    @abstractmethod
    def _windows(self, words: Words, plan: Plan) -> list[Window]: ...

    @abstractmethod
    def _readings(
        self, chunk: Chunk, plan: Plan, threshold: float, report: ExtractionReport, **options: bool
    ) -> Iterator[Reading]:
        """The readings of some texts; counts tokens.

        Args:
            options: ``nested``: entities inside others, too; ``together``: no entity overlaps one of another label.
        """


def check_threshold(threshold: float) -> None:
    """Raise UsageError unless the threshold is a number from 0 to 1."""
    if not isinstance(threshold, int | float | np.number) or not 0 <= threshold <= 1:
        raise UsageError(f"threshold={threshold!r}: expected a number from 0 to 1")


def as_rows(results: Sequence[Any]) -> Any:
    """What was decided of sequences, as the rows of a run of the encoder."""
    rows = np.empty(len(results), object)
    for index, result in enumerate(results):
        rows[index] = result
    return rows
