"""Sentence splitting by compiled rules, on UTF-8 bytes.

A sentence ends at . ! ? … and their equivalents in other scripts, with closing quotes and brackets, if white space
follows and then the possible start of a sentence: an uppercase letter, a digit, or a letter of a script without case;
quotes, brackets and dashes before it are skipped. Chinese and Japanese ends need no white space. An empty line also
ends a sentence, and so does every line end if lines are not wrapped. A single dot does not end a sentence

- after a title or the like ("Mr. Smith", "e.g. Paris"),
- after an initial, or an abbreviation common within sentences ("J. R. R. Tolkien", "U.S. Senate", "Acme Inc. Paris"),
  unless the next word often starts a sentence, or a quote follows ("in the U.S. The", 'said I. "Go'),
- after a counting word, before a number ("No. 5", "p. 12", "Jan. 3"),
- after the number of an item ("1. First", "IV. Of Birds", "a. One") at the start of the sentence.

A decision depends only on the word before the dot, the word after it, and whether the sentence starts at that word.

Limits: the rules are for English; abbreviations of other languages are unknown. Lowercase text is not split, nor is
text without the space ("end.Next"). '"Go!" John said' is split after the quote. A surname after "I." may be split
off, as may a title that is not listed. In wrapped text, headings without an end run into the following text. Words
broken at a line end stay broken.

Speed: about 900 MB/s per core on English prose, ten times the tokenizer's.
"""

from typing import Literal, get_args

import numpy as np

from bertkit.compiled import lean, lean_inline, lean_part, soonest
from bertkit.corpus.sentence_signs import (
    BEFORE_NUMBER,
    BEGINS,
    BESIDE,
    DOT,
    END,
    END_AT_ONCE,
    KINDS,
    KINDS_OF_WORDS,
    LETTER,
    LINE_END,
    LOWER,
    MAY_END,
    NEVER_ENDS,
    OPENING,
    OTHER,
    SPACE,
    UPPER,
    WORDS,
    is_ascii_letter,
    is_beside,
    is_digit,
    is_in_word,
    is_roman,
    kind_of,
    kind_of_word,
    number_of_word,
)
from bertkit.tokenizer.characters import decode
from bertkit.tokenizer.engine import eight_bytes, num_before

TextLayout = Literal["lines", "paragraphs", "running"]
"""Meaning of a line end: end of a sentence; end of a paragraph of sentences; nothing, where two end a paragraph."""
TEXT_LAYOUTS: tuple[TextLayout, ...] = get_args(TextLayout)
_LINES, _RUNNING = TEXT_LAYOUTS.index("lines"), TEXT_LAYOUTS.index("running")

STARTS_TEXT, AFTER_EMPTY_LINE = 1, 2
"""Flags of a sentence: the first of its text; after a blank line."""

_LINE_ENDS, _DOTS, _EXCLAMATIONS, _QUESTIONS, _LOW_BITS, _UPPER_BITS = (  # a value in each of eight bytes
    np.uint64(0x0101010101010101 * value) for value in (*b"\n.!?", 0x7F, 0x80)
)
_LONGEST_WORD = 16  # bytes examined before a dot
_FIRST_HIRAGANA, _LAST_HIRAGANA = 0x3041, 0x309F


def cut_sentences(data: np.ndarray, texts: np.ndarray, layout: TextLayout) -> tuple[np.ndarray, np.ndarray]:
    """Find the sentences of texts stored in one array of bytes. White space alone is not a sentence.

    Args:
        data: (num_bytes,) uint8, UTF-8; other bytes are not letters.
        texts: (num_texts + 1,) int64, first byte of each text; sentences never cross texts.

    Returns:
        (S + 1,) int64 first byte of each sentence, which extends to the next one, and the end; and (S,) uint8 flags.
    """
    data = np.ascontiguousarray(data, np.uint8).view()
    data.setflags(write=False)  # compiled once
    capacity = int(texts[-1] - texts[0]) // 2 + len(texts)  # a sentence has at least a byte and a line end
    bounds = np.empty(capacity + 1, np.int64)
    flags = np.empty(capacity, np.uint8)
    count = soonest(_cut, len(data))(
        data, np.ascontiguousarray(texts, np.int64), TEXT_LAYOUTS.index(layout), KINDS, WORDS, KINDS_OF_WORDS,
        bounds, flags,
    )  # fmt: skip
    bounds[count] = texts[-1]
    return bounds[: count + 1], flags[:count]


def split_sentences(text: str, layout: TextLayout = "running") -> list[str]:
    """The sentences of a text, each as one line."""
    data = text.encode()
    bounds, _ = cut_sentences(np.frombuffer(data, np.uint8), np.array([0, len(data)]), layout)
    return [sentence_text(data[bounds[index] : bounds[index + 1]]) for index in range(len(bounds) - 1)]


