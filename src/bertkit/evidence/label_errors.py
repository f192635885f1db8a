"""Likely label errors: labels that the model contradicts most confidently.

Confident learning (Northcutt, Jiang & Chuang 2021, "Confident Learning: Estimating Uncertainty in Dataset Labels",
equation 1). The threshold of a label is its mean probability in the examples with that label. The estimated label of an
example is the likeliest among labels that reach their threshold. If it differs from the given label, that one is likely
wrong. Errors are sorted by the probability of the given label minus that of the estimated one (the paper's "normalized
margin"). The model must not have been trained on the examples. Shape letters: U predictions, C labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertkit.evidence.outcomes import Outcomes, excerpt

NUM_SHOWN = 25


@dataclass(frozen=True)
class LabelError:
    """A label that is likely wrong."""

    number: int  # index of the example
    location: str  # file and line, if known
    text: str  # or an excerpt
    pair: str | None
    word: str | None  # for taggers
    given: str
    likely: str
    given_probability: float | None  # None: for numbers
    likely_probability: float | None


@dataclass(frozen=True)
class LabelErrors:
    """The likeliest label errors."""

    num_judged: int
    num_likely: int | None  # None: for numbers, which are only sorted by their error
    shown: list[LabelError]  # the likeliest first; at most one word per text


def confident_labels(probabilities: np.ndarray, given: np.ndarray) -> np.ndarray:
    """(U,) int64 estimated labels, -1 for none.

    Args:
        probabilities: (U, C)
        given: (U,) int64
    """
    num_labels = probabilities.shape[1]
    of_given = probabilities[np.arange(len(given)), given]
    number = np.bincount(given, minlength=num_labels)
    thresholds = np.full(num_labels, np.inf)  # a label that is never given is never estimated
    np.divide(np.bincount(given, of_given, num_labels), number, out=thresholds, where=number > 0)
    reached = np.where(probabilities >= thresholds, probabilities, -1.0)
    return np.where(reached.max(axis=1) < 0, -1, reached.argmax(axis=1))


def label_errors_of(outcomes: Outcomes) -> LabelErrors:
    """Label errors among the labels of examples, the decisions of multi-label tasks, or the words of taggers; for
    numbers, those farthest from the prediction."""
    targets, probabilities, names = outcomes.targets, outcomes.probabilities, outcomes.names
    if probabilities is None:
        order = np.argsort(-np.abs(targets - outcomes.predicted), kind="stable")[:NUM_SHOWN]
        return LabelErrors(len(targets), None, list(_of_numbers(outcomes, order)))
    assert names is not None  # labels have probabilities
    if outcomes.has_several:
        columns = [
            np.stack([1 - probabilities[:, label], probabilities[:, label]], axis=1) for label in range(len(names))
        ]
        decided = zip(columns, targets.T.astype(np.int64), strict=True)  # of each label
        order = _likeliest(np.concatenate([_margins(*part, confident_labels(*part)) for part in decided]))
        shown = []
        for label, number in zip(*np.divmod(order[:NUM_SHOWN], len(targets)), strict=True):
            has = int(targets[number, label])
            known = columns[label][number]
            given, likely = (f"{'' if with_it else 'not '}{names[label]}" for with_it in (has, 1 - has))
            shown.append(_error(outcomes, int(number), given, likely, known[has], known[1 - has]))
        return LabelErrors(targets.size, len(order), shown)
    read = np.arange(len(targets)) if outcomes.was_read is None else np.flatnonzero(outcomes.was_read)
    known, given = probabilities[read], targets[read]
    likely = confident_labels(known, given)
    order = _likeliest(_margins(known, given, likely))
    _, first = np.unique(outcomes.example_of[read[order]], return_index=True)  # one word per text
    shown = [
        _error(
            outcomes, int(read[index]), names[given[index]], names[likely[index]],
            known[index, given[index]], known[index, likely[index]],
        )
        for index in order[np.sort(first)][:NUM_SHOWN]
    ]  # fmt: skip
    return LabelErrors(len(read), len(order), shown)


def _margins(probabilities: np.ndarray, given: np.ndarray, likely: np.ndarray) -> np.ndarray:
    """(U,) probability of the given label minus that of the estimated one; NaN if both are the same label."""
    indices = np.arange(len(given))
    margins = probabilities[indices, given] - probabilities[indices, likely]
    return np.where((likely < 0) | (likely == given), np.nan, margins)


def _likeliest(margins: np.ndarray) -> np.ndarray:
    """Indices of margins that are not NaN, in ascending order of margin."""
    return np.argsort(margins, kind="stable")[: int((~np.isnan(margins)).sum())]


def _error(
    outcomes: Outcomes, index: int, given: str, likely: str, given_probability: float, likely_probability: float
) -> LabelError:
    number = int(outcomes.example_of[index])
    example = outcomes.examples[number]
    word, around = None, 0
    if outcomes.was_read is not None:
        start, end = example.words[index - int(np.searchsorted(outcomes.example_of, number))]
        word, around = example.text[start:end], start
    return LabelError(
        number, example.location, *_excerpts(example, around), word, given, likely, float(given_probability),
        float(likely_probability),
    )  # fmt: skip


def _of_numbers(outcomes: Outcomes, order: np.ndarray) -> Iterator[LabelError]:
    for number in order.tolist():
        example, predicted, names = outcomes.examples[number], outcomes.predicted[number], outcomes.names
        likely = f"{predicted:.3g}" if names is None else names[outcomes.levels(predicted)]
        yield LabelError(number, example.location, *_excerpts(example), None, str(example.label), likely, None, None)


def _excerpts(example: Any, around: int = 0) -> tuple[str, str | None]:
    """Excerpts of the text, at a character, and of the other text of a pair; None if there is no other."""
    text, *others = example.texts
    return excerpt(text, around), excerpt(others[0]) if others else None
