"""Character n-grams for the vectors of unknown words (Bojanowski et al. 2017, fastText).

The n-grams of "<word>" share a table of rows by the hash FNV-1a, as fastText computes it: over the UTF-8 bytes as
signed numbers.
"""

from collections.abc import Sequence

import numpy as np

SHORTEST, LONGEST = 3, 6
NUM_ROWS = 200_000
"""Number of rows for n-grams. fastText uses 2,000,000, for corpora of billions of words."""


def ngram_rows(word: str, num_rows: int = NUM_ROWS) -> list[int]:
    """Rows of the n-grams of 3 to 6 characters in "<word>"."""
    letters = f"<{word}>"
    grams = [
        letters[start : start + size]
        for start in range(len(letters))
        for size in range(SHORTEST, LONGEST + 1)
        if start + size <= len(letters)
    ]
    return [_hash(gram) % num_rows for gram in grams]


def _hash(gram: str) -> int:
    value = 2166136261
    for byte in gram.encode("utf-8", "surrogatepass"):
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619) & 0xFFFFFFFF
    return value


def units_of(words: Sequence[str], with_ngrams: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows of V words in a matrix of word vectors followed by n-gram vectors.

    Returns:
        (V + 1,) int64 start of each word, and the int32 rows, the row of the word first.
    """
    rows = [[number, *(len(words) + row for row in (ngram_rows(word) if with_ngrams else ()))]
            for number, word in enumerate(words)]  # fmt: skip
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return starts, np.array([row for one in rows for row in one], np.int32)
