"""Normalized texts, for display and for matching added tokens in normalized text.

The engine itself normalizes run by run while tokenizing and does not use this.
"""

from dataclasses import dataclass

import numpy as np

from bertkit.compiled import lean
from bertkit.tokenizer.characters import CODE_POINT, SPACE, Characters, decode, form_of, normalize


@dataclass(frozen=True, eq=False)
class NormalTexts:
    """Texts after normalization, concatenated; an added token is one NUL, a character that normalization removes."""

    data: bytes  # UTF-8
    bounds: np.ndarray  # (num_texts + 1,) int64, first byte of each text
    first_characters: np.ndarray  # (num_texts + 1,) int64, first character of each text
    offsets: np.ndarray  # (num_characters, 2) int64, start and end in characters of the text as given
    marks: np.ndarray  # (num_marks + 1, 3) int64, for the engine


def normalize_texts(data: np.ndarray, bounds: np.ndarray, marks: np.ndarray, characters: Characters) -> NormalTexts:
    """Clean, put spaces around CJK characters, decompose and remove accents, lowercase.

    Args:
        data: (num_bytes,) uint8, UTF-8.
        bounds: (num_texts + 1,) int64, first byte of each text.
        marks: (num_marks + 1, 3) int64, for the engine.
    """
    num_bytes = int(bounds[-1] - bounds[0])
    codes = np.empty(3 * num_bytes, np.uint32)  # a CJK character, three bytes, with a space on both sides
    offsets = np.empty((len(codes), 2), np.int64)
    first_characters = np.empty(len(bounds), np.int64)
    mark_starts = np.empty(len(marks), np.int64)
    scratch = np.empty((max(256, 2 * num_bytes), 4), np.int64)  # ǖ, two bytes, becomes three letters: all fit
    pages, forms, form_letters, first_cjk, first_other = characters
    count = _normalize_texts(
        data, bounds, marks, pages, forms, form_letters, first_cjk, first_other, scratch, codes, offsets,
        first_characters, mark_starts,
    )  # fmt: skip
    codes = codes[:count]
    sizes = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
    first_bytes = np.concatenate([[0], np.cumsum(sizes)])
    new_marks = marks.copy()
    new_marks[:-1, 0] = first_bytes[mark_starts[:-1]]
    new_marks[:-1, 1] = new_marks[:-1, 0] + 1
    text = codes.tobytes().decode("utf-32-le")
    return NormalTexts(text.encode(), first_bytes[first_characters], first_characters, offsets[:count], new_marks)


@lean
def _normalize_texts(
    data, bounds, marks, pages, forms, form_letters, first_cjk, first_other, scratch, codes, offsets,
    first_characters, mark_starts,
):  # fmt: skip
    count, next_mark = np.int64(0), np.int64(0)
    for text in range(len(bounds) - 1):
        first_characters[text] = count
        position, char_index = bounds[text], np.int64(0)
        while position < bounds[text + 1]:
            end = min(bounds[text + 1], marks[next_mark, 0])
            start, first_char_index = position, char_index
            form, code, following = np.int64(0), np.int64(0), position
            while position < end:
                code, following = decode(data, position, end)
                form = form_of(code, pages, forms)
                if form == SPACE or first_cjk <= form < first_other:
                    break
                position, char_index = following, char_index + 1
            while start < position:
                start, first_char_index, num_letters = normalize(
                    data, start, position, first_char_index, pages, forms, form_letters, scratch
                )
                for at in range(num_letters):
                    codes[count] = scratch[at, 0] & CODE_POINT
                    offsets[count, 0], offsets[count, 1] = scratch[at, 1], scratch[at, 1] + 1
                    count += 1
            if position < end:
                letter = np.int64(0)
                if form != SPACE:
                    letter = np.int64(form_letters[form_letters[form]]) & CODE_POINT
                    letter = letter if letter else code
                for at in range(1 if form == SPACE else 3):
                    codes[count] = letter if at == 1 else 0x20
                    offsets[count, 0], offsets[count, 1] = char_index, char_index + 1
                    count += 1
                position, char_index = following, char_index + 1
            elif position < bounds[text + 1]:
                position, mark_starts[next_mark] = marks[next_mark, 1], count
                codes[count], offsets[count, 0] = 0, char_index
                for at in range(end, position):
                    char_index += (data[at] & 0xC0) != 0x80  # a byte that starts a character
                offsets[count, 1] = char_index
                count, next_mark = count + 1, next_mark + 1
    first_characters[len(bounds) - 1] = count
    return count
