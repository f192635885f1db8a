"""Split documents into passages: at sentences and headings, with overlap and exact offsets."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bertkit.corpus.layouts import SAMPLE_BYTES, guess_layout
from bertkit.corpus.sentences import cut_sentences
from bertkit.documents.document import Document, path_to
from bertkit.errors import UsageError, check_type, checked_count


@dataclass(frozen=True)
class PassageOptions:
    """Options of splitting documents."""

    length: int = 800  # maximum number of characters, about 180 tokens of English
    overlap: int = 150  # maximum number of characters repeated from the previous passage, in whole sentences

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", checked_count("passage length", self.length))
        object.__setattr__(self, "overlap", checked_count("overlap", self.overlap, 0))
        if self.overlap >= self.length:
            raise UsageError(f"overlap {self.overlap}: expected at least 0 and less than the length {self.length}")


@dataclass(frozen=True)
class Passage:
    """A part of a document."""

    text: str  # characters ``start`` to ``end`` of the document
    start: int
    end: int
    context: str  # title and headings above it, each followed by ": "; prepended to the text for embedding


def cut_passages(document: Document, options: PassageOptions = PassageOptions()) -> Iterator[Passage]:
    """Split a document, or a part of one, into passages of whole sentences up to the length, never across a heading.

    A heading belongs to the passage it starts. A sentence longer than a passage is cut at white space. Passages have no
    white space at their ends, and contain every other character.
    """
    check_type("passages", options, PassageOptions)
    text = document.text
    bounds = [0, *(start for start, _, _ in document.headings if start > 0), len(text)]
    path = [heading for heading in document.headings if heading[0] < 0]
    named = {heading[0]: heading for heading in document.headings}
    for start, end in pairwise(bounds):
        if start in named:
            path = path_to(named[start], path)
            outer = path[:-1]
        else:
            outer = path
        pieces = _pieces(text, start, end, options.length)
        for number, (first, last) in enumerate(_joined(pieces, options)):
            names = [document.title, *(name for _, _, name in (outer if number == 0 else path))]
            context = "".join(f"{name}: " for name in dict.fromkeys(names) if name)
            yield Passage(text[first:last], document.offset + first, document.offset + last, context)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence, in characters, without white space at its ends."""
    return _sentences(text, 0, len(text))


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    part = text[start:end]
    data = np.frombuffer(part.encode("utf-8", "replace"), np.uint8)
    if not len(data):
        return []
    layout = guess_layout(data[:SAMPLE_BYTES])
    bounds, _ = cut_sentences(data, np.array([0, len(data)]), layout)
    if len(data) != len(part):  # bytes to characters
        bounds = np.concatenate([[0], np.cumsum(data & 0xC0 != 0x80)])[bounds]
    return [_stripped(text, start + int(a), start + int(b)) for a, b in pairwise(bounds)]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def _pieces(text: str, start: int, end: int, length: int) -> Iterator[tuple[int, int]]:
    """Sentences, long ones cut at white space."""
    for first, last in _sentences(text, start, end):
        while last - first > length:
            cut = max(text.rfind(" ", first + 1, first + length + 1), text.rfind("\n", first + 1, first + length + 1))
            cut = cut if cut > first else first + length
            yield _stripped(text, first, cut)
            first = cut
            while first < last and text[first].isspace():  # a copy of the rest for each passage would take long
                first += 1
        if first < last:
            yield first, last


def _joined(pieces: Iterator[tuple[int, int]], options: PassageOptions) -> Iterator[tuple[int, int]]:
    held: list[tuple[int, int]] = []
    num_new = 0
    for piece in pieces:
        if held and piece[1] - held[0][0] > options.length:
            if num_new:
                yield held[0][0], held[-1][1]
            num_new = 0
            while held and (held[-1][1] - held[0][0] > options.overlap or piece[1] - held[0][0] > options.length):
                held.pop(0)
        held.append(piece)
        num_new += 1
    if num_new:
        yield held[0][0], held[-1][1]
