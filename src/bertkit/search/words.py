"""Words of a text for lexical search: lowercase stems without stop words."""

import re
import threading
import unicodedata
from functools import lru_cache

import snowballstemmer

# Each Chinese or Japanese character is a word; other words are letters, digits and underscores in a row.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"})  # of pdf
STOP_WORDS = frozenset(  # those of Lucene's EnglishAnalyzer
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)
_english, _lock = snowballstemmer.stemmer("english"), threading.Lock()  # a stemmer is stateful


def words(text: str) -> list[str]:
    """The stems of a text in order, by the English Snowball stemmer; the same however its accents and ligatures are
    encoded.

    >>> words("The engines of Searching")
    ['engin', 'search']
    >>> words("cafe\\u0301 \\ufb01sh") == words("caf\\u00e9 fish")
    True
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(_LIGATURES)
    return [word for match in _WORD.finditer(text) if (word := stem(match.group()))]


@lru_cache(1 << 18)
def stem(word: str) -> str:
    """The stem of a word in lowercase; "" for a stop word."""
    word = word.lower()
    if word in STOP_WORDS:
        return ""
    with _lock:
        return _english.stemWord(word)
