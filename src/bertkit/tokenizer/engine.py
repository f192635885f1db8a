"""The compiled inner loop of WordPiece: UTF-8 bytes to pieces.

A text is read once. Its characters form *runs*: maximal sequences without white space, punctuation and CJK characters.
A run is nearly always one word, and nearly always seen before: then the cache holds its pieces, by its bytes, and
nothing else is computed. A new run is normalized to letters, split into words (a character may decompose to
punctuation), and its words are matched with the vocabulary.

Functions pass these arrays separately, under the same names (compiled code would copy a tuple of them):

    data (num_bytes,) uint8                 UTF-8, possibly invalid
    pages, forms, form_letters, first_other normalization of characters, see characters.py
    edges, unk_id, cls_id, sep_id           the vocabulary, see matching.py; ids of special tokens
    cache (a power of 2, 16) int64          runs and their pieces, see below; a run is in one of two rows
    normal (n, 4) int64                     scratch: letters of the current run, each with its character index
    word (longest word, 2) int64            scratch: letters of the current word
    ids (n,) int32                          the result; n at least the number of bytes and 2 for each text
    spans (n or RING, 3) int32              start and end in characters, number of the word; RING rows if not requested

Character indices count the characters of a text, word ids its words.
"""

import numpy as np

from bertkit.compiled import lean, lean_inline, lean_part
from bertkit.tokenizer.characters import CODE_POINT, INVALID, PUNCTUATION, SPACE, decode, form_of, normalize
from bertkit.tokenizer.matching import entry_of, longest_entry

# A row of the cache is 16 numbers of 64 bits, two lines of the processor's caches; a common word needs
# one. The first four hold the bytes of a run, padded with zeros, and in the last byte their number. The other twelve
# hold a piece each: id, then start and end in characters of the run and word of the run, 8 bits each, and in the first
# one's upper 8 bits how many there are.
KEY_NUMBERS = 4
ROW_NUMBERS = 16
_MAX_CACHED_BYTES = 8 * KEY_NUMBERS - 1
_MAX_CACHED_PIECES = ROW_NUMBERS - KEY_NUMBERS
# Odd numbers of random bits, as signed ones.
_HASH_A, _HASH_B, _HASH_C = -7046029254386353131, -4417276706812531889, 1609587929392839161
# Numbers of one fixed type: a plain 0 would compile functions again for that value.
_ZERO, _NONE = np.int64(0), np.int64(-1)
# For testing eight bytes at once: a value in each byte, and plain numbers, all unsigned.
_ONES, _LOW_BITS, _CASE_BITS, _UPPER_BITS, _FROM_A, _AFTER_Z, _FROM_0, _AFTER_9 = (
    np.uint64(0x0101010101010101 * value)
    for value in (0x01, 0x7F, 0x20, 0x80, 0x80 - ord("a"), 0x7F - ord("z"), 0x80 - ord("0"), 0x7F - ord("9"))
)
_NO_BITS, _ONE, _SEVEN, _SEVEN_BYTES = (np.uint64(value) for value in (0, 1, 7, 56))

RING = 32
"""Rows of ``spans`` if they are not requested: a ring buffer, from which the cache is filled. A power of 2, and
more than the number of pieces of a run short enough for the cache."""


