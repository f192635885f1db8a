"""Split texts into words, and convert character spans to entities."""

import re
import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Literal

from bertkit.tasks.tags import Entity
from bertkit.tokenizer.encoding import Span

Words = Literal["punctuation", "spaces"]
"""Rules for splitting texts into words:

- punctuation: each punctuation mark is a word, as in BERT's tokenizer (U . S . - based)
- spaces: only punctuation around a word is split off, as in CoNLL files (U.S.-based ,); in scripts that are written
  without spaces each character is a word, see `joined_at_tokens`
"""

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f"
_UNSPACED = re.compile(
    rf"[{_CJK}\u2e80-\u303f\u3040-\u312f\u31a0-\u31ff\uff66-\uff9f\U00016fe0-\U00018cff\U0001b000-\U0001b16f"
    r"\U0002ebf0-\U0002ee5f\U00030000-\U000323af"  # Chinese and Japanese with their signs
    r"\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"  # full-width signs, not letters and digits
    r"\u0e00-\u0fff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Thai, Lao, Tibetan, Burmese
    r"\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9df]"  # Khmer, Tai, Balinese, Javanese
)
"""A character of a script that is written without spaces between words."""

_OPENING = "\"'“‘«([{<¿¡"
_CLOSING = "\"'”’»)]}>.,;:!?…"
_POSSESSIVE = re.compile(r"['’][sS]")


def words_of(text: str, words: Words) -> tuple[Span, ...]:
    """Words in order, without overlap, with only white space between them."""
    if words == "punctuation":
        return tuple(match.span() for match in _between_punctuation().finditer(text))
    spans: list[Span] = []
    for match in re.finditer(r"\S+", text):
        for start, end in _at_unspaced(text, *match.span()):
            spans += _set_apart(text, start, end)
    return tuple(spans)


def joined_at_tokens(text: str, words: Sequence[Span], tokens: Sequence[Span]) -> tuple[Span, ...]:
    """The words of a text, where those of a script without spaces that begin inside a token are joined to the word
    before them: a tagger has one label for the characters of a token.

    >>> joined_at_tokens("トヨタで", [(0, 1), (1, 2), (2, 3), (3, 4)], tokens=[(0, 2), (2, 3), (3, 4)])
    ((0, 2), (2, 3), (3, 4))
    """
    joined: list[Span] = []
    starts = [start for start, _ in tokens]
    for start, end in words:
        token = bisect_left(starts, start) - 1  # the last one that starts before the word
        is_inside = token >= 0 and start < tokens[token][1]
        if is_inside and joined and joined[-1][1] == start and _UNSPACED.match(text, start):
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return tuple(joined)


def spaced(words: Sequence[str]) -> tuple[Span, ...]:
    """Character spans of words joined by single spaces."""
    ends = list(accumulate(len(word) + 1 for word in words))
    return tuple((end - len(word) - 1, end - 1) for word, end in zip(words, ends, strict=True))


@cache
def _between_punctuation() -> re.Pattern[str]:
    marks = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character)[0] == "P" or ("!" <= character <= "~" and not character.isalnum())
    ]
    alone = "".join(map(re.escape, marks)) + _CJK
    return re.compile(rf"[{alone}]|[^\s{alone}]+")


def _at_unspaced(text: str, start: int, end: int) -> Iterator[Span]:
    """Split a run without spaces around each character of a script without spaces; marks stay with the character
    before them."""
    if _UNSPACED.search(text, start, end):
        for index in range(start + 1, end):
            is_mark = unicodedata.category(text[index]) in ("Mn", "Mc", "Me", "Cf")
            if not is_mark and (_UNSPACED.match(text, index) or _UNSPACED.match(text, start)):
                yield start, index
                start = index
    yield start, end


def _set_apart(text: str, start: int, end: int) -> list[Span]:
    """Split a run without spaces into leading punctuation, the word, a possessive 's, and trailing punctuation."""
    before: list[Span] = []
    after: list[Span] = []
    while end - start > 1 and text[start] in _OPENING:
        before.append((start, start + 1))
        start += 1
    while end - start > 1 and text[end - 1] in _CLOSING and not _is_abbreviation(text, start, end):
        length = 1
        while text[end - 1] == "." and length < end - start and text[end - length - 1] == ".":
            length += 1  # an ellipsis is one word
        if length == end - start:
            break
        after.append((end - length, end))
        end -= length
    if end - start > 2 and _POSSESSIVE.match(text, end - 2, end):
        after.append((end - 2, end))
        end -= 2
    return [*before, (start, end), *reversed(after)]


def _is_abbreviation(text: str, start: int, end: int) -> bool:
    """Whether a dot at the end is the last of several, as in U.S."""
    return text[end - 1] == "." and text[end - 2] != "." and "." in text[start : end - 2]


def entities_of_spans(spans: Any, text: str, words: Sequence[Span]) -> tuple[list[Entity], str]:
    """Character spans, [start, end, label] or {start, end, label}, as entities of words; and "" or a problem: the part
    of the error message after file and line."""
    if not isinstance(spans, list | tuple):
        return [], f": the spans are {spans!r:.60}, expected a list of spans, or [] for no entities"
    first_at = {start: number for number, (start, _) in enumerate(words)}
    end_at = {end: number for number, (_, end) in enumerate(words, start=1)}
    results: list[Entity] = []
    for span in spans:
        parts = _start_end_label(span)
        if parts is None:
            return [], f": the span {span!r:.60} is invalid: expected [start, end, label] or {{start, end, label}}"
        start, end, label = parts
        if not 0 <= start < end <= len(text):
            return [], f": the span {start}-{end} is not within the text, which has {len(text)} characters"
        if start not in first_at or end not in end_at:
            side = "starts" if start not in first_at else "ends"
            return [], (
                f": the span {start}-{end}, {text[start:end]!r:.60}, {side} inside a word or at white space: move it "
                f"to the words' borders, {_nearest(words, start, end)}"
            )
        results.append((first_at[start], end_at[end], label))
    results.sort()
    for (_, end, label), (first, _, next_label) in pairwise(results):
        if first < end:
            shown = text[words[first][0] : words[end - 1][1]]
            return [], f": a {label} and a {next_label} span overlap in {shown!r:.60}: each word is in one entity"
    return results, ""


def _start_end_label(span: Any) -> tuple[int, int, str] | None:
    if isinstance(span, dict):
        span = [span.get(name) for name in ("start", "end", "label")]
    if not isinstance(span, list | tuple) or len(span) != 3:
        return None
    start, end, label = span
    if type(start) is int and type(end) is int and isinstance(label, str) and label:
        return start, end, label
    return None


def _nearest(words: Sequence[Span], start: int, end: int) -> str:
    """The words that a span touches, as a span."""
    touched = [(first, last) for first, last in words if first < end and last > start]
    return f"{touched[0][0]}-{touched[-1][1]}" if touched else "or remove it"
