"""Distinctive words of classes of texts, by class-based TF-IDF."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

_WORD = re.compile(r"[^\W\d_][^\s'’-]+(?:['’-][^\W\d_][^\s'’-]*)*")


class _Letters(dict[int, str]):
    """Translation of a text to letters, their marks, and the signs inside words; others become spaces."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_kept = unicodedata.category(character) in ("Mn", "Mc") or character.isalpha() or character in "'’-"
        self[code] = character if is_kept else " "
        return self[code]


_LETTERS = _Letters()


def class_words(classes: Sequence[Iterable[str]], num_words: int) -> list[list[str]]:
    """Words with the largest weights in each class; words of equal weight in alphabetical order.

    The weight of a word is its frequency in the class, times log((A + 1) / (f + 1/2)), where f is its count in
    all classes and A the mean number of words in a class: class-based TF-IDF (Grootendorst 2022, arXiv:2203.05794) with
    the inverse frequency of BM25, which is negative for words such as "the". Words are compared in lowercase; numbers
    and single letters are ignored.

    >>> class_words([["the red car", "the old car"], ["the cat", "the old cat"]], 1)
    [['car'], ['cat']]
    """
    counts = [Counter(word for text in texts for word in _words(text)) for texts in classes]
    everywhere: Counter[str] = Counter()
    for own in counts:
        everywhere.update(own)
    mean = everywhere.total() / max(1, len(counts))

    names = []
    for own in counts:
        weights = {
            word: count / own.total() * math.log((mean + 1) / (everywhere[word] + 0.5)) for word, count in own.items()
        }
        names.append(sorted(weights, key=lambda word, weights=weights: (-weights[word], word))[:num_words])
    return names


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", text).lower().translate(_LETTERS))
