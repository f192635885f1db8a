"""Which test examples the model may know from training: texts that stand in both files, word for word or nearly.

Word for word: equal once case, white space and punctuation are left out. Nearly: the training text is among the nearest
by the cosine of the model's own vectors, and both share most of their words. The second condition is there because the
vectors of a classifier lie close together for all texts of a label. Where no spaces stand between words, characters
count as words, and so do the symbols of a text without words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.evidence.outcomes import Outcomes, excerpt
from bertkit.inference import EmbedReport
from bertkit.model import Model
from bertkit.neighbors import top_k

LEAST_COSINE = 0.9
LEAST_SHARED = 0.9  # words in both, as a share of the words of one text; the mean of both texts' shares (Dice 1945)
_NUM_NEIGHBOURS = 10
_NUM_SHOWN = 25
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
"""Thai and Lao, Burmese, Khmer, Japanese syllables: many characters to a word, and no spaces between words."""


class _Separated(dict[int, str]):
    """What characters become before a text is split at spaces: ideographs stand alone, and letters, digits and the
    marks on them together."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if not (character.isalnum() or unicodedata.category(character)[0] == "M"):
            self[code] = " "
        else:
            self[code] = f" {character} " if "IDEOGRAPH" in unicodedata.name(character, "") else character
        return self[code]


_SEPARATED = _Separated()


@dataclass(frozen=True)
class LeakedText:
    """A test example and the training example that it resembles most."""

    number: int  # of the test example, from 0
    place: str  # file and line, where they are known
    text: str
    train_number: int
    train_place: str
    train_text: str
    is_exact: bool
    cosine: float
    shared_words: float
    same_label: bool


@dataclass(frozen=True)
class Leakage:
    """What of the test examples stands in the training examples."""

    num_train: int
    num_exact: int
    num_near: int
    num_other_label: int  # of both, those whose training example has another label
    least_cosine: float
    least_shared_words: float
    scores_without: dict[str, Measured] | None  # of the examples that are left; None: all stand there, or none
    shown: list[LeakedText]  # the nearest that are not exact first, for the exact ones need no look


def leakage_of(
    model: Model,
    outcomes: Outcomes,
    train: Sequence[Any],
    *,
    progress: bool | None = None,
) -> Leakage:
    """Look for every test example in the training examples.

    Args:
        train: examples of the same task.
    """
    texts, train_texts = ([whole_text(example) for example in some] for some in (outcomes.examples, train))
    words, train_words = ([normalized_words(text) for text in some] for some in (texts, train_texts))
    embeddings, train_embeddings = (_embeddings(model, some, progress) for some in (texts, train_texts))
    known: dict[tuple[str, ...], int] = {}
    for number, of_text in enumerate(train_words):
        known.setdefault(tuple(of_text), number)
    cosines, nearest = top_k(embeddings, train_embeddings, _NUM_NEIGHBOURS)
    leaked: list[LeakedText] = []
    for number, of_text in enumerate(words):
        exact = known.get(tuple(of_text)) if of_text else None
        if exact is not None:
            cosine = float(embeddings[number] @ train_embeddings[exact])
            leaked.append(_leaked(outcomes, train, number, exact, True, cosine, 1.0))
            continue
        near = [
            (shared_words(of_text, train_words[other]), float(cosine), other)
            for cosine, other in zip(cosines[number], nearest[number].tolist(), strict=True)
            if cosine >= LEAST_COSINE
        ]
        shared, cosine, other = max(near, default=(0.0, 0.0, -1))
        if shared >= LEAST_SHARED:
            leaked.append(_leaked(outcomes, train, number, other, False, cosine, shared))
    kept = np.ones(len(texts), np.bool_)
    kept[[one.number for one in leaked]] = False
    num_exact = sum(one.is_exact for one in leaked)
    return Leakage(
        len(train),
        num_exact,
        len(leaked) - num_exact,
        sum(not one.same_label for one in leaked),
        LEAST_COSINE,
        LEAST_SHARED,
        bootstrap_scores(outcomes.task.scoring, outcomes.rows[kept]) if leaked and kept.any() else None,
        sorted(leaked, key=lambda one: (one.is_exact, -one.shared_words, -one.cosine))[:_NUM_SHOWN],
    )


def whole_text(example: Any) -> str:
    """The text, or both texts of a pair in one."""
    pair = getattr(example, "pair", None)
    return f"{example.text} {pair}" if pair else example.text


def normalized_words(text: str) -> list[str]:
    """The words of a text, by which texts are compared. Ideographs are words, and pairs of letters in the other scripts
    without spaces; in a text without words all that is not white space.

    >>> normalized_words("  The CAT, the ﬁsh!")
    ['the', 'cat', 'the', 'fish']
    >>> normalized_words("猫が二匹いる。")
    ['猫', 'が', '二', '匹', 'いる']
    >>> normalized_words("ที่นี่") == ["ที", "ี่", "่น", "นี", "ี่"]
    True
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    words = []
    for word in text.translate(_SEPARATED).split():
        if len(word) > 2 and _UNSPACED.search(word):
            words += map("".join, pairwise(word))
        elif any(map(str.isalnum, word)):  # else marks alone, such as those that choose how a symbol looks
            words.append(word)
    return words or list("".join(text.split()))


def shared_words(words: Sequence[str], others: Sequence[str]) -> float:
    """0 to 1: twice the words in both, each as often as it stands there, by the words of one and the other."""
    if not words or not others:
        return 0.0
    return 2 * (Counter(words) & Counter(others)).total() / (len(words) + len(others))


def _embeddings(model: Model, texts: Sequence[str], progress: bool | None) -> np.ndarray:
    """(N, E) float32 of length 1."""
    parts = model.embed_stream(
        texts, report=EmbedReport(), pooling="mean", normalize=True, on_long="window", progress=progress
    )
    return np.concatenate([vectors for _, vectors in parts])


def _leaked(
    outcomes: Outcomes, train: Sequence[Any], number: int, other: int, is_exact: bool, cosine: float, shared: float
) -> LeakedText:
    example, known = outcomes.examples[number], train[other]
    same = outcomes.task.label_of(example) == outcomes.task.label_of(known)
    return LeakedText(
        number, example.place, excerpt(whole_text(example)), other, known.place, excerpt(whole_text(known)),
        is_exact, cosine, shared, same,
    )  # fmt: skip
