"""Where sentences begin: our own rules, compiled, on UTF-8 bytes.

A sentence ends at . ! ? … and their like in other scripts, with the quotes and brackets that close after them, where
white space follows and then something that can begin a sentence: an upper-case letter, a digit, a letter of a script
without case; quotes, brackets and dashes before it are passed over. Chinese and Japanese ends need no white space. An
empty line ends a sentence too, and where lines are not wrapped every line end does. A single dot is no end

- after a title or the like ("Mr. Smith", "e.g. Paris"),
- after an initial, or what often stands inside a sentence ("J. R. R. Tolkien", "U.S. Senate", "Acme Inc. Paris"),
  unless the next word often begins one, or a quote ("in the U.S. The", 'said I. "Go'),
- after what counts, before a number ("No. 5", "p. 12", "Jan. 3"),
- after the number of an item ("1. First", "IV. Of Birds", "a. One") at the beginning of the sentence.

A decision sees the word before the end, the word after it, and whether the sentence began at that word; nothing else.

Limits: written for English; the abbreviations of other languages are not known. Text in lower case is not split, nor
where the space is missing ("end.Next"). '"Go!" John said' is split after the quote. A surname after "I." may be split
off, as may a title that is not listed. Headings without an end run into what follows, where lines are wrapped. Words
that are broken at a line's end stay broken.

Speed: some 900 MB/s a core on English prose; the tokenizer takes ten times as long.
"""

from typing import Literal

import numpy as np

from bertkit.compiled import lean, lean_inline, lean_part
from bertkit.tokenizer.characters import decode

TextLayout = Literal["lines", "paragraphs", "running"]
"""What a line end means: the end of a sentence; the end of a paragraph of sentences; nothing, two the end of one."""
TEXT_LAYOUTS: tuple[TextLayout, ...] = ("lines", "paragraphs", "running")
_LINES, _RUNNING = TEXT_LAYOUTS.index("lines"), TEXT_LAYOUTS.index("running")

STARTS_TEXT, AFTER_EMPTY_LINE = 1, 2
"""Flags of a sentence: the first of its text; after a line of nothing but white space."""

# Kinds of characters. From _LINE_END on they may end a sentence.
_OTHER, _SPACE, _LOWER, _UPPER, _LETTER, _BESIDE, _LINE_END, _END, _END_AT_ONCE = range(9)
# _LETTER: one without case, a digit, or what stands for a word ("$5", "@name").
_ENDS = ".!?…‥‼‽⁇⁈⁉؟۔।॥։።។။"
_ENDS_AT_ONCE = "。！？｡"
_BESIDES = "\"'“”‘’„‚«»‹›()[]{}*_-–—―•`´′″¿¡「」『』（）【】〈〉《》〔〕［］｛｝"
_WORDS = "$£€@#"

# Kinds of words, by their first letter as it stands and the others in lower case, without the dot.
_NEVER_ENDS, _MAY_END, _BEFORE_NUMBER, _BEGINS = 1, 2, 4, 8
_WORD_KINDS = {
    _NEVER_ENDS: """
        Mr Mrs Ms Mx Dr Drs Prof Messrs Mme Mlle Rev Hon Gen Col Maj Capt Lt Lieut Sgt Cpl Gov Sen Rep Pres Supt Adm
        Cmdr Insp Fr Mt Ft vs Vs viz Viz cf Cf e.g E.g i.e I.e approx""",
    _MAY_END: """
        St Jr Sr Esq Inc Ltd Co Corp Bros Ave Blvd Rd Dept Univ Assn Assoc etc al ed eds trans ibid""",
    _BEFORE_NUMBER: """
        No no Nos nos Fig fig Figs figs Vol vol Vols vols pp ch Ch chap Chap sec Sec art Art Eq eq Pt pt Bk bk Pl pl par
        vv ll nn ca Op op Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec""",
    _BEGINS: """
        A After All Although An And As At Because Before Both But By Did Do Does Each Even For From He Her Here His How
        However I If In Is It Its Let Many Most My No Nor Not Now Of On Once One Only Or Our Perhaps She Since So Some
        Still Such That The Their Then There These They This Those Though To Two Under Until Upon Was We Well Were What
        When Where Which While Who Why With Without Yes Yet You Your""",
}
_LONGEST_WORD = 16  # bytes that are looked at before a dot
_DOT, _FIRST_HIRAGANA, _LAST_HIRAGANA, _FIRST_EMOJI, _LAST_EMOJI = 0x2E, 0x3041, 0x309F, 0x1F000, 0x1FAFF