@lean
def tokenize(
    data, bounds, marks,
    pages, forms, form_letters, first_other, edges, unk_id, cls_id, sep_id, cache, normal, word, ids, spans, texts,
):  # fmt: skip
    """Tokenize texts, with [CLS] and [SEP] around each.

    Args:
        bounds: (num_texts + 1,) int64, first byte of each text.
        marks: (num_marks + 1, 3) int64: first byte, byte after, and id of tokens matched in the texts beforehand, in
            order; and a last row that starts beyond the texts.
        texts: (num_texts + 1, 2) int64, is written to: number of pieces before each text, and the number of runs of its
            bytes that are not UTF-8.

    Returns:
        The number of pieces, or -1 if ``normal`` has too few rows; other outputs are then invalid.
    """
    count, next_mark = _ZERO, _ZERO
    for text in range(len(bounds) - 1):
        texts[text, 0], texts[text, 1] = count, 0
        count = _give(count, cls_id, _ZERO, _ZERO, _NONE, ids, spans)
        position, char_index, number = bounds[text], _ZERO, _ZERO
        while position < bounds[text + 1]:
            end = bounds[text + 1]
            if end > marks[next_mark, 0]:
                end = marks[next_mark, 0]
            start, first_char_index = position, char_index
            form, code, following = _ZERO, _ZERO, position
            while position + 8 <= end:
                size = _num_letters(eight_bytes(data, position))
                position, char_index = position + size, char_index + size
                if size < 8:
                    break
            while position < end:
                code, following = np.int64(data[position]), position + 1
                if code < 0x80:
                    form = np.int64(forms[code])
                else:
                    code, following = decode(data, position, end)
                    form = form_of(code, pages, forms)
                    texts[text, 1] += code == INVALID
                if 0 < form < first_other:  # white space or a separate word
                    break
                position, char_index = following, char_index + 1
            if start < position:
                known = _look_up(data, start, position, cache)
                if known >= 0:
                    count, number = _recall(cache, known, count, first_char_index, number, ids, spans)
                else:
                    count, number = _learn(
                        data, start, position, count, first_char_index, number,
                        pages, forms, form_letters, edges, unk_id, cache, normal, word, ids, spans,
                    )  # fmt: skip
                    if count < 0:
                        return count
            if position < end:
                if form != SPACE:
                    letter = np.int64(form_letters[form_letters[form]]) & CODE_POINT
                    token_id = entry_of(letter if letter else code, edges)
                    count = _give(
                        count, token_id if token_id >= 0 else unk_id, char_index, char_index + 1, number, ids, spans
                    )
                    number += 1
                position, char_index = following, char_index + 1
            elif position < bounds[text + 1]:
                first_char_index, position = char_index, marks[next_mark, 1]
                for at in range(end, position):
                    char_index += (data[at] & 0xC0) != 0x80  # a byte that starts a character
                count = _give(count, marks[next_mark, 2], first_char_index, char_index, number, ids, spans)
                number, next_mark = number + 1, next_mark + 1
        count = _give(count, sep_id, _ZERO, _ZERO, _NONE, ids, spans)
    texts[len(bounds) - 1, 0] = count
    return count


@lean_inline
def _look_up(data, start, end, cache):
    """The cache row of a run, or -1."""
    size = end - start
    if size > _MAX_CACHED_BYTES:
        return _NONE
    key = (few_bytes(data, start, size), _ZERO, _ZERO, size << 56) if size <= 8 else _key(data, start, size)
    row = _first_row(key, cache)
    if _holds(cache, row, key):
        return row
    return row + 1 if _holds(cache, row + 1, key) else _NONE


@lean_part
def _key(data, start, size):
    """The key of a run of ``size`` bytes: the first numbers of its cache row."""
    return (
        few_bytes(data, start, size),
        few_bytes(data, start + 8, size - 8),
        few_bytes(data, start + 16, size - 16),
        few_bytes(data, start + 24, size - 24) | size << 56,
    )


