"""Questions to word vectors: nearest words, analogies, the odd one out, directions.

Cosines throughout; N vectors of D components.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertkit.errors import UsageError, check_several, check_type, checked_count
from bertkit.neighbors import top_k
from bertkit.words.encoder import StaticEncoder

_ROWS_AT_A_TIME = 1 << 16


class NearWord(NamedTuple):
    """A word and its cosine."""

    word: str
    score: float


class OddWord(NamedTuple):
    """A word and its cosine with the mean of the unit vectors of all words of the question."""

    word: str
    score: float
    is_odd: bool


class WordOnAxis(NamedTuple):
    """Score of a word on an axis."""

    word: str
    score: float  # cosine with the axis, positive toward the second words of the pairs
    percentile: float  # percentage of all words that score lower


class Axis(NamedTuple):
    """A semantic axis from pairs of words, with scores of words on it."""

    vector: np.ndarray  # (D,) float32 of length 1
    agreement: list[float]  # for each pair: cosine of its difference with the axis of the other pairs
    words: list[WordOnAxis]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors scaled to length 1; zeros stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12))


def _directions(encoder: StaticEncoder, words: Sequence[str]) -> np.ndarray:
    """(N, D) float32 vectors of length 1 of words.

    Raises:
        UsageError: a word has no vector, or one of zeros, which has no cosine.
    """
    check_type("the encoder", encoder, StaticEncoder)
    vectors = np.stack([encoder.vector(word) for word in words])
    if len(zero := np.flatnonzero(~vectors.any(axis=1))):
        raise UsageError(f"the vector of {words[zero[0]]!r} is zero, which has no cosine: choose another word")
    return unit(vectors)


def nearest(encoder: StaticEncoder, word: str, k: int = 10) -> list[NearWord]:
    """The ``k`` words nearest to a word by cosine, excluding the word.

    Raises:
        UsageError: the word has no vector, or one of zeros, or ``k`` is below 1.
    """
    return nearest_to(encoder, _directions(encoder, [word])[0], k, without=_rows_of(encoder, [word]))


def analogy(
    encoder: StaticEncoder, a: str, b: str, c: str, k: int = 10, *, with_inputs: bool = False
) -> list[NearWord]:
    """The ``k`` words nearest to a - b + c of unit vectors: "king" - "man" + "woman" (Mikolov et al. 2013, "3CosAdd").

    Args:
        with_inputs: do not exclude the three words. One of them is nearly always the nearest.

    Raises:
        UsageError: a word has no vector, or one of zeros, or ``k`` is below 1.
    """
    first, second, third = _directions(encoder, (a, b, c))
    return nearest_to(encoder, first - second + third, k, without=() if with_inputs else _rows_of(encoder, (a, b, c)))


def _rows_of(encoder: StaticEncoder, words: Sequence[str]) -> list[int]:
    """The rows of words, except those that have only vectors of n-grams."""
    return [row for word in words if (row := encoder.find_row(word)) >= 0]


def nearest_to(encoder: StaticEncoder, vector: np.ndarray, k: int, without: Sequence[int] = ()) -> list[NearWord]:
    """The ``k`` words nearest to a (D,) vector by cosine, excluding words of the rows ``without``.

    Raises:
        UsageError: a vector of zeros, or ``k`` is below 1.
    """
    k = checked_count("k", k)
    if not vector.any():
        raise UsageError("the vector is zero, which has no cosine: choose other words")
    words_of: dict[int, list[str]] = {}
    for word, row in zip(encoder.words, encoder.rows[encoder.rows >= 0].tolist(), strict=True):
        words_of.setdefault(row, []).append(word)
    scores, rows = best_rows(encoder, vector[None], k + len(without))
    pairs = zip(rows[0].tolist(), scores[0].tolist(), strict=True)
    nearest_words = [
        NearWord(word, score) for row, score in pairs if row not in without for word in words_of.get(row, ())
    ]
    return nearest_words[:k]


def best_rows(encoder: StaticEncoder, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(Q, k) cosines and rows of the vectors nearest to (Q, D) queries, best first; fewer if there are
    fewer that are not zero.

    The vectors are read in parts, so that they may be larger than memory.
    """
    asked = unit(np.asarray(queries, np.float32))
    known = np.unique(encoder.rows[encoder.rows >= 0])  # rows of words alone
    scores, rows = np.empty((len(asked), 0), np.float32), np.empty((len(asked), 0), np.int64)
    for first in range(0, len(known), _ROWS_AT_A_TIME):
        part = known[first : first + _ROWS_AT_A_TIME]
        vectors = np.asarray(encoder.vectors[part])
        have_cosines = vectors.any(axis=1)
        part = part[have_cosines]
        near, ids = top_k(asked, unit(vectors[have_cosines]), k)
        scores, rows = np.concatenate([scores, near], axis=1), np.concatenate([rows, part[ids]], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, rows = np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)
    return scores, rows


