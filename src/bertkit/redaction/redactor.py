"""Redaction of texts and streams."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from bertkit.errors import UsageError, check_several
from bertkit.redaction.identifiers import CONTEXT, IDENTIFIERS, phones
from bertkit.redaction.key import Key, pieces_of_text
from bertkit.redaction.spans import IdentifierFinder, Span, Tag, TaggedFinder, Union, Window, blocks_of

if TYPE_CHECKING:
    from bertkit.extraction.schema import Labels

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
        tagger: whether a model looked for names.
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


class NameFinder(Protocol):
    """What finds names and places: a model."""

    def entity_labels(self, labels: Labels | None) -> tuple[str, ...]:
        """See `Model.entity_labels`."""

    def extract(self, texts: Sequence[str], labels: Labels, *, threshold: float | None) -> Sequence[Any]:
        """See `Model.extract`."""


class Redactor:
    """Finds and replaces identifiers, and names if a model is given.

    The result is the same however a stream is cut into pieces; memory is bounded.

    Args:
        kinds: of identifiers, and labels of the model; None: all.
        regions: ISO 3166 codes: telephone numbers without an international prefix are those of these regions; None:
            `REGIONS`.
        tagger: a model fine-tuned for token classification, or an extraction model; its entities are replaced as well.
        labels: what an extraction model looks for; of a tagger some of its labels, None: all.
        threshold: of the scores of entities; None: that of the model.
        key: makes placeholders that it can restore; None: each placeholder names its kind only.
        is_json: outside of strings, placeholders are written in quotes.

    Raises:
        UsageError: an unknown kind or region, labels that the model does not find, or a missing library.
        MissingHeadError: a model that finds no entities.
    """

    def __init__(
        self,
        kinds: Sequence[str] | None = None,
        *,
        regions: Sequence[str] | None = None,
        tagger: NameFinder | None = None,
        labels: Labels | None = None,
        threshold: float | None = None,
        key: Key | None = None,
        is_json: bool = False,
    ) -> None:
        for name, some in (("kinds", kinds), ("regions", regions)):
            if some is not None:
                check_several(name, some, in_order=False)
        kinds, chosen_regions = kinds and tuple(kinds), REGIONS if regions is None else tuple(regions)
        identifiers = [*IDENTIFIERS, *phones(chosen_regions)]
        if not hasattr(tagger, "entity_labels") and tagger is not None:
            raise UsageError(
                f"tagger is {type(tagger).__name__} ({tagger!r:.40}): expected a model, as of bertkit.load"
            )
        if not isinstance(key, Key | None):
            raise UsageError(f"key is {type(key).__name__}: expected a Key, such as Key.read(file)")
        for name, given in (("labels", labels), ("threshold", threshold)):
            if tagger is None and given is not None:
                raise UsageError(f"{name} without a model: give one that finds them")
        names = () if tagger is None else tagger.entity_labels(labels)
        offered = tuple(dict.fromkeys([*(each.kind for each in identifiers), *map(kind_of, names)]))
        if kinds is not None and not kinds:
            raise UsageError("kinds is empty: give at least one, or omit it for all")
        for kind in kinds or ():
            if kind not in offered:
                raise UsageError(f"unknown kind {kind!r}: expected some of {', '.join(offered)}")
        self.kinds = tuple(kind for kind in offered if kinds is None or kind in kinds)
        self.key, self.is_json = key, is_json
        self._identifiers = [each for each in identifiers if each.kind in self.kinds]
        wanted = [name for name in names if kind_of(name) in self.kinds]
        self._labels: Labels = {name: labels[name] for name in wanted} if isinstance(labels, Mapping) else wanted
        self._tagger, self._threshold = tagger if wanted else None, threshold
        self.report = RedactionReport(
            examined=self.kinds,
            regions=chosen_regions if "PHONE" in self.kinds else (),
            tagger=self._tagger is not None,
        )

    def redact(self, text: str) -> Redaction:
        """A text with its replacements.

        Raises:
            UsageError: not a str.
        """
        return self.redact_all([text])[0]

    def redact_all(self, texts: Sequence[str]) -> list[Redaction]:
        """`redact` of several texts, in which names are looked for together."""
        steps = RedactionSteps(self, texts)
        while (results := steps.next()) is None:
            pass
        return results

    def redact_stream(self, pieces: Iterable[str], replacements: list[Replacement] | None = None) -> Iterator[str]:
        """The pieces of a text with placeholders, in bounded memory.

        Args:
            replacements: receives each replacement.

        Raises:
            UsageError: pieces that are no str.
        """
        stream = _Stream(self, replacements, self.names_in)
        waiting = ""
        for piece in pieces_of_text(pieces):
            waiting += piece
            if len(waiting) >= _AT_ONCE:
                yield stream.feed(waiting)
                waiting = ""
        yield stream.feed(waiting, is_last=True)
        self.report.num_texts += 1

    def finders(self, tag: Tag) -> Union:
        """Finders at the begin of a stream, with ``tag`` for names."""
        finders: list[Any] = [IdentifierFinder(each) for each in self._identifiers]
        if self._tagger is not None:
            finders.append(TaggedFinder(tag))
        return Union(finders)

    def placeholder(self, kind: str, value: str) -> str:
        """What replaces a value."""
        return f"[{kind}]" if self.key is None else self.key.placeholder(kind, value)

    def names_in(self, texts: Sequence[str]) -> list[list[Span]]:
        """What the tagger finds in each text."""
        assert self._tagger is not None
        found = self._tagger.extract(texts, self._labels, threshold=self._threshold)
        return [[Span(each.start, each.end, kind_of(each.label)) for each in entities] for entities in found]


class _Stream:
    """A redaction in progress."""

    def __init__(self, redactor: Redactor, replacements: list[Replacement] | None, tag: Tag) -> None:
        self.redactor, self.union, self.replacements = redactor, redactor.finders(tag), replacements
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


class RedactionSteps:
    """`Redactor.redact_all`, about 65,000 characters at a time, so that other work can be done in between.

    Attributes:
        num_left: characters that are left.

    Raises:
        UsageError: a text that is not a str.
    """

    def __init__(self, redactor: Redactor, texts: Sequence[str]) -> None:
        check_several("texts", texts)
        texts = list(texts)
        for text in texts:
            if not isinstance(text, str):
                raise UsageError(f"the text is {text!r:.80}: expected a str")
        self._redactor, self.num_left = redactor, sum(map(len, texts))
        self._blocks = deque[tuple[str, int, bool]]()  # with the number of their text, and whether they are its last
        for number, text in enumerate(texts):
            *others, last = blocks_of(text) or [""]
            self._blocks += [(block, number, False) for block in others] + [(last, number, True)]
        self._known: dict[str, Sequence[Span]] = {}  # the names in a block
        self._results: list[Redaction] = []
        self._begin()

    def _begin(self) -> None:
        """Begin with a text."""
        self._pieces, self._replacements = list[str](), list[Replacement]()
        self._stream = _Stream(self._redactor, self._replacements, lambda part: [self._known[block] for block in part])

    def next(self) -> list[Redaction] | None:
        """Read the next characters; the results after the last ones. After an exception of the tagger nothing has
        changed, and it can be called again."""
        sizes = accumulate(len(block) for block, _, _ in self._blocks)
        num_blocks = next((number for number, size in enumerate(sizes, 1) if size >= _AT_ONCE), len(self._blocks))
        blocks = list(islice(self._blocks, num_blocks))
        if self._redactor.report.tagger:
            new = list(dict.fromkeys(block for block, _, _ in blocks if block not in self._known))
            self._known.update(zip(new, self._redactor.names_in(new), strict=True))
        for _, part in groupby(blocks, key=itemgetter(1)):
            texts, _, are_last = zip(*part, strict=True)
            self._pieces.append(self._stream.feed("".join(texts), is_last=are_last[-1]))
            if are_last[-1]:
                self._redactor.report.num_texts += 1
                self._results.append(Redaction("".join(self._pieces), tuple(self._replacements)))
                self._begin()
        for block, _, _ in blocks:
            self._blocks.popleft()
            self.num_left -= len(block)
        return None if self._blocks else self._results


_QUOTE = re.compile(r'(?<!\\)(\\*)"')


def _num_quotes(text: str, start: int, end: int) -> int:
    """Number of quotes that begin or end a string of JSON in a part of a text: those without an odd number of
    backslashes before."""
    begin = start
    while begin and text[begin - 1] == "\\":
        begin -= 1
    return sum(len(match[1]) % 2 == 0 for match in _QUOTE.finditer(text, begin, end))


def kind_of(label: str) -> str:
    """The kind in placeholders of a label of a model: ``person name`` is PERSON_NAME."""
    kind = "".join(character if character.isascii() and character.isalnum() else "_" for character in label.upper())
    return kind if kind[:1].isalpha() else f"LABEL_{kind}"
