"""Character normalization: cleaning, decomposition, accents and lowercase, as in the published tokenizer.

The normal form of each code point is read from a table, because that tokenizer mixes Unicode versions: categories of
Unicode 8, decompositions of Unicode 9, lowercase of Unicode 17. The tables are derived from
it, code point by code point, by ``tools/make_character_tables.py``.

Every code point has a *form*: a number that determines its letters, usually one, none for a control character, several
for a decomposing character. Forms are numbered by their effect on words:

    0                             itself, a letter of a word: most code points
    1                             white space
    2 ... first_cjk - 1           punctuation: a separate word
    first_cjk ... first_other - 1 a CJK character: a separate word, if CJK characters are split
    first_other ...               any other: letters of a word, or nothing

The form of code point c is ``forms[pages[c // 128] + c % 128]``: most pages of Unicode share a block of forms.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertkit.compiled import lean_inline, lean_part

FILE = Path(__file__).with_name("characters.npz")

PAGE_SIZE = 128
SPACE = 1
"""The form of white space."""

# A letter is packed into 32 bits: code point, 0 for the very character it comes from; then the canonical combining
# class, by which marks in a row are ordered; then three flags.
CODE_POINT = (1 << 21) - 1
CLASS_SHIFT = 21
CLASS = 0xFF << CLASS_SHIFT
DROPPED = 1 << 29  # an accent, which takes part in the ordering and is then removed
PUNCTUATION = 1 << 30
ADDITIONAL = 1 << 31  # not the first letter of its character; set while reading

INVALID = -1
"""Instead of a code point: bytes that are not UTF-8."""
_REPLACEMENT = 0xFFFD


class Characters(NamedTuple):
    """Normalization tables for one set of options; compiled functions take the arrays separately."""

    pages: np.ndarray  # (8704,) uint16, start of the block of each 128 code points in forms
    forms: np.ndarray  # (128 * num_blocks,) uint16; the first block is that of ASCII
    form_letters: np.ndarray  # (num_forms + 1 + num_letters,) uint32: where the letters of each form start, the letters
    first_cjk: int
    first_other: int  # forms from here on, and form 0, do not end a word; first_cjk where CJK characters do not either


def table_name(lowercase: bool | None, strip_accents: bool | None) -> str:
    """Name in the file of the arrays for these options; None, None: text that is already normalized."""
    if lowercase is None:
        return "normal"
    return ("uncased" if lowercase else "cased") + ("_stripped" if strip_accents else "_accented")


@cache
def load_characters(lowercase: bool | None, strip_accents: bool | None, split_cjk: bool) -> Characters:
    """Load the table for these options from the package's file."""
    name = table_name(lowercase, strip_accents)
    with np.load(FILE) as file:
        pages, forms, form_letters, first_cjk, first_other = (
            file[f"{name}_{part}"] for part in ("pages", "forms", "form_letters", "first_cjk", "first_other")
        )
    return Characters(pages, forms, form_letters, int(first_cjk), int(first_other if split_cjk else first_cjk))


@lean_inline
def decode(data, position, end):
    """The character at ``position`` of UTF-8 ``data``: (code point or INVALID, position of the next).

    Invalid bytes are grouped as in Python's ``errors="replace"``, which gives one replacement
    character per group (Unicode 15, section 3.9, "maximal subparts"; the ranges are those of its table 3-7).
    """
    lead = np.int64(data[position])
    if lead < 0x80:
        return lead, position + 1
    lowest, highest = 0x80, 0xBF  # of the second byte
    if lead < 0xC2:
        return INVALID, position + 1
    if lead < 0xE0:
        length, code = 2, lead & 0x1F
    elif lead < 0xF0:
        length, code = 3, lead & 0x0F
        if lead == 0xE0:
            lowest = 0xA0
        elif lead == 0xED:
            highest = 0x9F
    elif lead < 0xF5:
        length, code = 4, lead & 0x07
        if lead == 0xF0:
            lowest = 0x90
        elif lead == 0xF4:
            highest = 0x8F
    else:
        return INVALID, position + 1
    for at in range(position + 1, position + length):
        if at >= end:
            return INVALID, at
        byte = np.int64(data[at])
        if byte < lowest or byte > highest:
            return INVALID, at
        code = code << 6 | byte & 0x3F
        lowest, highest = 0x80, 0xBF
    return code, position + length


