"""Word senses: clusters of the contextual vectors of a word in a corpus.

Shape letters: n occurrences, D hidden_size.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertkit.errors import OverLengthError, UsageError, checked_count
from bertkit.inspection.contextual import first_occurrence, normalized, word_vectors
from bertkit.model import Model, check_model
from bertkit.tokenizer.tokenizer import listed_texts

_LAYERS = 4  # the last ones, summed (Devlin et al. 2018, section 5.3; Loureiro et al. 2021 for senses)
_STARTS, _STEPS = 10, 100


class Sense(NamedTuple):
    """A group of occurrences of a word."""

    number: int  # from 0, the largest group first
    num_texts: int
    share: float  # of all occurrences
    cohesion: float  # mean cosine of its occurrences with their mean
    examples: list[str]  # the texts nearest to the mean


class Senses(NamedTuple):
    """Groups of occurrences, and the group of each text with the word."""

    senses: list[Sense]
    texts: list[int]  # indices of the texts with the word
    groups: np.ndarray  # (n,) int64


def find_senses(
    model: Model, word: str, texts: Sequence[str], num_senses: int = 2, *, num_examples: int = 3, seed: int = 0
) -> Senses:
    """Group the first occurrence of a word in each text by its contextual vector, the sum of the last four layers.

    Spherical k-means (Dhillon and Modha 2001), the best of ten starts. The number of senses is an input; groups that
    stay empty, as of equal occurrences, are left out. Groups may also reflect topics or forms of the word instead of
    senses.

    Raises:
        OverLengthError: a text has more tokens than the model accepts.
        UsageError: fewer texts with the word than senses, fewer than two senses, or a str instead of texts.
    """
    check_model(model)
    texts = listed_texts(texts)
    num_senses = checked_count("num_senses", num_senses, 2)
    num_examples, seed = checked_count("num_examples", num_examples, 0), checked_count("seed", seed, 0)
    matches = [(index, span) for index, text in enumerate(texts) if (span := first_occurrence(word, text))]
    if len(matches) < num_senses:
        raise UsageError(f"{len(matches)} of {len(texts)} texts have the word {word!r}: expected at least {num_senses}")
    indices = [index for index, _ in matches]
    try:
        vectors = occurrence_vectors(model, [texts[index] for index in indices], [span for _, span in matches])
    except OverLengthError as error:
        index = indices[error.index]  # among all texts
        raise OverLengthError(f"text {index} {error.problem}", index, error.problem) from None
    groups, centers = spherical_k_means(vectors, num_senses, seed)
    senses = []
    for number in range(int(groups.max()) + 1):
        own = np.flatnonzero(groups == number)
        near = vectors[own] @ centers[number]
        best = own[np.argsort(-near, kind="stable")[:num_examples]]
        examples = [texts[indices[index]] for index in best]
        senses.append(Sense(number, len(own), len(own) / len(groups), float(near.mean()), examples))
    return Senses(senses, indices, groups)


def occurrence_vectors(model: Model, texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """(n, D) float32 of length 1, the sum of the last four layers of a word in each text."""
    last = model.config.num_hidden_layers
    layers = range(max(1, last - _LAYERS + 1), last + 1)
    return normalized(word_vectors(model, texts, [[span] for span in spans], layers).sum(axis=0))


def spherical_k_means(vectors: np.ndarray, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n,) int64 groups of (n, D) vectors of length 1, the largest first, and their (k, D) unit means."""
    random, best = np.random.default_rng(seed), (-np.inf, np.zeros(len(vectors), np.int64))
    for _ in range(_STARTS):
        chosen = [int(random.integers(len(vectors)))]
        for _ in range(k - 1):  # k-means++: far ones are more likely (Arthur and Vassilvitskii 2007)
            distance = np.maximum(1 - (vectors @ vectors[chosen].T).max(axis=1), 0).astype(np.float64)
            chosen.append(
                int(random.choice(len(vectors), p=distance / distance.sum()) if distance.any() else chosen[0])
            )
        centers, groups = vectors[chosen], np.full(len(vectors), -1)
        for _ in range(_STEPS):
            new = (vectors @ centers.T).argmax(axis=1)
            if (new == groups).all():
                break
            groups = new
            centers = normalized(np.stack([_mean(vectors, groups == number, centers[number]) for number in range(k)]))
        total = float((vectors * centers[groups]).sum())
        if total > best[0] + 1e-6:
            best = total, groups
    order = np.argsort(-np.bincount(best[1], minlength=k), kind="stable")
    groups = np.argsort(order)[best[1]]
    fallback = vectors.mean(axis=0)
    return groups, normalized(np.stack([_mean(vectors, groups == number, fallback) for number in range(k)]))


def _mean(vectors: np.ndarray, chosen: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    return vectors[chosen].mean(axis=0) if chosen.any() else otherwise
