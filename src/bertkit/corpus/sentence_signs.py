"""Tables of characters and words for sentence splitting, and lookups from compiled code."""

import numpy as np

from bertkit.compiled import lean_inline, lean_part
from bertkit.tokenizer.engine import few_bytes

# Kinds of characters. From LINE_END on they may end a sentence.
OTHER, SPACE, LOWER, UPPER, LETTER, BESIDE, OPENING, LINE_END, END, END_AT_ONCE = range(10)
# LETTER: a letter without case, a digit, or the first character of a word-like token ("$5", "@name").
_ENDS = ".!?…‥‼‽⁇⁈⁉؟۔।॥։።។။"
_ENDS_AT_ONCE = "。！？｡"
# _BESIDES: may stand between a sentence end and the space, or the space and the next sentence.
_BESIDES = "\"'”’»‹›)]}*_-–—―•`´′″」』）】〉》〕］｝"
_OPENINGS = "“‘„‚«([{¿¡「『（【〈《〔［｛"  # the same before a sentence in Chinese and Japanese
_STAND_FOR_WORDS = "$£€@#"

# Kinds of words, with the first letter as written and the others in lowercase, without the dot.
NEVER_ENDS, MAY_END, BEFORE_NUMBER, BEGINS = 1, 2, 4, 8
_WORD_KINDS = {
    NEVER_ENDS: """
        Mr Mrs Ms Mx Dr Drs Prof Messrs Mme Mlle Rev Hon Gen Col Maj Capt Lt Lieut Sgt Cpl Gov Sen Rep Pres Supt Adm
        Cmdr Insp Fr Mt Ft vs Vs viz Viz cf Cf e.g E.g i.e I.e approx""",
    MAY_END: """
        St Jr Sr Esq Inc Ltd Co Corp Bros Ave Blvd Rd Dept Univ Assn Assoc etc al ed eds trans ibid""",
    BEFORE_NUMBER: """
        No no Nos nos Fig fig Figs figs Vol vol Vols vols pp ch Ch chap Chap sec Sec art Art Eq eq Pt pt Bk bk Pl pl par
        vv ll nn ca Op op Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec""",
    BEGINS: """
        A After All Although An And As At Because Before Both But By Did Do Does Each Even For From He Her Here His How
        However I If In Is It Its Let Many Most My No Nor Not Now Of On Once One Only Or Our Perhaps She Since So Some
        Still Such That The Their Then There These They This Those Though To Two Under Until Upon Was We Well Were What
        When Where Which While Who Why With Without Yes Yet You Your""",
}
_WORD_SLOTS, _WORD_SHIFT, _WORD_FACTOR = 1_024, 54, 0x9E3779B97F4A7C15
_SMALL_BUT_FIRST = np.uint64(0x2020202020202020)
DOT, _FIRST_EMOJI, _LAST_EMOJI = 0x2E, 0x1F000, 0x1FAFF


def _make_kinds() -> np.ndarray:
    """(65536,) uint8, the kind of each code point of the first plane."""
    kinds = np.full(1 << 16, LETTER, np.uint8)
    kinds[0x2000:0x2C00] = OTHER  # punctuation and symbols
    kinds[0x3000:0x3041] = OTHER
    for code in [*range(0x2000), 0x3000, *range(0xFF00, 0x10000), *range(0x2000, 0x2070)]:
        char = chr(code)
        if char.isspace():
            kinds[code] = SPACE
        elif char.islower():
            kinds[code] = LOWER
        elif char.isupper() or char.istitle():
            kinds[code] = UPPER
        else:
            kinds[code] = LETTER if char.isalnum() else OTHER
    for chars, kind in (
        (_ENDS, END),
        (_ENDS_AT_ONCE, END_AT_ONCE),
        (_BESIDES, BESIDE),
        (_OPENINGS, OPENING),
        (_STAND_FOR_WORDS, LETTER),
    ):
        kinds[[ord(char) for char in chars]] = kind
    kinds[ord("\n")] = LINE_END
    return kinds


def _make_words() -> tuple[np.ndarray, np.ndarray]:
    """A hash table: (n,) uint64 words of at most eight letters as numbers, 0 for empty slots; and (n,) uint8 kinds."""
    words, kinds = np.zeros(_WORD_SLOTS, np.uint64), np.zeros(_WORD_SLOTS, np.uint8)
    for kind, listed in _WORD_KINDS.items():
        for word in listed.split():
            number = int.from_bytes(word.encode(), "little")
            slot = (number * _WORD_FACTOR % (1 << 64)) >> _WORD_SHIFT
            while words[slot] not in (0, number):
                slot = (slot + 1) % _WORD_SLOTS
            words[slot] = number
            kinds[slot] |= kind
    return words, kinds


KINDS = _make_kinds()
WORDS, KINDS_OF_WORDS = _make_words()


@lean_inline
def kind_of(code, kinds):
    if code < 0:  # not UTF-8
        return np.int64(OTHER)
    if code < len(kinds):
        return np.int64(kinds[np.uint64(code)])
    return np.int64(OTHER if _FIRST_EMOJI <= code <= _LAST_EMOJI else LETTER)


@lean_inline
def is_beside(kind):
    return BESIDE <= kind <= OPENING


@lean_inline
def is_digit(byte):
    return 0x30 <= byte <= 0x39


@lean_inline
def is_ascii_letter(byte):
    return 0x61 <= (byte | 0x20) <= 0x7A


@lean_inline
def is_in_word(byte):
    return is_ascii_letter(byte) or is_digit(byte) or byte == DOT


@lean_inline
def is_roman(byte):
    return byte == 0x49 or byte == 0x56 or byte == 0x58 or byte == 0x4C or byte == 0x43  # I V X L C


@lean_part
def number_of_word(data, start, size):
    """At most eight bytes as a number, the first one lowest; letters after the first in lowercase."""
    number = np.uint64(few_bytes(data, start, size))
    if size > 1:  # dots and digits already have the bit that makes letters lowercase
        number |= _SMALL_BUT_FIRST >> np.uint64(64 - 8 * size) & ~np.uint64(0xFF)
    return number


@lean_part
def kind_of_word(number, words, word_kinds):
    """Kinds of a listed word, 0 for any other."""
    slot = (number * np.uint64(_WORD_FACTOR)) >> np.uint64(_WORD_SHIFT)
    while words[slot] != number and words[slot] != 0:
        slot = (slot + np.uint64(1)) & np.uint64(_WORD_SLOTS - 1)
    return np.int64(word_kinds[slot]) if words[slot] == number else np.int64(0)
