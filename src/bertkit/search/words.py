"""Words of a text for lexical search: lowercase stems without stop words, and codes as they are written.

A store keeps the words of its texts, and a query has to be split as they were. So with another splitting the format of
stores is another.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

import snowballstemmer

STOP_WORDS = frozenset(  # those of Lucene's EnglishAnalyzer
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)
LANGUAGES = tuple(snowballstemmer.algorithms())
_lock = threading.Lock()  # a stemmer is stateful

_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_CHINESE_OR_JAPANESE = r"\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_WITHOUT_SPACES = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
LETTER = rf"[^\W{_CHINESE_OR_JAPANESE}{_WITHOUT_SPACES}]"
"""Pattern of a letter, digit or underscore of a script with spaces."""
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
_ACCENTS = re.compile(r"(?<=[A-Za-z\u0370-\u03ff])[\u0300-\u036f]+")
_WITHOUT_ACCENT = {  # Latin and Greek letters
    code: unicodedata.normalize("NFD", chr(code))[0]
    for code in (*range(0xC0, 0x250), *range(0x370, 0x400), *range(0x1E00, 0x2000))
    if len(unicodedata.normalize("NFD", chr(code))) > 1
} | {
    ord(letter): plain for letter, plain in zip("ØøŁłĐđıÆæŒœßẞ", "O o L l D d i AE ae OE oe ss SS".split(), strict=True)
}

_SIGN = r"""(?<![^\s"'`(\[{<,=|/])(?:--?|[\#$@./])"""  # after white space, a bracket or a quotation mark
_NO_RUN = r"[A-Za-z]?[a-z]*(?:[^-\w.:/@+\#]|[-.:/@]\s)"  # most words: to skip them here saves time
_RUN = rf"(?:{_SIGN}|(?<!{LETTER})(?!{_NO_RUN})){LETTER}+(?:[-.:/@]+{LETTER}+)*(?:(?:\+\+|\#)(?!\w))?"
_RUNS, _ASCII_RUNS = re.compile(_RUN), re.compile(_RUN.replace(LETTER, r"\w"), re.ASCII)
_INNER_CAPITAL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_INNER_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PLAIN = re.compile(  # compounds and "and/or", abbreviations such as U.S., numbers and 20th
    r"[^\W\d_]+(?:-[^\W\d_]+)*(?:/[^\W\d_]+)?|(?:[^\W\d_]\.)*[^\W\d_]|\d[^\W_]*"
)
_SERIAL = re.compile(r"[^\W\d_]+\d\w*")
_VERSION = re.compile(r"v(?=\d+\.\d)")


class Split(NamedTuple):
    """The words of a text."""

    words: list[str]  # stems, in order
    codes: list[str]  # further words: the forms of codes, and the stems of the words that are joined in them
    exact: list[str]  # the whole form of each code, among the others: for a query, what a passage has to contain


def words(text: str, language: str = "english") -> list[str]:
    """The stems of a text in order, by a Snowball stemmer; the same however its accents, ligatures and widths are
    encoded, without the accents of Latin and Greek letters and the vowel signs of Hebrew and Arabic.

    Words are letters, digits and underscores in a row, with the marks that follow them. Of scripts without spaces, each
    Chinese or Japanese character is a word, and each two characters in a row of Thai, Lao, Burmese and Khmer, with
    their marks.

    >>> words("The engines of Searching")
    ['engin', 'search']
    >>> words("cafe\\u0301 \\ufb01sh") == words("caf\\u00e9 fish") == words("cafe fish")
    True
    >>> words("हिन्दी में")
    ['हिन्दी', 'में']
    >>> words("ภาษาไทย")
    ['ภา', 'าษ', 'ษา', 'าไ', 'ไท', 'ทย']
    """
    text = folded(text)
    return _stems(_ASCII_WORD.findall(text) if text.isascii() else _words_with_marks(text), language)


def split(text: str, language: str = "english") -> Split:
    """The words and the codes of a text. A code is a version, an address, an option, a path, an identifier: letters and
    digits joined by ``. - : / @ _`` or by capitals, or with a sign such as ``--`` or ``#`` at an end; of up to
    100 characters. Its forms are lowercase, versions without ``v``.

    >>> split("v2.11.3")
    Split(words=['v2', '11', '3'], codes=['2.11.3'], exact=['2.11.3'])
    >>> split("getUserName --keep-index well-known").codes
    ['getusername', 'get', 'user', 'name', '--keep-index']
    """
    text = folded(text)
    stems = words(text, language)
    codes: list[str] = []
    exact: list[str] = []
    for run in (_ASCII_RUNS if text.isascii() else _RUNS).findall(text):
        if run.isalnum() and (run.islower() or run.istitle() or run.isdigit()):
            if _SERIAL.fullmatch(run):
                exact += _stems([run], language)
            continue
        forms, inner = _forms(run) if len(run) <= _LONG_CHARACTERS else ((), ())
        codes += [*forms, *_stems(inner, language)]
        exact += forms[:1]
    of_words = set(stems)
    return Split(stems, [one for one in codes if one not in of_words], list(dict.fromkeys(exact)))


def folded(text: str) -> str:
    """A text with one encoding of each character, without the accents of Latin and Greek letters."""
    if text.isascii():
        return text
    text = _PRESENTATION_FORMS.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    text = _ACCENTS.sub("", _composed(_IGNORED.sub("", text)).translate(_WITHOUT_ACCENT))
    return _NON_JOINER_IN_WORD.sub("", text)


@lru_cache(1 << 16)
def _forms(run: str) -> tuple[Sequence[str], Sequence[str]]:
    """The forms of a code, the whole one first, none for plain words; and the words that capitals or _ join in it."""
    body = run.lstrip("-#$@./")
    if run[0] != "#" and (body[0].isdigit() or (len(run) - len(body) == 1 < len(body) and run[0] == "-")):
        run = body
    joined = [one for one in re.findall(r"\w+", run) if "_" in one or _INNER_CAPITAL.search(one)]
    inner = [word for one in joined for word in _INNER_WORD.findall(one)]
    run = run.lower()
    if _PLAIN.fullmatch(run) and not inner:
        return [], []
    outer = re.split(r"[/:@]+", run)
    forms = [run, *outer, *(part for one in outer for part in one.split("-"))]
    return list(dict.fromkeys(_VERSION.sub("", one) for one in forms if one == run or re.search(r"\W", one))), inner


def word_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of the words of a text; of a script without spaces, of words in a row."""
    return [match.span() for match in (_ASCII_WORD if text.isascii() else _patterns(0xFFFF)[0]).finditer(text)]


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
    ahead = rf"(?=[{_WITHOUT_SPACES}])"
    without_spaces = rf"{ahead}\w(?:{ahead}[\w{marks}])*"
    word = rf"{LETTER}+(?:[{marks}]+{LETTER}*)*|[{_CHINESE_OR_JAPANESE}]|({without_spaces})"
    return re.compile(word), re.compile(rf".[{marks}]*")


@cache
def stemmer(language: str) -> Callable[[str], str]:
    """A function that returns the stem of a word in lowercase; "" for a stop word of English."""
    stem_word = snowballstemmer.stemmer(language).stemWord
    stop_words = STOP_WORDS if language == "english" else ()

    @lru_cache(1 << 18)
    def stem(word: str) -> str:
        word = word.lower()
        if word in stop_words:
            return ""
        with _lock:
            return stem_word(word)

    return stem


def _stems(found: Iterable[str], language: str) -> list[str]:
    stem = stemmer(language)
    stem_of_long = stem.__wrapped__  # type: ignore[attr-defined]
    return [stemmed for one in found if (stemmed := stem(one) if len(one) <= _LONG_CHARACTERS else stem_of_long(one))]
