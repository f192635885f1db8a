"""Added tokens: strings that are matched in a text before it is split (``tokenizers``' AddedToken)."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

NO_MARKS = np.array([[np.iinfo(np.int64).max, 0, 0]])
"""Matches in texts without added tokens: only the final row."""

_SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | set(map(chr, range(0x2000, 0x200B)))
# Of Unicode's Alphabetic and Join_Control characters that are not letters, marks or numbers by category: circled
# letters, joiners.
_ALSO_IN_WORDS = frozenset("\u200c\u200d") | {
    chr(code)
    for codes in (range(0x24B6, 0x24EA), range(0x1F130, 0x1F14A), range(0x1F150, 0x1F16A), range(0x1F170, 0x1F18A))
    for code in codes
}


@dataclass(frozen=True)
class AddedToken:
    """An entry of the vocabulary that may occur literally in a text. Fields as in a published ``tokenizer.json``."""

    content: str
    single_word: bool = False  # match only without adjacent letters or digits
    lstrip: bool = False  # include the white space before it
    rstrip: bool = False  # include the white space after it
    normalized: bool = True  # match after normalization, in normalized form
    special: bool = False  # left out of decoded text; with a role, as [MASK], matched only if the caller asks for it


class Finder:
    """Finds added tokens: leftmost first, longest of those with the same start."""

    def __init__(self, tokens: Sequence[AddedToken], ids: Sequence[int], spell: Callable[[str], str] = str) -> None:
        """``spell`` maps a token's content to its form in the texts to search; of equal forms the first is found."""
        spelled: dict[bytes, tuple[AddedToken, int]] = {}
        for token, token_id in zip(tokens, ids, strict=True):
            spelled.setdefault(spell(token.content).encode(), (token, token_id))
        self._tokens = {content: token for content, token in spelled.items() if content}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self._pattern = re.compile(_any_of(longest_first)) if longest_first else None

    def __bool__(self) -> bool:
        """Whether there are tokens to find."""
        return bool(self._tokens)

    def marks(self, data: bytes, bounds: np.ndarray) -> np.ndarray:
        """The ``marks`` for the engine: first byte, byte after the last, and id of each matched token.

        Args:
            bounds: (num_texts + 1,) first byte of each text in ``data``, which is UTF-8.
        """
        if self._pattern is None or not self._pattern.search(data):
            return NO_MARKS
        borders = bounds.tolist()
        marks = [mark for start, end in pairwise(borders) for mark in self._in_text(data, start, end)]
        return np.concatenate([np.array(marks, np.int64).reshape(-1, 3), NO_MARKS])

    def _in_text(self, data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        assert self._pattern is not None
        free = start  # end of the previous token
        for match in self._pattern.finditer(data, start, end):
            token, token_id = self._tokens[match.group()]
            first, last = match.span()
            before, after = _character_before(data, start, first), _character_after(data, last, end)
            if token.single_word and (_is_in_words(before) or _is_in_words(after)):
                continue
            while token.lstrip and before in _SPACES:
                first -= len(before.encode())
                before = _character_before(data, start, first)
            while token.rstrip and after in _SPACES:
                last += len(after.encode())
                after = _character_after(data, last, end)
            yield max(first, free), last, token_id
            free = last


def _any_of(contents: Sequence[bytes], num_bytes: int = 3) -> bytes:
    """A regular expression for the longest of ``contents``, which are in descending order of length.

    Alternatives are tried one after another. Nested by their first ``num_bytes`` bytes, few are tried at each position
    of a text, also of many thousand.
    """
    if num_bytes == 0 or len(contents) == 1:
        return b"|".join(map(re.escape, contents))
    rests: dict[bytes, list[bytes]] = {}
    for content in contents:
        rests.setdefault(content[:1], []).append(content[1:])
    return b"|".join(re.escape(first) + b"(?:%b)" % _any_of(rest, num_bytes - 1) for first, rest in rests.items())


def _character_before(data: bytes, start: int, position: int) -> str | None:
    return data[max(start, position - 4) : position].decode(errors="ignore")[-1:] or None


def _character_after(data: bytes, position: int, end: int) -> str | None:
    return data[position : min(position + 4, end)].decode(errors="ignore")[:1] or None


def _is_in_words(char: str | None) -> bool:
    """Whether a character is a word character in Unicode (\\w of Unicode's regular expressions, annex C of UTS 18)."""
    if char is None:
        return False
    category = unicodedata.category(char)
    return category[0] in "LM" or category in ("Nd", "Nl", "Pc") or char in _ALSO_IN_WORDS
