"""Calibration: expected calibration error, and temperature scaling.

Guo et al. 2017, "On Calibration of Modern Neural Networks": ECE in section 2, temperature scaling in section 4.2. The
temperature is the one with the lowest mean negative log-likelihood. Shape letters: U judgments, C labels.
"""

from dataclasses import dataclass

import numpy as np

from bertkit.evidence.intervals import wilson_interval
from bertkit.evidence.outcomes import Outcomes
from bertkit.tasks.probabilities import softmax

NUM_BINS = 15
FEWEST_EXAMPLES = 20
"""Minimum for fitting a temperature on half of the examples."""

_SMALLEST = 1e-12  # probability
_RANGE = 0.02, 50.0  # range of 1 / temperature
_HALVINGS = 50


@dataclass(frozen=True)
class Bin:
    """Predictions whose confidence is in one of NUM_BINS equal intervals of 0 to 1."""

    confidence: float  # mean confidence
    accuracy: float
    low: float  # Wilson's 95 % interval of the accuracy
    high: float
    num_judgments: int


@dataclass(frozen=True)
class Temperature:
    """Temperature scaling, and its effect on predictions that it was not fitted to.

    Each half of the examples is scaled by the temperature fitted on the other half.
    """

    temperature: float  # fitted on all examples, for future use
    of_halves: tuple[float, float]
    expected_calibration_error: float
    loss: float


@dataclass(frozen=True)
class Calibration:
    """Difference between confidence and accuracy."""

    judgments: str  # description of the predictions
    num_judgments: int
    bins: list[Bin]  # without empty ones
    expected_calibration_error: float
    loss: float  # mean negative log-likelihood, nats
    scaled: Temperature | None  # None: too few examples


def calibration_of(outcomes: Outcomes) -> Calibration | None:
    """Calibration of predictions; None for a task without probabilities, or if no word was encoded."""
    judgments = judgments_of(outcomes)
    if judgments is None or not len(judgments.targets):
        return None
    confidence, right = judgments.confidence(judgments.logits), judgments.right
    return Calibration(
        judgments.name,
        len(judgments.targets),
        _bins(confidence, right),
        expected_calibration_error(confidence, right),
        mean_loss(judgments.logits, judgments.targets),
        _scaled(judgments) if len(outcomes.examples) >= FEWEST_EXAMPLES else None,
    )


@dataclass(frozen=True)
class Judgments:
    """Decisions between labels, with their logits."""

    name: str
    logits: np.ndarray  # (U, C)
    targets: np.ndarray  # (U,) int64
    said: np.ndarray  # (U,) int64, the predicted label, whose probability is the confidence
    right: np.ndarray  # (U,) bool
    in_first_half: np.ndarray  # (U,) bool

    def confidence(self, logits: np.ndarray) -> np.ndarray:
        """(U,)"""
        return softmax(logits)[np.arange(len(logits)), self.said]


def judgments_of(outcomes: Outcomes) -> Judgments | None:
    """The decisions on all examples, or on their words; None for a task without probabilities."""
    probabilities, targets, first = outcomes.probabilities, outcomes.targets, outcomes.in_first_half
    if probabilities is None:
        return None
    if outcomes.has_several:
        has, known = targets.ravel().astype(np.int64), np.clip(probabilities.ravel(), _SMALLEST, 1 - _SMALLEST)
        logits = np.stack([np.log1p(-known), np.log(known)], axis=1)
        halves = np.repeat(first, targets.shape[1])
        name = "each label of each example: how often an example has a label with that probability"
        return Judgments(name, logits, has, np.ones_like(has), has == 1, halves)
    logits, said, halves = np.log(np.maximum(probabilities, _SMALLEST)), outcomes.predicted, first
    if outcomes.was_read is None:
        return Judgments("the label of each example", logits, targets, said, said == targets, halves)
    read, halves = outcomes.was_read, halves[outcomes.example_of]
    logits, targets, said = logits[read], targets[read], said[read]
    return Judgments("the label of each word", logits, targets, said, said == targets, halves[read])


def expected_calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Mean absolute difference between accuracy and confidence of a bin, weighted by bin size."""
    indices = _bins_of(confidence)
    apart = np.bincount(indices, right, NUM_BINS) - np.bincount(indices, confidence, NUM_BINS)
    return float(np.abs(apart).sum() / len(confidence))


def mean_loss(logits: np.ndarray, targets: np.ndarray) -> float:
    """Mean negative log-likelihood, nats."""
    probabilities = softmax(logits)[np.arange(len(targets)), targets]
    return float(-np.log(np.maximum(probabilities, _SMALLEST)).mean())


def fitted_temperature(logits: np.ndarray, targets: np.ndarray) -> float:
    """The temperature with the lowest loss, within 1/50 to 50.

    The loss is convex in 1 / temperature. It is lowest where its derivative changes sign; that is the mean expected
    logit minus the mean logit of the targets.
    """
    low, high = np.log(_RANGE)
    of_targets = logits[np.arange(len(targets)), targets]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        expected = (softmax(logits * np.exp(middle)) * logits).sum(axis=1)
        low, high = (low, middle) if (expected - of_targets).mean() > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def _scaled(judgments: Judgments) -> Temperature | None:
    first = judgments.in_first_half
    if first.all() or not first.any():
        return None
    logits, of_halves = judgments.logits.astype(np.float64), []
    for half in (first, ~first):
        of_halves.append(fitted_temperature(judgments.logits[half], judgments.targets[half]))
        logits[~half] /= of_halves[-1]
    return Temperature(
        fitted_temperature(judgments.logits, judgments.targets),
        (of_halves[0], of_halves[1]),
        expected_calibration_error(judgments.confidence(logits), judgments.right),
        mean_loss(logits, judgments.targets),
    )


def _bins(confidence: np.ndarray, right: np.ndarray) -> list[Bin]:
    indices, bins = _bins_of(confidence), []
    for index in np.unique(indices):
        inside = indices == index
        number, num_right = int(inside.sum()), int(right[inside].sum())
        interval = wilson_interval(num_right, number)
        bins.append(Bin(float(confidence[inside].mean()), num_right / number, *interval, number))
    return bins


def _bins_of(confidence: np.ndarray) -> np.ndarray:
    return np.minimum((confidence * NUM_BINS).astype(np.int64), NUM_BINS - 1)
