"""Which given labels are likely wrong: those that the model contradicts most surely.

Confident learning (Northcutt, Jiang & Chuang 2021, "Confident Learning: Estimating Uncertainty in Dataset Labels",
equation 1): the estimated label of an example is the likeliest of those whose probability reaches the mean probability
that they have in the examples they are given to. Where it is not the given label, the given one is likely wrong. Such
examples are listed by the probability of the given label less that of the estimated one (the paper's "normalized
margin"). The model must not have been trained on them. Shape letters: U judgments, C labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bertkit.evidence.outcomes import Outcomes, excerpt

NUM_SHOWN = 25


@dataclass(frozen=True)
class LabelError:
    """A label to look at again."""

    number: int  # of the example, from 0
    place: str  # file and line, where they are known
    text: str  # or what of it can be shown
    pair: str | None
    word: str | None  # of a tagger
    given: str
    likely: str
    given_probability: float | None  # None: of numbers
    likely_probability: float | None


@dataclass(frozen=True)
class LabelErrors:
    """The likeliest errors among the given labels."""

    num_judged: int
    num_likely: int | None  # None: numbers, which are only listed by their distance
    shown: list[LabelError]  # the likeliest first; of a text no more than one word


def confident_labels(probabilities: np.ndarray, given: np.ndarray) -> np.ndarray:
    """(U,) int64 the estimated labels of examples, -1 where none is.

    Args:
        probabilities: (U, C)
        given: (U,) int64
    """
    num_labels = probabilities.shape[1]
    of_given = probabilities[np.arange(len(given)), given]
    number = np.bincount(given, minlength=num_labels)
    thresholds = np.full(num_labels, np.inf)  # a label that is never given is never estimated either
    np.divide(np.bincount(given, of_given, num_labels), number, out=thresholds, where=number > 0)
    reached = np.where(probabilities >= thresholds, probabilities, -1.0)
    return np.where(reached.max(axis=1) < 0, -1, reached.argmax(axis=1))


def label_errors_of(outcomes: Outcomes) -> LabelErrors:
    """Of an example's label, of each decision of several labels, of each word that was read; of numbers those that
    lie farthest from what is predicted."""
    targets, probabilities, names = outcomes.targets, outcomes.probabilities, outcomes.names
    if probabilities is None:
        order = np.argsort(-np.abs(targets - outcomes.predicted), kind="stable")[:NUM_SHOWN]
        return LabelErrors(len(targets), None, list(_of_numbers(outcomes, order)))
    assert names is not None  # as there are probabilities of labels
    if outcomes.has_several:
        columns = [
            np.stack([1 - probabilities[:, label], probabilities[:, label]], axis=1) for label in range(len(names))
        ]
        likely_labels = [confident_labels(*part) for part in zip(columns, targets.T.astype(np.int64), strict=True)]
        margins = [
            _margins(*part) for part in zip(columns, targets.T.astype(np.int64), likely_labels, strict=True)
        ]  # of each label
        order = _likeliest(np.concatenate(margins))
        shown = []
        for label, number in zip(*np.divmod(order[:NUM_SHOWN], len(targets)), strict=True):
            has = int(targets[number, label])
            known = columns[label][number]
            given, likely = (f"{'' if decided else 'not '}{names[label]}" for decided in (has, 1 - has))
            shown.append(_error(outcomes, int(number), given, likely, known[has], known[1 - has]))
        return LabelErrors(targets.size, len(order), shown)
    read = np.arange(len(targets)) if outcomes.was_read is None else np.flatnonzero(outcomes.was_read)
    known, given = probabilities[read], targets[read]
    likely = confident_labels(known, given)
    order = _likeliest(_margins(known, given, likely))
    _, first = np.unique(outcomes.example_of[read[order]], return_index=True)  # of each text one word
    shown = [
        _error(
            outcomes, int(read[index]), names[given[index]], names[likely[index]],
            known[index, given[index]], known[index, likely[index]],
        )
        for index in order[np.sort(first)][:NUM_SHOWN]
    ]  # fmt: skip
    return LabelErrors(len(read), len(order), shown)


def _margins(probabilities: np.ndarray, given: np.ndarray, likely: np.ndarray) -> np.ndarray:
    """(U,) by how much the given label is less likely than the estimated one, negated; NaN where that is no other."""
    indices = np.arange(len(given))
    margins = probabilities[indices, given] - probabilities[indices, likely]
    return np.where((likely < 0) | (likely == given), np.nan, margins)


def _likeliest(margins: np.ndarray) -> np.ndarray:
    """The indices of those that are not NaN, ascending."""
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
    pair = getattr(example, "pair", None)
    return LabelError(
        number, example.place, excerpt(example.text, around), None if pair is None else excerpt(pair), word,
        given, likely, float(given_probability), float(likely_probability),
    )  # fmt: skip


def _of_numbers(outcomes: Outcomes, order: np.ndarray) -> Iterator[LabelError]:
    for number in order.tolist():
        example, predicted, names = outcomes.examples[number], outcomes.predicted[number], outcomes.names
        likely = f"{predicted:.3g}" if names is None else names[outcomes.levels(predicted)]
        pair = None if example.pair is None else excerpt(example.pair)
        yield LabelError(
            number, example.place, excerpt(example.text), pair, None, str(example.label), likely, None, None
        )
