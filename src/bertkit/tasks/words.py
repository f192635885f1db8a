"""Split texts into words, and convert character spans to entities."""

import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from bertkit.tasks.tags import Entity
from bertkit.tokenizer.encoding import Span

Words = Literal["punctuation", "spaces"]
"""Rules for splitting texts into words:

- punctuation: each punctuation mark is a word, as in BERT's tokenizer (U . S . - based)
- spaces: only punctuation around a word is split off, as in CoNLL files (U.S.-based ,)

With both rules each letter of a script without spaces is a word, with the marks on it, and so is each punctuation mark
of these scripts and each group of emoji.
"""

_UNSPACED = (  # code points of scripts without spaces
    (0x0E00, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF), (0x1A20, 0x1AAF),  # Thai to Burmese, Khmer, Tai
    (0x2E80, 0x312F), (0x31A0, 0x31FF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F),  # radicals, kana, bopomofo
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF),  # ideographs; planes 2 and 3 are theirs
    (0xA9E0, 0xA9FF), (0xAA60, 0xAADF), (0x116D0, 0x116FF), (0x11700, 0x1174F),  # further Burmese and Tai
)  # fmt: skip
_PLANE_2 = 0x20000
_EAST_ASIAN_MARKS = ((0x3000, 0x303F), (0xFE10, 0xFE1F), (0xFE30, 0xFE6F), (0xFF00, 0xFFEF))
_GENERAL_MARKS = ((0x2000, 0x206F),)  # such as daggers and primes, which belong to words
_LAST_LATIN = 0x36F
_EMOJI = "\u2600-\u2767\u2776-\u27bf\U0001f000-\U0001faff"
_SPAN_KEYS = (("start", "start_offset", "begin"), ("end", "end_offset"), ("label", "labels", "type", "entity_group"))
_POSSESSIVE = re.compile(r"['’][sS]")


def words_of(text: str, words: Words) -> tuple[Span, ...]:
    """Words in order, without overlap, with only white space between them, or U+200B after a letter of a script without
    spaces."""
    patterns = _patterns()
    if words == "punctuation":
        return tuple(match.span(match.lastindex or 0) for match in patterns.punctuation.finditer(text))
    spans: list[Span] = []
    for match in patterns.spaces.finditer(text):
        spans += [match.span(match.lastindex)] if match.lastindex else _set_apart(text, *match.span())
    return tuple(spans)


def joined(words: Sequence[str]) -> tuple[str, tuple[Span, ...]]:
    """A text made of words, with spaces between them except between letters of scripts without spaces; and their
    character spans.

    >>> joined(["Ada", "在", "北", "京"])
    ('Ada 在北京', ((0, 3), (4, 5), (5, 6), (6, 7)))
    """
    text, spans = "", []
    for word in words:
        if text and not (_is_joined(text[-1]) and _is_joined(word[0])):
            text += " "
        spans.append((len(text), len(text) + len(word)))
        text += word
    return text, tuple(spans)


class _Patterns(NamedTuple):
    punctuation: re.Pattern[str]  # a match is a word; its first group, if any, is the word without U+200B after it
    spaces: re.Pattern[str]  # the same; a match without a group may have punctuation around it
    opening: str
    closing: str


@cache
def _patterns() -> _Patterns:
    codes: dict[str, list[int]] = {}
    for code in range(sys.maxunicode + 1):
        codes.setdefault(unicodedata.category(chr(code)), []).append(code)
    marks = sorted(code for category in codes if category[0] == "P" for code in codes[category])
    combining = _as_class(sorted(code for category in codes if category[0] == "M" for code in codes[category]))
    letters = sorted(code for category in ("Lo", "Lm", "Nl", "So") for code in codes[category] if _is_unspaced(code))
    letter = _as_class([code for code in letters if code < _PLANE_2]) + _as_class(range(_PLANE_2, _PLANE_2 + 0x20000))
    unit = rf"([{letter}][{combining}\u200c\u200d]*)\u200b*|((?:[{_EMOJI}][\ufe0f\u200d{_EMOJI}]*)+)"
    alone = _as_class(sorted({*marks, *(code for code in range(33, 127) if not chr(code).isalnum())}))
    mark = _as_class([code for code in marks if _is_unspaced(code) or _is_within(code, _EAST_ASIAN_MARKS)])
    opening = [*map(ord, "\"'‘“¿¡"), *codes["Ps"], *codes["Pi"]]
    others = [code for code in codes["Po"] if code > _LAST_LATIN and not _is_within(code, _GENERAL_MARKS)]
    closing = [*map(ord, "\"'.,;:!?…"), *codes["Pe"], *codes["Pf"], *others]
    return _Patterns(
        re.compile(rf"[{alone}]|{unit}|[^\s{alone}{letter}{_EMOJI}]+"),
        re.compile(rf"([{mark}])|{unit}|[^\s{mark}{letter}{_EMOJI}]+"),
        "".join(map(chr, opening)),
        "".join(map(chr, closing)),
    )


