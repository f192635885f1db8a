"""Words of a text for lexical search: lowercase stems without stop words.

A store keeps the words of its texts, and a query has to be split as they were. So with another splitting the format of
stores is another.
"""

import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import pairwise

import snowballstemmer

STOP_WORDS = frozenset(  # those of Lucene's EnglishAnalyzer
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)
_english, _lock = snowballstemmer.stemmer("english"), threading.Lock()  # a stemmer is stateful

_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_CHINESE_OR_JAPANESE = r"\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_WITHOUT_SPACES = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
_PRESENTATION_FORMS = re.compile(r"[\ufb00-\ufdff\ufe70-\ufefc\uff00-\uffef]{1,1000}")  # ligatures, half and full width
_NON_JOINER_IN_WORD = re.compile(r"\u200c(?<![\u0600-\u06ff]\u200c)")  # not that of Persian, between parts of a word
_VOWEL_SIGNS = "".join(chr(code) for code in range(0x591, 0x6EE) if unicodedata.category(chr(code)) == "Mn")
_IGNORED = re.compile(  # the vowel signs of Hebrew and Arabic, the letter that lengthens others; the last are not shown
    rf"[{_VOWEL_SIGNS}\u0640\u00ad\u034f\u200d\u2060\ufeff\ufe00-\ufe0f\U000e0100-\U000e01ef]+"
)
_INSIDE_SYLLABLE = r"\u1160-\u11ff"  # decomposed vowels and final consonants of Korean
_PIECE = re.compile(  # to the end of a word, or of a character
    rf".{{1,1000}}(?!\S)|.{{1,1000}}(?=[^\W{_INSIDE_SYLLABLE}])|.{{1,1000}}", re.DOTALL
)
_LONG_CHARACTERS = 100  # stems of words longer than these are not cached, as they could take all the memory
_RARE_MARKS = re.compile(r"[\U00010a01-\U0001e94a]")  # of scripts such as Adlam; to look for them takes time


def words(text: str) -> list[str]:
    """The stems of a text in order, by the English Snowball stemmer; the same however its accents, ligatures and widths
    are encoded, and with or without the vowel signs of Hebrew and Arabic.

    Words are letters, digits and underscores in a row, with the marks that follow them. Of scripts without spaces, each
    Chinese or Japanese character is a word, and each two characters in a row of Thai, Lao, Burmese and Khmer, with
    their marks.

    >>> words("The engines of Searching")
    ['engin', 'search']
    >>> words("cafe\\u0301 \\ufb01sh") == words("caf\\u00e9 fish")
    True
    >>> words("हिन्दी में")
    ['हिन्दी', 'में']
    >>> words("ภาษาไทย")
    ['ภา', 'าษ', 'ษา', 'าไ', 'ไท', 'ทย']
    """
    if text.isascii():
        return _stems(_ASCII_WORD.findall(text))
    text = _PRESENTATION_FORMS.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    text = _composed(text).replace("İ", "i")  # lower() gives this letter of Turkish another dot
    return _stems(_words_with_marks(_NON_JOINER_IN_WORD.sub("", _IGNORED.sub("", text))))


def is_half_of_pair(word: str) -> bool:
    """Whether a word is a single character (with its marks) of a script that `words` splits into pairs."""
    match = _patterns(0xFFFF)[0].fullmatch(word)
    return match is not None and match.lastindex is not None and len(_patterns(0xFFFF)[1].findall(word)) == 1


def _composed(text: str) -> str:
    """A text in form NFC, piece by piece: thousands of marks in a row take quadratic time."""
    return "".join(unicodedata.normalize("NFC", piece) for piece in _PIECE.findall(text))


def _words_with_marks(text: str) -> Iterator[str]:
    word, character = _patterns(0x1FFFF if _RARE_MARKS.search(text) else 0xFFFF)
    for match in word.finditer(text):
        if match.lastindex is None:
            yield match.group()
        else:
            characters = character.findall(match.group())
            yield from map("".join, pairwise(characters)) if len(characters) > 1 else characters


@cache
def _patterns(largest_mark: int) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of a word, as a group if it is of a script without spaces, and of a character with its marks."""
    codes = range(0x300, largest_mark + 1)
    marks = "".join(chr(code) for code in codes if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    letter, ahead = rf"[^\W{_CHINESE_OR_JAPANESE}{_WITHOUT_SPACES}]", rf"(?=[{_WITHOUT_SPACES}])"
    without_spaces = rf"{ahead}\w(?:{ahead}[\w{marks}])*"
    word = rf"{letter}+(?:[{marks}]+{letter}*)*|[{_CHINESE_OR_JAPANESE}]|({without_spaces})"
    return re.compile(word), re.compile(rf".[{marks}]*")


@lru_cache(1 << 18)
def stem(word: str) -> str:
    """The stem of a word in lowercase; "" for a stop word."""
    word = word.lower()
    if word in STOP_WORDS:
        return ""
    with _lock:
        return _english.stemWord(word)


def _stems(found: Iterable[str]) -> list[str]:
    stem_of_long = stem.__wrapped__
    return [
        stemmed for word in found if (stemmed := stem(word) if len(word) <= _LONG_CHARACTERS else stem_of_long(word))
    ]