def sentence_text(data: bytes) -> str:
    """The bytes of a sentence as one line of text; bytes that are not UTF-8 become replacement characters."""
    return " ".join(data.decode("utf-8", "replace").split())


@lean
def _cut(data, texts, layout, kinds, words, word_kinds, bounds, flags):
    """Write the first byte and the flags of each sentence; returns their number."""
    count = np.int64(0)
    for text in range(len(texts) - 1):
        end = texts[text + 1]
        position, num_lines = _skip_space(data, texts[text], end, kinds)
        flag = STARTS_TEXT
        if num_lines > 0:
            flag |= AFTER_EMPTY_LINE
        while position < end:
            bounds[count], flags[count] = position, flag
            position, num_lines = _next_sentence(data, position, end, layout, kinds, words, word_kinds)
            flag = AFTER_EMPTY_LINE if num_lines > 1 else 0
            count += 1
    return count


@lean_inline
def _next_sentence(data, first, end, layout, kinds, words, word_kinds):
    """Start of the next sentence, or ``end``, and the number of line ends before it."""
    position, num_lines = first, np.int64(0)
    while position < end:
        size = np.int64(8)
        while size == 8 and position + 8 <= end:
            size = _num_plain(eight_bytes(data, position))
            position += size
        if position == end:
            break
        code, following = np.int64(data[position]), position + 1
        if code >= 0x80:
            code, following = decode(data, position, end)
        kind = kind_of(code, kinds)
        if kind < LINE_END:
            position = following
            continue
        if kind == LINE_END:
            if layout == _RUNNING and following < end and 0x20 < data[following] < 0x80:  # most line ends
                position = following
                continue
            following, num_lines = _skip_space(data, position, end, kinds)
            if following == end or layout != _RUNNING or num_lines > 1:
                return following, num_lines
        elif layout != _LINES:
            following, ends, num_lines = _after_end(data, first, position, end, layout, kinds, words, word_kinds)
            if ends:
                return following, num_lines
        position = following
    return end, num_lines


@lean_inline
def _num_plain(eight):
    """Number of leading bytes, of eight, that are ASCII and neither a line end nor . ! ? (tested all at once).

    Adding 0x7F to a byte below 0x80 sets its upper bit unless it is 0.
    """
    others = ((eight ^ _LINE_ENDS) + _LOW_BITS) & ((eight ^ _DOTS) + _LOW_BITS)
    others &= ((eight ^ _EXCLAMATIONS) + _LOW_BITS) & ((eight ^ _QUESTIONS) + _LOW_BITS)
    return num_before((~others | eight) & _UPPER_BITS)


@lean_inline
def _after_end(data, first, position, end, layout, kinds, words, word_kinds):
    """Whether the sentence from ``first`` ends with the dot or other end character at ``position``.

    Returns:
        Next position to examine, whether a sentence starts there, and the number of line ends before it.
    """
    at, num_ends, at_once = position, np.int64(0), np.bool_(False)
    while at < end:
        code, following = decode(data, at, end)
        kind = kind_of(code, kinds)
        if kind < END:
            break
        at, num_ends, at_once = following, num_ends + 1, at_once or kind == END_AT_ONCE
    last = at
    while at < end:
        code, following = decode(data, at, end)
        kind = kind_of(code, kinds)
        if not is_beside(kind) or (kind == OPENING and at_once):
            break
        at = following
    next_sentence, num_lines = _skip_space(data, at, end, kinds)
    if next_sentence == end or num_lines > 1 or (num_lines == 1 and layout != _RUNNING):
        return at, False, num_lines  # the line end or the end of the text will end it
    if next_sentence == at and not at_once:
        return at, False, num_lines
    if at_once:  # "「行く。」と言った" continues
        code, following = decode(data, next_sentence, end)
        goes_on = at > last and next_sentence == at and _FIRST_HIRAGANA <= code <= _LAST_HIRAGANA
        return next_sentence, not goes_on, num_lines
    word = next_sentence
    kind = np.int64(OTHER)
    while word < end:
        code, following = decode(data, word, end)
        kind = kind_of(code, kinds)
        if not is_beside(kind) and kind != SPACE:
            break
        word = following
    if kind != UPPER and kind != LETTER:
        return at, False, num_lines
    if data[position] == DOT and num_ends == 1 and at == last:
        ends = _ends_at_dot(data, first, position, next_sentence, word, end, kinds, words, word_kinds)
        return (next_sentence if ends else at), ends, num_lines
    return next_sentence, True, num_lines