@lean_inline
def form_of(code, pages, forms):
    """The form of a code point; INVALID has that of the replacement character."""
    if code == INVALID:
        code = _REPLACEMENT
    return np.int64(forms[pages[code >> 7] + (code & 127)])


@lean_part
def normalize(data, position, end, char_index, pages, forms, form_letters, normal):
    """Characters from ``position`` on to letters, until ``end`` or until ``normal`` is full.

    It stops only before a new letter, so no mark is separated from its letter. Marks in a row are put into
    canonical order, but character indices do not move with a mark: as published, the n-th character keeps the n-th
    index, and an additional letter has the index of the character before it after sorting.

    Args:
        data: UTF-8 bytes.
        char_index: number of the character at ``position`` within its text.
        normal: (n, 4) int64, is written to: packed letter with its code point, the index of its character, and two
            scratch columns.

    Returns:
        The next position, its character index, and the number of letters or -1 if the marks do not fit in ``normal``.
    """
    count = np.int64(0)
    row = np.int64(-1)  # where marks in a row start in normal, -1: the last letter is not a mark
    in_order, all_dropped, last_class = np.bool_(True), np.bool_(True), np.int64(0)
    while position < end:
        code, following = decode(data, position, end)
        form = form_of(code, pages, forms)
        if form == 0 and row < 0 and count < len(normal):  # most characters
            normal[count, 0], normal[count, 1] = code, char_index
            position, char_index, count = following, char_index + 1, count + 1
            continue
        first, last = np.int64(form_letters[form]), np.int64(form_letters[form + 1])
        if last - first > len(normal) - count and form_letters[first] & CLASS == 0:
            break
        for at in range(first, last):
            letter = np.int64(form_letters[at])
            if letter & CODE_POINT == 0:
                letter |= code
            if letter & CLASS == 0:
                if row >= 0:
                    count = _settle(normal, row, count, in_order, all_dropped)
                    row = -1
                if letter & DROPPED:
                    continue
            else:
                if row < 0:
                    row, in_order, all_dropped, last_class = count, True, True, 0
                in_order = in_order and letter & CLASS >= last_class
                all_dropped = all_dropped and letter & DROPPED != 0
                last_class = letter & CLASS
                if at > first:
                    letter |= ADDITIONAL
            if count == len(normal):
                return position, char_index, np.int64(-1)
            normal[count, 0] = letter
            normal[count, 1] = char_index
            count += 1
        position = following
        char_index += 1
    if row >= 0:
        count = _settle(normal, row, count, in_order, all_dropped)
    return position, char_index, count


@lean_part
def _settle(normal, start, end, in_order, all_dropped):
    """Sort marks into canonical order and remove accents; returns the new end of the row.

    Canonical order is by combining class, stable. One pass for each occurring class, at most about
    fifty, keeps the time linear for ten million marks.
    """
    if all_dropped:
        return start
    ordered, next_own, last_class = start, start, np.int64(-1)
    while ordered < end and not in_order:
        next_class = np.int64(CLASS)
        for at in range(start, end):
            its_class = normal[at, 0] & CLASS
            if last_class < its_class < next_class:
                next_class = its_class
        for at in range(start, end):
            if normal[at, 0] & CLASS == next_class:
                normal[ordered, 2] = normal[at, 0]
                ordered += 1
        last_class = next_class
    for at in range(start, end):  # character indices of the marks that are not additional, before sorting
        if normal[at, 0] & ADDITIONAL == 0:
            normal[next_own, 3] = normal[at, 1]
            next_own += 1
    char_index = normal[start, 1]  # of the letter before, if the first mark is additional
    kept, next_own = start, start
    for at in range(start, end):
        letter = normal[at, 0] if in_order else normal[at, 2]
        if letter & ADDITIONAL == 0:
            char_index = normal[next_own, 3]
            next_own += 1
        if letter & DROPPED == 0:
            normal[kept, 0] = letter & (CODE_POINT | PUNCTUATION)
            normal[kept, 1] = char_index
            kept += 1
    return kept