def _as_class(codes: Iterable[int]) -> str:
    """Code points in ascending order as the inside of a character class."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


def _is_within(code: int, ranges: Iterable[Span]) -> bool:
    return any(first <= code <= last for first, last in ranges)


def _is_unspaced(code: int) -> bool:
    return _is_within(code, _UNSPACED)


def _is_joined(character: str) -> bool:
    """Whether a letter or mark is of a script without spaces."""
    category = unicodedata.category(character)
    is_mark = category[0] == "P" and _is_within(ord(character), _EAST_ASIAN_MARKS)
    return is_mark or (_is_unspaced(ord(character)) and category != "Nd")


def _set_apart(text: str, start: int, end: int) -> list[Span]:
    """Split a run without spaces into leading punctuation, the word, a possessive 's, and trailing punctuation.

    Beside a letter of a script without spaces, opening marks may end the run, and closing marks may begin it.
    """
    before: list[Span] = []
    after: list[Span] = []
    opening, closing = _patterns()[2:]
    if text[end : end + 1].strip():
        closing += opening
    if text[:start][-1:].strip():
        opening += closing
    while end - start > 1 and text[start] in opening:
        before.append((start, start + 1))
        start += 1
    while end - start > 1 and text[end - 1] in closing and not _is_abbreviation(text, start, end):
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


class SpanEntities(NamedTuple):
    """The entities of a text, from character spans."""

    entities: list[Entity]
    problem: str = ""  # the part of the error message after file and line
    num_snapped: int = 0  # spans that were moved to the borders of words, or removed because they touch no word


def entities_of_spans(spans: Any, text: str, words: Sequence[Span], *, snap: bool = False) -> SpanEntities:
    """Character spans, [start, end, label] or {start, end, label}, as entities of words.

    Args:
        snap: move a span that begins or ends inside a word, or at white space, to the borders of the words it touches.
    """
    if not isinstance(spans, list | tuple):
        return SpanEntities([], f": the spans are {spans!r:.60}, expected a list of spans, or [] for no entities")
    first_at = {start: number for number, (start, _) in enumerate(words)}
    end_at = {end: number for number, (_, end) in enumerate(words, start=1)}
    results: list[Entity] = []
    num_snapped = 0
    for span in spans:
        parts = _start_end_label(span)
        if parts is None:
            problem = f": the span {span!r:.60} is invalid: expected [start, end, label] or {{start, end, label}}"
            return SpanEntities([], problem)
        start, end, label = parts
        if not 0 <= start < end <= len(text):
            problem = f": the span {start}-{end} is not within the text, which has {len(text)} characters"
            return SpanEntities([], problem)
        if start not in first_at or end not in end_at:
            touched = [(first, last) for first, last in words if first < end and last > start]
            nearest = (touched[0][0], touched[-1][1]) if touched else None
            if not snap:
                side = "starts" if start not in first_at else "ends"
                move = "or remove it" if nearest is None else f"{nearest[0]}-{nearest[1]}"
                problem = (
                    f": the span {start}-{end}, {text[start:end]!r:.60}, {side} inside a word or at white space: move "
                    f"it to the words' borders, {move}; snap_spans=True moves all such spans"
                )
                return SpanEntities([], problem)
            num_snapped += 1
            if nearest is None:
                continue
            start, end = nearest
        results.append((first_at[start], end_at[end], label))
    results.sort()
    for (_, end, label), (first, _, next_label) in pairwise(results):
        if first < end:
            shown = text[words[first][0] : words[end - 1][1]]
            problem = f": a {label} and a {next_label} span overlap in {shown!r:.60}: each word is in one entity"
            return SpanEntities([], problem)
    return SpanEntities(results, num_snapped=num_snapped)


def _start_end_label(span: Any) -> tuple[int, int, str] | None:
    if isinstance(span, dict):
        span = [next((span[name] for name in names if name in span), None) for names in _SPAN_KEYS]
        if isinstance(span[2], list) and len(span[2]) == 1:
            span = [*span[:2], span[2][0]]
    if not isinstance(span, list | tuple) or len(span) != 3:
        return None
    start, end, label = span
    if type(start) is int and type(end) is int and isinstance(label, str) and label.strip():
        return start, end, label.strip()
    return None
