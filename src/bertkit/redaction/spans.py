"""Spans to replace in a stream of text, independent of how the stream is cut into pieces.

A finder decides a span when it has read all that could change it. Positions are characters from the begin of the
stream.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bertkit.redaction.identifiers import CONTEXT, SEPARATORS, Identifier

MARGIN = 64
"""Characters after a match that a pattern may look at."""

BLOCK = 8_192
"""Largest number of characters that a tagger reads at a time."""


class Span(NamedTuple):
    """Characters of a kind."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Window:
    """The part of a stream in memory."""

    text: str
    offset: int  # position of its first character
    is_last: bool  # whether the stream ends with it
    _starts: dict[re.Pattern[str], list[int]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Position after its last character."""
        return self.offset + len(self.text)

    def first(self, identifier: Identifier, start: int) -> re.Match[str] | None:
        """The first match of a pattern at a character of the text or after it."""
        text, starts = self.text, identifier.starts
        if starts is None:
            if identifier.contents and not any(content in text for content in identifier.contents):
                return None
            return identifier.pattern.search(text, start)
        if starts not in self._starts:
            self._starts[starts] = [match.start() for match in starts.finditer(text)]
        known = self._starts[starts]
        matches = (identifier.pattern.match(text, known[i]) for i in range(bisect_left(known, start), len(known)))
        return next(filter(None, matches), None)


Tag = Callable[[Sequence[str]], Sequence[Sequence[Span]]]
"""Texts to the spans of each."""


class Finder(Protocol):
    """Spans of one kind, from the left to the right."""

    position: int  # all spans that begin before it are known

    def find(self, window: Window) -> Iterator[Span]:
        """The next spans that are decided; moves the position."""


class IdentifierFinder:
    """The matches of an identifier that are valid; of one that is not, the longest valid part up to a separator."""

    def __init__(self, identifier: Identifier) -> None:
        self.identifier, self.position = identifier, 0

    def find(self, window: Window) -> Iterator[Span]:
        """As `Finder.find`."""
        text, offset, identifier = window.text, window.offset, self.identifier
        start = self.position - offset
        undecided = len(text) if window.is_last else max(start, len(text) - identifier.longest - MARGIN)
        while start <= undecided:
            match = window.first(identifier, start)
            if match is None or match.start() >= undecided:
                break
            if end := self._valid_end(text, match.start(), match.end()):
                yield Span(offset + match.start(), offset + end, identifier.kind)
            start = end or match.start() + 1
        self.position = offset + max(start, undecided)

    def _valid_end(self, text: str, start: int, end: int) -> int | None:
        identifier = self.identifier
        if identifier.words and not identifier.words.search(text, max(0, start - CONTEXT), start):
            return None
        match = text[start:end]
        if identifier.is_valid(match):
            return end
        for length in range(len(match) - 1, 0, -1):
            if match[length] in SEPARATORS and match[length - 1] not in SEPARATORS:
                shorter = identifier.pattern.match(text, start, start + length)
                if shorter and shorter.end() == start + length and identifier.is_valid(match[:length]):
                    return start + length
        return None


class TaggedFinder:
    """Spans that a tagger finds in blocks, which end at a line if one ends there, or at a space.

    Args:
        tag: texts to the spans of each.
    """

    def __init__(self, tag: Tag) -> None:
        self.tag, self.position = tag, 0

    def find(self, window: Window) -> Iterator[Span]:
        """As `Finder.find`."""
        blocks, starts, end = list[str](), list[int](), window.end
        while self.position < end and (window.is_last or end - self.position >= BLOCK):
            start = self.position - window.offset
            blocks.append(_first_block(window.text, start))
            starts.append(self.position)
            self.position += len(blocks[-1])
        for start, spans in zip(starts, self.tag(blocks), strict=True) if blocks else ():
            for span in spans:
                yield Span(start + span.start, start + span.end, span.kind)


def blocks_of(text: str) -> list[str]:
    """The blocks in which `TaggedFinder` reads a text; together they are the text."""
    blocks, start = list[str](), 0
    while start < len(text):
        blocks.append(_first_block(text, start))
        start += len(blocks[-1])
    return blocks


def _first_block(text: str, start: int) -> str:
    block = text[start : start + BLOCK]
    if len(block) < BLOCK:
        return block
    cut = block.rfind("\n") + 1 or block.rfind(" ") + 1 or BLOCK
    return block[:cut]


class Union:
    """Spans of several finders, those that overlap joined to one of the kind that begins first; of those that begin at
    the same character, that of the longest, then of the first finder.

    Args:
        longest: characters at which a joined span is cut, so that memory is bounded.
    """

    def __init__(self, finders: Sequence[Finder], longest: int = 1 << 16) -> None:
        self.finders, self.longest = finders, longest
        self._waiting = list[tuple[int, int, int, Span]]()  # start, -end and finder, sorted

    @property
    def position(self) -> int:
        """Position before which everything is decided."""
        known = min(finder.position for finder in self.finders)
        return min(known, self._waiting[0][0]) if self._waiting else known

    def find(self, window: Window) -> Iterator[Span]:
        """As `Finder.find`."""
        for number, finder in enumerate(self.finders):
            self._waiting += [(span.start, -span.end, number, span) for span in finder.find(window)]
        self._waiting.sort()
        known = min(finder.position for finder in self.finders)
        while self._waiting:
            (start, end, kind), count = self._waiting[0][3], 1
            while count < len(self._waiting) and self._waiting[count][0] < end:
                end, count = max(end, -self._waiting[count][1]), count + 1
            cut = min(end, start + self.longest)
            if cut > known:
                return
            after = [(cut, last, number, span._replace(start=cut)) for _, last, number, span in self._waiting[:count]]
            self._waiting[:count] = sorted(each for each in after if -each[1] > cut)
            yield Span(start, cut, kind)
