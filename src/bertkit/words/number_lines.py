"""Compiled parser of word vectors in text and binary files."""

import numpy as np

from bertkit.compiled import lean, lean_inline

WRONG_COLUMNS, NOT_A_NUMBER, NOT_FINITE, MISALIGNED = -1, -2, -3, -4
"""Reasons why a line cannot be read."""

_SPACE, _TAB, _NEWLINE, _RETURN = 32, 9, 10, 13
_NAN, _INF = (int.from_bytes(letters, "big") for letters in (b"nan", b"inf"))
_LONGEST_WORD = 1000  # bytes of a word with spaces
_MOST_DIGITS = 18  # of a number that fits into an int64
POWERS = 10.0 ** np.arange(23)
"""(23,) float64, the powers of ten that float64 holds exactly."""


@lean
def count_lines(data):
    """The number of newlines in (num_bytes,) uint8."""
    number = 0
    for at in range(len(data)):
        number += data[at] == _NEWLINE
    return number


@lean
def read_lines(data, dim, vectors, bounds, powers):
    """Read whole lines.

    Args:
        data: (num_bytes,) uint8, lines that each end with a newline.
        dim: numbers of a line.
        vectors: output, (num_lines, dim) float32.
        bounds: output, (num_lines, 2) int64 first byte of each word and the byte after it.
        powers: (23,) float64, the powers of ten.

    Returns:
        The number of lines read, and 0 or the reason why the next one cannot be read.
    """
    line, start = 0, 0
    while start < len(data):
        end = start
        while data[end] != _NEWLINE:
            end += 1
        following = end + 1
        while end > start and (data[end - 1] == _SPACE or data[end - 1] == _RETURN or data[end - 1] == _TAB):
            end -= 1
        word_end = start
        while word_end < end and data[word_end] != _SPACE and data[word_end] != _TAB:
            word_end += 1
        problem = _read_numbers(data, word_end, end, vectors[line], powers)
        if problem in (WRONG_COLUMNS, NOT_A_NUMBER):  # words may contain spaces, and end with several
            at = _before_last(data, start, end, dim)
            last = at
            while last > start and (data[last - 1] == _SPACE or data[last - 1] == _TAB):
                last -= 1
            if at > word_end and (last == word_end or not _ends_with_number(data, start, last, vectors[line], powers)):
                word_end = last
                problem = _read_numbers(data, at, end, vectors[line], powers)
        if problem < 0 or word_end == start:
            return line, problem if problem < 0 else WRONG_COLUMNS
        bounds[line, 0], bounds[line, 1] = start, word_end
        line, start = line + 1, following
    return line, 0


@lean_inline
def _before_last(data, start, end, dim):
    """Index of the separator before the last ``dim`` fields; ``start`` if there are fewer."""
    at, count = end, 0
    while at > start:
        at -= 1
        if data[at] == _SPACE or data[at] == _TAB:
            count += 1
            if count == dim:
                return at
    return start


@lean_inline
def _ends_with_number(data, start, end, scratch, powers):
    """True if the last field of a word with spaces is a number, so that the line has a column too many."""
    at = end
    while at > start and data[at - 1] != _SPACE and data[at - 1] != _TAB:
        at -= 1
    return _read_numbers(data, max(at - 1, start), end, scratch[:1], powers) >= 0


@lean_inline
def _read_numbers(data, at, end, row, powers):
    """Read exactly ``len(row)`` numbers, each after a separator; returns 0 or a reason."""
    for column in range(len(row)):
        if at >= end:
            return WRONG_COLUMNS
        at += 1  # the separator
        negative = at < end and data[at] == 45
        if at < end and (data[at] == 45 or data[at] == 43):
            at += 1
        mantissa, digits, exponent, seen = np.int64(0), 0, 0, 0
        point = False
        while at < end:
            byte = data[at]
            if 48 <= byte <= 57:
                seen += 1
                if digits < _MOST_DIGITS:
                    mantissa = mantissa * 10 + (byte - 48)
                    digits += mantissa != 0
                    exponent -= point
                else:
                    exponent += not point
            elif byte == 46 and not point:
                point = True
            else:
                break
            at += 1
        if seen == 0:
            if at + 2 < end and (at + 3 == end or data[at + 3] == _SPACE or data[at + 3] == _TAB):
                letters = (data[at] | 32) << 16 | (data[at + 1] | 32) << 8 | (data[at + 2] | 32)
                if letters in (_NAN, _INF):
                    return NOT_FINITE
            return NOT_A_NUMBER
        if at < end and data[at] | 32 == 101:  # e
            at += 1
            below = at < end and data[at] == 45
            if at < end and (data[at] == 45 or data[at] == 43):
                at += 1
            power, seen = 0, 0
            while at < end and 48 <= data[at] <= 57 and power < 1000:
                power = power * 10 + (data[at] - 48)
                at, seen = at + 1, seen + 1
            if seen == 0:
                return NOT_A_NUMBER
            exponent += -power if below else power
        if at < end and data[at] != _SPACE and data[at] != _TAB:
            return NOT_A_NUMBER
        value = np.float64(mantissa)
        while exponent > 0 and value != 0 and value < 1e300:
            step = min(exponent, 22)
            value, exponent = value * powers[step], exponent - step
        while exponent < 0 and value > 0:
            step = min(-exponent, 22)
            value, exponent = value / powers[step], exponent + step
        number = np.float32(-value if negative else value)
        if not np.isfinite(number):
            return NOT_FINITE
        row[column] = number
    return 0 if at >= end else WRONG_COLUMNS