def _make_kinds() -> np.ndarray:
    """(65536,) uint8, the kind of each code point of the first plane."""
    kinds = np.full(1 << 16, _LETTER, np.uint8)
    kinds[0x2000:0x2C00] = _OTHER  # punctuation and symbols
    kinds[0x3000:0x3041] = _OTHER
    for code in [*range(0x2000), 0x3000, *range(0xFF00, 0x10000), *range(0x2000, 0x2070)]:
        char = chr(code)
        if char.isspace():
            kinds[code] = _SPACE
        elif char.islower():
            kinds[code] = _LOWER
        elif char.isupper() or char.istitle():
            kinds[code] = _UPPER
        else:
            kinds[code] = _LETTER if char.isalnum() else _OTHER
    for chars, kind in ((_ENDS, _END), (_ENDS_AT_ONCE, _END_AT_ONCE), (_BESIDES, _BESIDE), (_WORDS, _LETTER)):
        kinds[[ord(char) for char in chars]] = kind
    kinds[ord("\n")] = _LINE_END
    return kinds


def _make_words() -> tuple[np.ndarray, np.ndarray]:
    """(W,) uint64 words of at most eight letters as numbers, in order, and (W,) uint8 their kinds."""
    found: dict[int, int] = {}
    for kind, words in _WORD_KINDS.items():
        for word in words.split():
            number = int.from_bytes(word.encode(), "little")
            found[number] = found.get(number, 0) | kind
    numbers = sorted(found)
    return np.array(numbers, np.uint64), np.array([found[number] for number in numbers], np.uint8)


KINDS = _make_kinds()
_WORD_NUMBERS, _KINDS_OF_WORDS = _make_words()


def cut_sentences(data: np.ndarray, texts: np.ndarray, layout: TextLayout) -> tuple[np.ndarray, np.ndarray]:
    """Find the sentences of texts that lie in one array of bytes. Nothing but white space is no sentence.

    Args:
        data: (num_bytes,) uint8, UTF-8; other bytes are no letters.
        texts: (num_texts + 1,) int64, first byte of each text; a sentence never goes from one to the next.

    Returns:
        (S + 1,) int64 first byte of each sentence, which goes on to the next, and the end; and (S,) uint8 flags.
    """
    data = np.ascontiguousarray(data, np.uint8).view()
    data.setflags(write=False)  # compiled once
    capacity = int(texts[-1] - texts[0]) // 2 + len(texts)  # a sentence is a byte and a line end at least
    bounds = np.empty(capacity + 1, np.int64)
    flags = np.empty(capacity, np.uint8)
    count = _cut(
        data, np.ascontiguousarray(texts, np.int64), TEXT_LAYOUTS.index(layout), KINDS, _WORD_NUMBERS, _KINDS_OF_WORDS,
        bounds, flags,
    )  # fmt: skip
    bounds[count] = texts[-1]
    return bounds[: count + 1], flags[:count]


def split_sentences(text: str, layout: TextLayout = "running") -> list[str]:
    """The sentences of a text, each unwrapped to one line."""
    data = text.encode()
    bounds, _ = cut_sentences(np.frombuffer(data, np.uint8), np.array([0, len(data)]), layout)
    return [sentence_text(data[bounds[place] : bounds[place + 1]]) for place in range(len(bounds) - 1)]


def sentence_text(data: bytes) -> str:
    """The bytes of a sentence as text on one line; those that are not UTF-8 as replacement characters."""
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
    """Where the next sentence begins, ``end`` if none does, and the number of line ends before it."""
    position, num_lines = first, np.int64(0)
    while position < end:
        code, following = np.int64(data[position]), position + 1
        if code >= 0x80:
            code, following = decode(data, position, end)
        kind = _kind_of(code, kinds)
        if kind < _LINE_END:
            position = following
            continue
        if kind == _LINE_END:
            following, num_lines = _skip_space(data, position, end, kinds)
            if following == end or layout != _RUNNING or num_lines > 1:
                return following, num_lines
        elif layout != _LINES:
            following, ends, num_lines = _after_end(data, first, position, end, layout, kinds, words, word_kinds)
            if ends:
                return following, num_lines
        position = following
    return end, num_lines


