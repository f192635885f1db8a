"""Leakage: test texts that are also in the training data, exactly or nearly.

Exact: as `bertkit.tasks.same_texts`. Near: the training text is among the nearest by the
cosine of the model's vectors, and both texts share most of their words. The second condition is needed because the
vectors of a classifier are close together for all texts of a label.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.evidence.outcomes import Outcomes, excerpt
from bertkit.inference import InferenceReport
from bertkit.model import Model
from bertkit.neighbors import Corpus
from bertkit.tasks.same_texts import normalized_sides

LEAST_COSINE = 0.9
LEAST_SHARED = 0.9  # minimum share of common words (Dice 1945)
_NUM_NEIGHBOURS = 10
_NUM_SHOWN = 25


@dataclass(frozen=True)
class LeakedText:
    """A test example and the most similar training example."""

    number: int  # index of the test example
    location: str  # file and line, if known
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
    """Test examples that are also in the training data."""

    num_train: int
    num_exact: int
    num_near: int
    num_other_label: int  # of both kinds, with another label in training
    least_cosine: float
    least_shared_words: float
    scores_without: dict[str, Measured] | None  # on the other examples; None: all examples are leaked, or none
    shown: list[LeakedText]  # near ones first, the most similar first, then exact ones


def leakage_of(model: Model, outcomes: Outcomes, train: Sequence[Any], *, progress: bool | None = None) -> Leakage:
    """Search for every test example in the training data.

    Args:
        train: examples of the same task.
    """
    texts, train_texts = ([whole_text(example) for example in some] for some in (outcomes.examples, train))
    keys, train_keys = ([normalized_sides(example) for example in some] for some in (outcomes.examples, train))
    words, train_words = ([list(chain(*key)) for key in some] for some in (keys, train_keys))
    embeddings, train_embeddings = (_embeddings(model, some, progress) for some in (texts, train_texts))
    known: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    for number, key in enumerate(train_keys):
        known.setdefault(key, []).append(number)
    cosines, nearest = Corpus(train_embeddings, model.device).top_k(embeddings, _NUM_NEIGHBOURS)
    leaked: list[LeakedText] = []
    for number, of_text in enumerate(words):
        if of_text and (copies := known.get(keys[number])):
            label = outcomes.task.label_of(outcomes.examples[number])
            same = (copy for copy in copies if outcomes.task.label_of(train[copy]) == label)
            exact = next(same, copies[0])
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
    """The text, or both texts of a pair joined."""
    return " ".join(filter(None, example.texts))


def shared_words(words: Sequence[str], others: Sequence[str]) -> float:
    """Dice coefficient of two multisets of words, 0 to 1."""
    if not words or not others:
        return 0.0
    return 2 * (Counter(words) & Counter(others)).total() / (len(words) + len(others))


def _embeddings(model: Model, texts: Sequence[str], progress: bool | None) -> np.ndarray:
    """(N, E) float32 of length 1."""
    parts = model.embed_stream(
        texts, report=InferenceReport(), pooling="mean", normalize=True, on_long="window", progress=progress
    )
    return np.concatenate([vectors for _, vectors in parts])


def _leaked(
    outcomes: Outcomes, train: Sequence[Any], number: int, other: int, is_exact: bool, cosine: float, shared: float
) -> LeakedText:
    example, known = outcomes.examples[number], train[other]
    same = outcomes.task.label_of(example) == outcomes.task.label_of(known)
    return LeakedText(
        number, example.location, excerpt(whole_text(example)), other, known.location, excerpt(whole_text(known)),
        is_exact, cosine, shared, same,
    )  # fmt: skip
