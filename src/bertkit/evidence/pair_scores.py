"""Evaluation of sentence encoders on scored pairs: agreement of cosines and scores."""

from collections.abc import Sequence

import numpy as np

from bertkit.errors import DataError
from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.inference.text_encoder import TextEncoder
from bertkit.tasks import TextSet
from bertkit.tasks.scoring import Numbers
from bertkit.tasks.thresholds import average_precision, best_threshold

_NUM_DRAWS = 1_000


def measured_pairs(model: TextEncoder, rows: Sequence[TextSet]) -> dict[str, Measured]:
    """Pearson and Spearman correlation of cosines and scores; if all scores are 0 or 1, average precision, the best
    threshold with its F1, and the best accuracy; each with a 95 % bootstrap interval.

    Raises:
        DataError: fewer than two pairs, a row without a score, or scores that are all the same.
    """
    for row in rows:
        if row.score is None:
            raise row.error("has no score: expected scored pairs")
    targets = np.array([row.score for row in rows], np.float64)
    if len(rows) < 2 or np.ptp(targets) == 0:
        raise DataError(f"{len(rows)} pairs with {len(set(targets.tolist()))} different scores: expected at least two")
    texts = dict.fromkeys(text for row in rows for text in (row.query, row.positives[0]))
    numbers = {text: number for number, text in enumerate(texts)}
    vectors = model.embed(list(texts), normalize=True).astype(np.float64)
    queries = vectors[[numbers[row.query] for row in rows]]
    cosines = (queries * vectors[[numbers[row.positives[0]] for row in rows]]).sum(axis=1)
    if set(targets.tolist()) == {0.0, 1.0}:
        return _measured_binary(targets, cosines)
    measured = bootstrap_scores(Numbers(()), np.stack([targets, cosines], axis=1))
    return {name: measured[name] for name in ("pearson", "spearman")}


def _measured_binary(targets: np.ndarray, cosines: np.ndarray) -> dict[str, Measured]:
    def results(indices: np.ndarray) -> dict[str, float]:
        chosen = targets[indices], cosines[indices]
        return {"average_precision": average_precision(*chosen), **best_threshold(*chosen)}

    number, random = len(targets), np.random.default_rng(0)
    value = results(np.arange(number))
    draws = [results(random.integers(number, size=number)) for _ in range(_NUM_DRAWS)]
    return {
        name: Measured(value[name], *map(float, np.nanpercentile([draw[name] for draw in draws], (2.5, 97.5))))
        for name in value
    }