@lean_inline
def few_bytes(data, position, size):
    """The first ``size`` of eight bytes as one number, the first one lowest; all of them if there are more."""
    if size <= 0:
        return _ZERO
    number = np.uint64(0)
    if position + 8 <= len(data):
        number = eight_bytes(data, position)
        if size < 8:
            number &= (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
    else:
        for at in range(size if size < 8 else 8):
            number |= np.uint64(data[np.uint64(position + at)]) << np.uint64(8 * at)
    return np.int64(number)


@lean_inline
def eight_bytes(data, position):
    """Eight bytes as one number, the first one lowest: a single instruction when compiled."""
    number = np.uint64(0)
    for at in range(8):
        number |= np.uint64(data[np.uint64(position + at)]) << np.uint64(8 * at)  # unsigned: not counted from the end
    return number


@lean_inline
def _num_letters(eight_bytes):
    """Number of leading bytes, of eight, that are ASCII letters or digits; all eight are tested at once.

    Adding 0x80 - x to a byte below 0x80 sets its upper bit where the byte is x or above.
    """
    low = eight_bytes & _LOW_BITS
    lower_case = low | _CASE_BITS
    letters = (lower_case + _FROM_A) & ~(lower_case + _AFTER_Z)
    digits = (low + _FROM_0) & ~(low + _AFTER_9)
    others = (~(letters | digits) | eight_bytes) & _UPPER_BITS
    return num_before(others)


@lean_inline
def num_before(marked):
    """Number of bytes, of eight, before the first with its upper bit set; no other bits may be set."""
    if marked == _NO_BITS:
        return np.int64(8)
    before = ((marked & (~marked + _ONE)) >> _SEVEN) - _ONE  # all bits of the bytes before it
    return np.int64(((before & _ONES) * _ONES) >> _SEVEN_BYTES)  # one bit of each, summed in the upper byte


@lean_inline
def _first_row(key, cache):
    """The first of the two possible cache rows of a run."""
    a, b, c, d = key
    hashed = (a + d) * _HASH_A + b * _HASH_B + c * _HASH_C
    hashed = (hashed ^ hashed >> 32) * _HASH_A
    return (hashed >> 32) & (len(cache) - 2)


@lean_inline
def _holds(cache, row, key):
    a, b, c, d = key
    return cache[row, 0] == a and cache[row, 3] == d and cache[row, 1] == b and cache[row, 2] == c


@lean_inline
def _recall(cache, row, count, char_index, number, ids, spans):
    """Output the pieces of a cache row; returns the next piece and word."""
    num_pieces, num_words = cache[row, KEY_NUMBERS] >> 56, 0
    for at in range(KEY_NUMBERS, KEY_NUMBERS + num_pieces):
        piece = cache[row, at]
        ids[count] = piece & 0xFFFFFFFF
        if len(spans) != RING:
            spans[count, 0] = char_index + (piece >> 32 & 0xFF)
            spans[count, 1] = char_index + (piece >> 40 & 0xFF)
            spans[count, 2] = number + (piece >> 48 & 0xFF)
        num_words = (piece >> 48 & 0xFF) + 1
        count += 1
    return count, number + num_words


@lean_part
def _learn(
    data, start, end, count, char_index, number,
    pages, forms, form_letters, edges, unk_id, cache, normal, word, ids, spans,
):  # fmt: skip
    """Tokenize a run that is not in the cache, and cache its pieces.

    Returns:
        The next piece and word; piece -1 if ``normal`` has too few rows.
    """
    first_count, first_char_index, first_number = count, char_index, number
    position, length, last_char_index = start, _ZERO, char_index
    while position < end:
        position, char_index, num_letters = normalize(
            data, position, end, char_index, pages, forms, form_letters, normal
        )
        if num_letters < 0:
            return num_letters, number
        for at in range(num_letters):
            alone = normal[at, 0] & PUNCTUATION != 0
            if alone and length > 0:
                count = _word(length, last_char_index, count, number, edges, unk_id, word, ids, spans)
                length, number = _ZERO, number + 1
            if length < len(word):
                word[length, 0], word[length, 1] = normal[at, 0] & CODE_POINT, normal[at, 1]
            length, last_char_index = length + 1, normal[at, 1]
            if alone:
                count = _word(length, last_char_index, count, number, edges, unk_id, word, ids, spans)
                length, number = _ZERO, number + 1
    if length > 0:
        count = _word(length, last_char_index, count, number, edges, unk_id, word, ids, spans)
        number += 1
    if end - start <= _MAX_CACHED_BYTES and count - first_count <= _MAX_CACHED_PIECES:
        key = _key(data, start, end - start)
        row = _first_row(key, cache)
        row += cache[row, KEY_NUMBERS - 1] != 0  # the first row keeps the first run, the second the latest
        cache[row, 0], cache[row, 1], cache[row, 2], cache[row, 3] = key
        cache[row, KEY_NUMBERS] = 0
        for piece in range(first_count, count):
            at = piece if len(spans) != RING else piece & (RING - 1)
            first, last = spans[at, 0] - first_char_index, spans[at, 1] - first_char_index
            span = first | last << 8 | (spans[at, 2] - first_number) << 16
            cache[row, KEY_NUMBERS + piece - first_count] = ids[piece] | span << 32
        cache[row, KEY_NUMBERS] |= (count - first_count) << 56
    return count, number


@lean_part
def _word(length, last_char_index, count, number, edges, unk_id, word, ids, spans):
    """Output pieces of the current word, [UNK] if it is too long or has none; returns the next piece."""
    first_count, start = count, _ZERO
    if length <= len(word):
        while start < length:
            token_id, end = longest_entry(word, start, length, edges)
            if token_id < 0:
                break
            count = _give(count, token_id, word[start, 1], word[end - 1, 1] + 1, number, ids, spans)
            start = end
    if start < length:
        count = _give(first_count, unk_id, word[0, 1], last_char_index + 1, number, ids, spans)
    return count


@lean_inline
def _give(count, token_id, start, end, number, ids, spans):
    """Output one piece; returns the next."""
    ids[count] = token_id
    at = count if len(spans) != RING else count & (RING - 1)
    spans[at, 0] = start
    spans[at, 1] = end
    spans[at, 2] = number
    return count + 1