@lean_part
def _after_end(data, first, position, end, layout, kinds, words, word_kinds):
    """Whether the sentence from ``first`` ends with the . or the like at ``position``.

    Returns:
        Where to read on, whether that is the next sentence, and the number of line ends before it.
    """
    at, num_ends, at_once = position, np.int64(0), np.bool_(False)
    while at < end:
        code, following = decode(data, at, end)
        kind = _kind_of(code, kinds)
        if kind < _END:
            break
        at, num_ends, at_once = following, num_ends + 1, at_once or kind == _END_AT_ONCE
    last = at
    while at < end:
        code, following = decode(data, at, end)
        if _kind_of(code, kinds) != _BESIDE:
            break
        at = following
    next_sentence, num_lines = _skip_space(data, at, end, kinds)
    if next_sentence == end or num_lines > 1 or (num_lines == 1 and layout != _RUNNING):
        return at, False, num_lines  # the line end will end it, or the text
    if next_sentence == at and not at_once:
        return at, False, num_lines
    if at_once:  # "「行く。」と言った" goes on
        code, following = decode(data, next_sentence, end)
        goes_on = at > last and next_sentence == at and _FIRST_HIRAGANA <= code <= _LAST_HIRAGANA
        return next_sentence, not goes_on, num_lines
    word = next_sentence
    kind = np.int64(_OTHER)
    while word < end:
        code, following = decode(data, word, end)
        kind = _kind_of(code, kinds)
        if kind != _BESIDE and kind != _SPACE:
            break
        word = following
    if kind != _UPPER and kind != _LETTER:
        return at, False, num_lines
    if data[position] == _DOT and num_ends == 1 and at == last:
        ends = _ends_at_dot(data, first, position, next_sentence, word, end, kinds, words, word_kinds)
        return (next_sentence if ends else at), ends, num_lines
    return next_sentence, True, num_lines


@lean_part
def _ends_at_dot(data, first, dot, next_sentence, next_word, end, kinds, words, word_kinds):
    """Whether a single dot before what can begin a sentence ends the one from ``first``: see the rules above."""
    begins = _begins(data, next_word, end, words, word_kinds)
    begins = begins or (
        next_word > next_sentence and data[next_sentence] != 0x28 and data[next_sentence] != 0x5B
    )  # ( [
    start, num_dots, num_digits, num_roman, part, longest_part = dot, 0, 0, 0, 0, 0
    while start > first and dot - start < _LONGEST_WORD and _is_in_word(data[start - 1]):
        start -= 1
        byte = data[start]
        num_dots += byte == _DOT
        num_digits += _is_digit(byte)
        num_roman += _is_roman(byte)
        part = part + 1 if byte != _DOT else 0
        longest_part = max(longest_part, part)
    size = dot - start
    if size == 0:
        return begins or not _is_initial(data, first, dot, kinds)
    if _starts_sentence(data, first, start, kinds) and (
        size == 1 or (num_digits + num_dots == size and size <= 3 + 2 * num_dots) or (num_roman == size and size <= 5)
    ):
        return False
    if num_digits + num_dots == size:
        return True
    kind = _kind_of_word(_number_of_word(data, start, size), words, word_kinds) if size <= 8 else 0
    if kind & _NEVER_ENDS:
        return False
    if kind & _BEFORE_NUMBER or (size == 1 and data[start] >= 0x61):
        return not _is_number(data, next_word, end)
    if kind & _MAY_END or size == 1 or (num_dots > 0 and num_digits == 0 and longest_part <= 2):
        return begins
    return True


@lean_inline
def _skip_space(data, position, end, kinds):
    """The first character from ``position`` on that is no white space, and the number of line ends before it."""
    num_lines = np.int64(0)
    while position < end:
        code, following = np.int64(data[position]), position + 1
        if code >= 0x80:
            code, following = decode(data, position, end)
        kind = _kind_of(code, kinds)
        if kind != _SPACE and kind != _LINE_END:
            break
        num_lines += kind == _LINE_END
        position = following
    return position, num_lines


