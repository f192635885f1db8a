"""Evaluation on scored pairs: agreement with the cosines of a sentence encoder or the scores of a cross-encoder."""

from collections.abc import Callable, Sequence

import numpy as np

from bertkit.errors import DataError, UsageError
from bertkit.evidence.intervals import Measured, bootstrap_difference, bootstrap_scores
from bertkit.inference.text_encoder import TextEncoder
from bertkit.model import Model
from bertkit.tasks import TextSet
from bertkit.tasks.scoring import Numbers
from bertkit.tasks.thresholds import average_precision, best_threshold

_NUM_DRAWS = 1_000
_CORRELATIONS = ("pearson", "spearman")


def scores_of_pairs(model: TextEncoder, rows: Sequence[TextSet]) -> np.ndarray:
    """(N,) float64 scores of pairs: of a cross-encoder, else the cosines of the two vectors.

    Raises:
        DataError: a row with one text.
        UsageError: a cross-encoder with several labels.
    """
    if isinstance(model, Model) and model.scores_pairs:
        queries, texts = _sides(rows)
        scores = model.score_pairs(queries, texts).astype(np.float64)
        if scores.ndim == 2:
            raise UsageError(f"pairs need one score each, but this model has {scores.shape[1]} labels")
        return scores
    return cosines_of_pairs(lambda different: model.embed(different, normalize=True), rows)


def cosines_of_pairs(embed: Callable[[list[str]], np.ndarray], rows: Sequence[TextSet]) -> np.ndarray:
    """(N,) float64 products of the vectors of the two texts of a row.

    Args:
        embed: (n, D) vectors of length 1 of n different texts.

    Raises:
        DataError: a row with one text.
    """
    queries, texts = _sides(rows)
    different = list(dict.fromkeys([*queries, *texts]))
    numbers = {text: number for number, text in enumerate(different)}
    vectors = embed(different).astype(np.float64)
    sides = (vectors[[numbers[text] for text in side]] for side in (queries, texts))
    return np.einsum("ne,ne->n", *sides)


def _sides(rows: Sequence[TextSet]) -> tuple[list[str], list[str]]:
    """The first and the second texts of pairs."""
    return [row.query for row in rows], [row.with_positive().positives[0] for row in rows]


def measured_pairs(rows: Sequence[TextSet], scores: np.ndarray, minus: np.ndarray | None = None) -> dict[str, Measured]:
    """Pearson and Spearman correlation of a model's scores with those of the rows; if these are all 0 or 1, average
    precision, the best threshold with its F1, and the best accuracy; each with a 95 % bootstrap interval.

    Args:
        scores: (N,) of a model.
        minus: (N,) of another model: its values are subtracted, with the same resamples for both.

    Raises:
        DataError: fewer than two pairs, a row without a score, or scores that are all the same.
    """
    for row in rows:
        if row.score is None:
            raise row.error("has no score: expected scored pairs")
    targets = np.array([row.score for row in rows], np.float64)
    if len(rows) < 2 or np.ptp(targets) == 0:
        raise DataError(f"{len(rows)} pairs with {len(set(targets.tolist()))} different scores: expected at least two")
    if set(targets.tolist()) == {0.0, 1.0}:
        return _measured_binary(targets, scores, minus)
    scoring, both = Numbers(()), np.stack([targets, scores], axis=1)
    if minus is None:
        measured = bootstrap_scores(scoring, both)
    else:
        measured = bootstrap_difference(scoring, both, np.stack([targets, minus], axis=1))
    return {name: measured[name] for name in _CORRELATIONS}


def _measured_binary(targets: np.ndarray, scores: np.ndarray, minus: np.ndarray | None) -> dict[str, Measured]:
    def results(indices: np.ndarray) -> dict[str, float]:
        first, *others = (
            {"average_precision": average_precision(targets[indices], values[indices])}
            | best_threshold(targets[indices], values[indices])
            for values in (scores, minus)
            if values is not None
        )
        return {name: first[name] - sum(other[name] for other in others) for name in first}

    number, random = len(targets), np.random.default_rng(0)
    value = results(np.arange(number))
    draws = [results(random.integers(number, size=number)) for _ in range(_NUM_DRAWS)]
    return {
        name: Measured(value[name], *map(float, np.nanpercentile([draw[name] for draw in draws], (2.5, 97.5))))
        for name in value
    }
