"""Redaction of texts and streams."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bertkit.errors import UsageError
from bertkit.redaction.identifiers import CONTEXT, IDENTIFIERS, phones
from bertkit.redaction.key import Key
from bertkit.redaction.spans import IdentifierFinder, Span, TaggedFinder, Union, Window

if TYPE_CHECKING:
    from bertkit.model import Model

REGIONS = ("US", "GB", "DE", "FR")
"""Default regions of telephone numbers without an international prefix."""

_AT_ONCE = 1 << 16
"""Characters that are searched at a time."""


@dataclass(frozen=True)
class Replacement:
    """A span of the original text and what replaces it."""

    kind: str
    start: int  # characters of the original text, end exclusive
    end: int
    placeholder: str


@dataclass(frozen=True)
class Redaction:
    """A text without what was found in it.

    Attributes:
        text: with placeholders.
        replacements: in the order of the text.
    """

    text: str
    replacements: tuple[Replacement, ...]


@dataclass
class RedactionReport:
    """What was examined and replaced; never the values themselves.

    Attributes:
        num_texts: texts or streams read to the end.
        num_characters: characters read.
        examined: kinds that were looked for.
        regions: of telephone numbers without an international prefix.
        tagger: whether a tagger looked for names.
        replacements: number of replacements of each kind.
    """

    num_texts: int = 0
    num_characters: int = 0
    examined: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    tagger: bool = False
    replacements: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self) | {"replacements": dict(sorted(self.replacements.items()))}


class Redactor:
    """Finds and replaces identifiers, and names if a tagger is given.

    The result is the same however a stream is cut into pieces; memory is bounded.

    Args:
        kinds: of identifiers, and labels of the tagger; None: all.
        regions: ISO 3166 codes: telephone numbers without an international prefix are those of these regions.
        tagger: a model fine-tuned for token classification; its entities are replaced as well.
        key: makes placeholders that it can restore; None: each placeholder names its kind only.
        is_json: outside of strings, placeholders are written in quotes.

    Raises:
        UsageError: an unknown kind or region, a model that is no tagger, or a missing library.
    """

    def __init__(
        self,
        kinds: Sequence[str] | None = None,
        *,
        regions: Sequence[str] = REGIONS,
        tagger: "Model | None" = None,
        key: Key | None = None,
        is_json: bool = False,
    ) -> None:
        identifiers = [*IDENTIFIERS, *phones(tuple(regions))]
        labels = () if tagger is None else _labels_of(tagger)
        offered = tuple(dict.fromkeys([*(each.kind for each in identifiers), *labels]))
        if kinds is not None and not kinds:
            raise UsageError("kinds is empty: give at least one, or omit it for all")
        for kind in kinds or ():
            if kind not in offered:
                raise UsageError(f"unknown kind {kind!r}: expected some of {', '.join(offered)}")
        self.kinds = tuple(kind for kind in offered if kinds is None or kind in kinds)
        self.key, self.is_json = key, is_json
        self._identifiers = [each for each in identifiers if each.kind in self.kinds]
        self._tagger = tagger if any(label in self.kinds for label in labels) else None
        self.report = RedactionReport(
            examined=self.kinds,
            regions=tuple(regions) if "PHONE" in self.kinds else (),
            tagger=self._tagger is not None,
        )

    def redact(self, text: str) -> Redaction:
        """A text with its replacements.

        Raises:
            UsageError: not a str.
        """
        if not isinstance(text, str):
            raise UsageError(f"the text is {text!r:.80}: expected a str")
        replacements = list[Replacement]()
        pieces = list(self.redact_stream([text], replacements))
        return Redaction("".join(pieces), tuple(replacements))

    def redact_stream(self, pieces: Iterable[str], replacements: list[Replacement] | None = None) -> Iterator[str]:
        """The pieces of a text with placeholders, in bounded memory.

        Args:
            replacements: receives each replacement.
        """
        stream = _Stream(self, replacements)
        waiting = ""
        for piece in pieces:
            waiting += piece
            if len(waiting) >= _AT_ONCE:
                yield stream.feed(waiting)
                waiting = ""
        yield stream.feed(waiting, is_last=True)
        self.report.num_texts += 1

    def finders(self) -> Union:
        """Finders at the begin of a stream."""
        finders: list[Any] = [IdentifierFinder(each) for each in self._identifiers]
        if self._tagger is not None:
            finders.append(TaggedFinder(self._tags))
        return Union(finders)

    def placeholder(self, kind: str, value: str) -> str:
        """What replaces a value."""
        return f"[{kind}]" if self.key is None else self.key.placeholder(kind, value)

    def _tags(self, texts: Sequence[str]) -> list[list[Span]]:
        assert self._tagger is not None
        predictions = self._tagger.predict(texts)
        return [
            [
                Span(entity.start, entity.end, kind)
                for entity in prediction.entities
                if (kind := kind_of(entity.label)) in self.kinds
            ]
            for prediction in predictions
        ]


class _Stream:
    """A redaction in progress."""

    def __init__(self, redactor: Redactor, replacements: list[Replacement] | None) -> None:
        self.redactor, self.union, self.replacements = redactor, redactor.finders(), replacements
        self.text, self.offset, self.written = "", 0, 0  # characters in memory, position of the first, and of the next
        self.is_in_string = False

    def feed(self, text: str, *, is_last: bool = False) -> str:
        """The text that is decided after the next piece."""
        self.redactor.report.num_characters += len(text)
        window = Window(self.text + text, self.offset, is_last)
        parts = list[str]()
        for start, end, kind in self.union.find(window):
            parts.append(self._original(window, start))
            value = window.text[start - self.offset : end - self.offset]
            placeholder = self.redactor.placeholder(kind, value)
            self.redactor.report.replacements[kind] += 1
            if self.replacements is not None:
                self.replacements.append(Replacement(kind, start, end, placeholder))
            is_bare = self.redactor.is_json and not self.is_in_string
            parts.append(json.dumps(placeholder) if is_bare else placeholder)
            self.written = end
        known = window.end if is_last else max(self.written, self.union.position)
        parts.append(self._original(window, known))
        keep = max(0, known - CONTEXT - 1 - self.offset)
        self.text, self.offset = window.text[keep:], self.offset + keep
        return "".join(parts)

    def _original(self, window: Window, end: int) -> str:
        """The original characters up to a position."""
        first, last = self.written - self.offset, end - self.offset
        if self.redactor.is_json:
            self.is_in_string ^= _num_quotes(window.text, first, last) % 2 == 1
        self.written = max(self.written, end)
        return window.text[first:last]


_QUOTE = re.compile(r'(?<!\\)(\\*)"')


def _num_quotes(text: str, start: int, end: int) -> int:
    """Number of quotes that begin or end a string of JSON in a part of a text: those without an odd number of
    backslashes before."""
    begin = start
    while begin and text[begin - 1] == "\\":
        begin -= 1
    return sum(len(match[1]) % 2 == 0 for match in _QUOTE.finditer(text, begin, end))


def kind_of(label: str) -> str:
    """The kind in placeholders of a label of a tagger: ``person name`` is PERSON_NAME."""
    kind = "".join(character if character.isascii() and character.isalnum() else "_" for character in label.upper())
    return kind if kind[:1].isalpha() else f"LABEL_{kind}"


def _labels_of(tagger: "Model") -> tuple[str, ...]:
    task = tagger.trained.task
    if not task.entity_types:
        raise UsageError(f"the model was trained for {task.name}: expected token-classification with entities")
    return tuple(map(kind_of, task.entity_types))