@lean_inline
def _kind_of(code, kinds):
    if code < 0:  # no UTF-8
        return np.int64(_OTHER)
    if code < len(kinds):
        return np.int64(kinds[np.uint64(code)])
    return np.int64(_OTHER if _FIRST_EMOJI <= code <= _LAST_EMOJI else _LETTER)


@lean_inline
def _is_digit(byte):
    return 0x30 <= byte <= 0x39


@lean_inline
def _is_ascii_letter(byte):
    return 0x61 <= (byte | 0x20) <= 0x7A


@lean_inline
def _is_in_word(byte):
    return _is_ascii_letter(byte) or _is_digit(byte) or byte == _DOT


@lean_inline
def _is_roman(byte):
    return byte == 0x49 or byte == 0x56 or byte == 0x58 or byte == 0x4C or byte == 0x43  # I V X L C


@lean_part
def ends_sentence(data, first, end, kinds):
    """Whether the last character from ``first`` to ``end``, quotes and the like left out, is a . or the like."""
    while end > first:
        last = _last_character(data, first, end)
        code, _ = decode(data, last, end)
        kind = _kind_of(code, kinds)
        if kind != _BESIDE:
            return kind >= _END
        end = last
    return False


@lean_part
def begins_small(data, first, end, kinds):
    """Whether the first character from ``first`` on, quotes and the like left out, is a lower-case letter."""
    kind, at = np.int64(_BESIDE), first
    while at < end and kind == _BESIDE:
        code, at = decode(data, at, end)
        kind = _kind_of(code, kinds)
    return kind == _LOWER


@lean_part
def _last_character(data, first, end):
    """Where the character before ``end`` begins."""
    start = end - 1
    while start > first and end - start < 4 and (data[start] & 0xC0) == 0x80:
        start -= 1
    return start


@lean_part
def _is_initial(data, first, dot, kinds):
    """Whether the character before the dot, which is not ASCII, is an upper-case letter that stands alone."""
    if dot == first:
        return False
    start = _last_character(data, first, dot)
    code, _ = decode(data, start, dot)
    alone = start == first or not (data[start - 1] >= 0x80 or _is_in_word(data[start - 1]))
    return alone and _kind_of(code, kinds) == _UPPER


@lean_part
def _starts_sentence(data, first, start, kinds):
    """Whether only quotes and the like stand before ``start`` in the sentence."""
    at = first
    while at < start:
        code, at = decode(data, at, start)
        kind = _kind_of(code, kinds)
        if kind != _BESIDE and kind != _SPACE:
            return False
    return True


@lean_part
def _is_number(data, position, end):
    """A digit, or two Roman numerals or more ("II", not "I")."""
    if _is_digit(data[position]):
        return True
    at = position
    while at < end and _is_roman(data[at]):
        at += 1
    return at - position >= 2 and (at == end or not _is_ascii_letter(data[at]))


@lean_part
def _begins(data, position, end, words, word_kinds):
    """Whether the word at ``position`` often begins a sentence; "A" does, "A." does not."""
    at = position
    while at < end and at - position < 9 and _is_ascii_letter(data[at]):
        at += 1
    size = at - position
    if size == 0 or size > 8 or (at < end and data[at] == _DOT):
        return False
    return _kind_of_word(_number_of_word(data, position, size), words, word_kinds) & _BEGINS != 0


@lean_part
def _number_of_word(data, start, size):
    """At most eight bytes as a number, the first one lowest; letters but the first in lower case."""
    number = np.uint64(data[start])
    for at in range(1, size):
        byte = np.uint64(data[start + at])
        if _is_ascii_letter(byte):
            byte |= np.uint64(0x20)
        number |= byte << np.uint64(8 * at)
    return number


@lean_part
def _kind_of_word(number, words, word_kinds):
    """Kinds of a listed word, 0 of any other."""
    low, high = 0, len(words)
    while low < high:
        middle = (low + high) // 2
        if words[middle] < number:
            low = middle + 1
        else:
            high = middle
    return np.int64(word_kinds[low]) if low < len(words) and words[low] == number else np.int64(0)