@lean_inline
def _ends_at_dot(data, first, dot, next_sentence, next_word, end, kinds, words, word_kinds):
    """Whether a single dot before a possible start ends the sentence from ``first``: see the rules above."""
    start, num_dots, num_digits, num_roman, part, longest_part = dot, 0, 0, 0, 0, 0
    while start > first and dot - start < _LONGEST_WORD and is_in_word(data[start - 1]):
        start -= 1
        byte = data[start]
        num_dots += byte == DOT
        num_digits += is_digit(byte)
        num_roman += is_roman(byte)
        part = part + 1 if byte != DOT else 0
        longest_part = max(longest_part, part)
    size = dot - start
    if size == 0:
        return not _is_initial(data, first, dot, kinds) or _begins(
            data, next_sentence, next_word, end, words, word_kinds
        )
    item = (
        size == 1 or (num_digits + num_dots == size and size <= 3 + 2 * num_dots) or (num_roman == size and size <= 5)
    )
    if item and _starts_sentence(data, first, start, kinds):
        return False
    if num_digits + num_dots == size:
        return True
    kind = kind_of_word(number_of_word(data, start, size), words, word_kinds) if size <= 8 else 0
    if kind & NEVER_ENDS:
        return False
    if kind & BEFORE_NUMBER or (size == 1 and data[start] >= 0x61):
        return not _is_number(data, next_word, end)
    if kind & MAY_END or size == 1 or (num_dots > 0 and num_digits == 0 and longest_part <= 2):
        return _begins(data, next_sentence, next_word, end, words, word_kinds)
    return True


@lean_inline
def _skip_space(data, position, end, kinds):
    """The first character from ``position`` on that is not white space, and the number of line ends before it."""
    num_lines = np.int64(0)
    while position < end:
        code, following = np.int64(data[position]), position + 1
        if code >= 0x80:
            code, following = decode(data, position, end)
        kind = kind_of(code, kinds)
        if kind != SPACE and kind != LINE_END:
            break
        num_lines += kind == LINE_END
        position = following
    return position, num_lines


@lean_part
def ends_sentence(data, first, end, kinds):
    """Whether the last character from ``first`` to ``end``, ignoring quotes and the like, ends a sentence."""
    while end > first:
        last = _last_character(data, first, end)
        code, _ = decode(data, last, end)
        kind = kind_of(code, kinds)
        if not is_beside(kind):
            return kind >= END
        end = last
    return False


@lean_part
def begins_small(data, first, end, kinds):
    """Whether the first character from ``first`` on, ignoring quotes and the like, is a lowercase letter."""
    kind, at = np.int64(BESIDE), first
    while at < end and is_beside(kind):
        code, at = decode(data, at, end)
        kind = kind_of(code, kinds)
    return kind == LOWER


@lean_part
def _last_character(data, first, end):
    """First byte of the character before ``end``."""
    start = end - 1
    while start > first and end - start < 4 and (data[start] & 0xC0) == 0x80:
        start -= 1
    return start


@lean_part
def _is_initial(data, first, dot, kinds):
    """Whether the non-ASCII character before the dot is a single uppercase letter."""
    if dot == first:
        return False
    start = _last_character(data, first, dot)
    code, _ = decode(data, start, dot)
    alone = start == first or not (data[start - 1] >= 0x80 or is_in_word(data[start - 1]))
    return alone and kind_of(code, kinds) == UPPER


@lean_part
def _starts_sentence(data, first, start, kinds):
    """Whether only quotes and the like precede ``start`` in the sentence."""
    at = first
    while at < start:
        code, at = decode(data, at, start)
        kind = kind_of(code, kinds)
        if not is_beside(kind) and kind != SPACE and kind != LINE_END:
            return False
    return True


@lean_part
def _is_number(data, position, end):
    """A digit, or two Roman numerals or more ("II", not "I")."""
    if is_digit(data[position]):
        return True
    at = position
    while at < end and is_roman(data[at]):
        at += 1
    return at - position >= 2 and (at == end or not is_ascii_letter(data[at]))


@lean_part
def _begins(data, next_sentence, position, end, words, word_kinds):
    """Whether there is a quote, or the word at ``position`` often starts a sentence; "A" does, "A." does not."""
    if next_sentence < position and data[next_sentence] != 0x28 and data[next_sentence] != 0x5B:  # neither ( nor [
        return True
    at = position
    while at < end and at - position < 9 and is_ascii_letter(data[at]):
        at += 1
    size = at - position
    if size == 0 or size > 8 or (at < end and data[at] == DOT):
        return False
    return kind_of_word(number_of_word(data, position, size), words, word_kinds) & BEGINS != 0
