"""Texts that are the same: equal after removing case, white space and punctuation.

Symbols, such as emoji, and in scripts without spaces characters count as words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import dropwhile, pairwise
from typing import Any
from unicodedata import category

_ASCII_WORDS = re.compile("[a-z0-9]+|[$+<=>^`|~]")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
"""Characters of Thai, Lao, Burmese and Khmer, and Japanese syllables: most words have several, without spaces between
words."""


class _Separated(dict[int, str]):
    """Translation of characters before a text is split at spaces: punctuation and control characters become spaces;
    ideographs and symbols, also those too new to have a category, separate words; letters, digits and their marks stay
    together."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = category(character)
        if kind[0] in "PZ" or kind in ("Cc", "Cf", "Cs"):
            self[code] = " "
        elif kind[0] in "LMN" and "IDEOGRAPH" not in unicodedata.name(character, ""):
            self[code] = character
        else:
            self[code] = f" {character} "
        return self[code]


_SEPARATED = _Separated()


def dev_in_training(train: Sequence[Any], dev: Sequence[Any]) -> str | None:
    """A sentence on dev texts that are in training rows, up to case, white space and punctuation, if there are any."""
    counts = Counter(map(normalized_sides, dev))
    firsts = {sides[0] for sides in counts}  # compared first: other texts, such as contexts, can be long
    candidates = (example for example in train if tuple(normalized_words(example.texts[0])) in firsts)
    known = {sides for sides in map(normalized_sides, candidates) if sides in counts}
    if not (number := sum(counts[sides] for sides in known)):
        return None
    return (
        f"{number:,} of {len(dev):,} dev examples have the text of a training row, so scores on dev are too high: use "
        "other rows"
    )


def normalized_sides(example: Any) -> tuple[tuple[str, ...], ...]:
    """The words of each text of an example: equal for examples of the same texts."""
    return tuple(tuple(normalized_words(text)) for text in example.texts)


def normalized_words(text: str) -> list[str]:
    """The words of a text for comparison. Ideographs and symbols are words, and so are letter pairs in other scripts
    without spaces, and all characters except white space in a text of punctuation only.

    >>> normalized_words("  The CAT, the ﬁsh!")
    ['the', 'cat', 'the', 'fish']
    >>> normalized_words("C++ costs $5 ❤️")
    ['c', '+', '+', 'costs', '$', '5', '❤']
    >>> normalized_words("猫が二匹いる。")
    ['猫', 'が', '二', '匹', 'いる']
    >>> normalized_words("ที่นี่") == ["ที", "ี่", "่น", "นี", "ี่"]
    True
    """
    if text.isascii():  # the same, ten times as fast
        return _ASCII_WORDS.findall(text.lower()) or list("".join(text.split()))
    text = unicodedata.normalize("NFKC", text).casefold()
    words = []
    for separated in text.translate(_SEPARATED).split():
        word = "".join(dropwhile(lambda one: category(one)[0] == "M", separated))  # variation selectors of symbols
        if len(word) > 2 and _UNSPACED.search(word):
            words += map("".join, pairwise(word))
        elif word:
            words.append(word)
    return words or list("".join(text.split()))