@lean
def read_binary(data, at_end, num_words, numbers, bits, bounds):
    """Read the words of word2vec's binary format: the word, a space, ``dim`` float32, and perhaps a newline.

    A word may contain spaces: the first space after which numbers and the next word are plausible ends it. Read from
    another byte on, letters become numbers, and numbers become the next word; see `_is_plausible` and `_is_clean`.

    Args:
        data: (num_bytes,) uint8, from the first word on; it may end within a word.
        at_end: whether the file ends with ``data``.
        num_words: maximum number of words to read.
        numbers: output, (num_words, 4 * dim) uint8, the bytes of the vectors.
        bits: the same memory, (num_words, dim) uint32.
        bounds: as in `read_lines`.

    Returns:
        The number of words read, the byte after them, and 0 or the reason why the next one cannot be read.
    """
    at, size = 0, numbers.shape[1]
    for word in range(num_words):
        start = at
        while start < len(data) and data[start] == _NEWLINE:
            start += 1
        first_end, end, chosen, plausible_first, clean_first = -1, start, -1, False, False
        while end < len(data) and end - start <= _LONGEST_WORD:
            if data[end] != _SPACE:
                end += 1
                continue
            following = end + 1 + size
            if following > len(data) or not (at_end or _ends(data, following)):
                break
            plausible = _is_plausible(data, end + 1, numbers[word], bits[word])
            clean = _is_clean(data, following)
            if first_end < 0:
                first_end, plausible_first, clean_first = end, plausible, clean
            if plausible and clean and (end == first_end or _is_clean_text(data, start, end)):
                chosen = end
                break
            end += 1
        if first_end < 0:
            return word, at, 0
        if chosen < 0:
            if not (plausible_first or clean_first):
                return word, at, MISALIGNED
            chosen = first_end
            _is_plausible(data, chosen + 1, numbers[word], bits[word])
        for column in range(bits.shape[1]):
            if bits[word, column] & np.uint32(0x7F800000) == np.uint32(0x7F800000):
                return word, at, NOT_FINITE
        bounds[word, 0], bounds[word, 1] = start, chosen
        at = chosen + 1 + size
    return num_words, at, 0


@lean_inline
def _is_plausible(data, first, row, bits):
    """Copy the numbers of a vector; True if each is 0 or from 2**-50 to 2**50 in size."""
    for byte in range(len(row)):
        row[byte] = data[first + byte]
    wrong = 0
    for column in range(len(bits)):
        exponent = (bits[column] >> np.uint32(23)) & np.uint32(0xFF)
        wrong += (bits[column] & np.uint32(0x7FFFFFFF) != np.uint32(0)) and (exponent < 77 or exponent > 177)
    return wrong == 0


@lean_inline
def _ends(data, at):
    """True if the word at a byte, after newlines, ends within the data."""
    while at < len(data) and data[at] == _NEWLINE:
        at += 1
    while at < len(data) and data[at] != _SPACE:
        at += 1
    return at < len(data)


@lean_inline
def _is_clean(data, at):
    """True if the bytes up to the next space, or the end, are UTF-8 text without control characters."""
    while at < len(data) and data[at] == _NEWLINE:
        at += 1
    end = at
    while end < len(data) and data[end] != _SPACE:
        end += 1
    return _is_clean_text(data, at, end)


@lean_inline
def _is_clean_text(data, at, end):
    """True for UTF-8 text without control characters."""
    while at < end:
        byte, more = data[at], 0
        if byte < 32 or byte == 127:
            return False
        if byte >= 0x80:
            if byte < 0xC2 or byte > 0xF4:
                return False
            more = 1 + (byte >= 0xE0) + (byte >= 0xF0)
        for _ in range(more):
            at += 1
            if at >= end or data[at] < 0x80 or data[at] > 0xBF:
                return False
        at += 1
    return True