def odd_one_out(encoder: StaticEncoder, words: Sequence[str]) -> list[OddWord]:
    """Each word with its cosine to the mean of all words, in the given order. The lowest is the odd one.

    Raises:
        UsageError: fewer than three words, or one without a vector or with one of zeros.
    """
    check_several("words", words)
    words = list(words)
    if len(words) < 3:
        raise UsageError(f"{len(words)} words: expected at least three")
    vectors = _directions(encoder, words)
    scores = vectors @ unit(vectors.mean(axis=0))
    odd = int(scores.argmin())
    return [
        OddWord(word, float(score), index == odd) for index, (word, score) in enumerate(zip(words, scores, strict=True))
    ]


def axis(encoder: StaticEncoder, pairs: Sequence[tuple[str, str]], words: Sequence[str]) -> Axis:
    """A semantic axis from pairs of words, with scores of words on it.

    The axis is the mean of the differences of the pairs' unit vectors, second less first (Bolukbasi et al. 2016 take
    their first principal component). A score reflects how the training texts use a word, not what it means. With few
    pairs the axis may be accidental: ``agreement`` is near 0 if the pairs share no direction.

    Args:
        pairs: words that differ in one respect, such as ("he", "she").
        words: words to score on the axis.

    Raises:
        UsageError: fewer than two pairs, a pair of one vector, pairs whose differences cancel, or a word without a
            vector or with one of zeros.
    """
    for name, several in (("pairs", pairs), ("words", words)):
        check_several(name, several)
    pairs, words = list(pairs), list(words)
    if wrong := [pair for pair in pairs if isinstance(pair, str) or len(pair) != 2]:
        raise UsageError(f"the pair {wrong[0]!r:.60}: expected two words")
    if len(pairs) < 2:
        raise UsageError(f"{len(pairs)} pairs: expected at least two, so that their agreement can be measured")
    firsts, seconds = (_directions(encoder, ends) for ends in zip(*pairs, strict=True))
    differences = seconds - firsts
    if (same := np.flatnonzero(~differences.any(axis=1))).size:
        raise UsageError(f"the words of the pair {':'.join(pairs[same[0]])} have one vector: give different words")
    differences = unit(differences)
    vector = unit(differences.mean(axis=0))
    if not vector.any():
        raise UsageError("the differences of the pairs cancel: order the words of each pair in the same way")
    others = unit((differences.sum(axis=0) - differences) / (len(pairs) - 1))
    scores = _directions(encoder, words) @ vector if words else np.empty(0, np.float32)
    below, known = np.zeros(len(words)), encoder.rows[encoder.rows >= 0]  # the row of each word
    for first in range(0, len(known), _ROWS_AT_A_TIME):
        all_scores = unit(encoder.vectors[known[first : first + _ROWS_AT_A_TIME]]) @ vector
        below += [(all_scores < score).sum() for score in scores]
    percentiles = 100 * below / len(known)
    placed = [WordOnAxis(*one) for one in zip(words, scores.tolist(), percentiles.tolist(), strict=True)]
    return Axis(vector, (differences * others).sum(axis=1).tolist(), placed)
