"""Cross-entropy of one label of C, or any of C labels, for each row of logits; with weights and label smoothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from bertkit.batch import IGNORED, LabeledBatch
from bertkit.errors import UsageError
from bertkit.later import F, torch
from bertkit.tasks.field_types import AboveZero, Probability, Range, Share
from bertkit.tasks.loss import Loss, LossFunction, mean_of, sums_of
from bertkit.tasks.task import Option, TextTask

if TYPE_CHECKING:
    from torch import Tensor

    from bertkit.architectures import Network

WEIGHT_OPTIONS: Mapping[str, Option] = {
    "class_weights": Option(str, "balanced, or label=weight,label=weight."),
    "label_smoothing": Option(float, "Share of the target distributed equally over all labels.", 0.0),
}


_Weights = Annotated[tuple[float, ...], Range("numbers above 0", lambda values: all(one > 0 for one in values))]


@dataclass(frozen=True)
class Weighted(TextTask):
    """A task with class weights and label smoothing."""

    label_names: tuple[str, ...] = ()
    class_weights: _Weights = ()  # weight of each label in the loss; (): equal weights
    label_smoothing: Share = 0.0  # share of the target distributed equally over all labels (Szegedy et al. 2016,
    # section 7)

    options: ClassVar[Mapping[str, Option]] = WEIGHT_OPTIONS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_weights and len(self.class_weights) != len(self.label_names):
            raise UsageError(f"{len(self.class_weights)} class_weights for {len(self.label_names)} labels")


@dataclass(frozen=True)
class ClassLoss(LossFunction):
    """Weighted mean of the cross-entropy in nats of (N, C) logits; rows with the label IGNORED do not count."""

    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0
    of_choices: bool = False  # logits are (N * C, 1): a score for each choice of a row

    is_recordable: ClassVar[bool] = True

    def totals(self, batch: LabeledBatch) -> Tensor:
        """(1,) sum of the label weights."""
        labels = batch.labels[batch.labels != IGNORED].cpu()
        if not self.class_weights:
            return torch.tensor([len(labels)], dtype=torch.float64)
        return torch.tensor(self.class_weights, dtype=torch.float64)[labels].sum()[None]

    def loss(self, outputs: Tensor, part: LabeledBatch, totals: Tensor) -> Loss:
        labels, weights = part.labels, _constants(self.class_weights, outputs)
        logits = outputs.view(len(labels), -1) if self.of_choices else outputs
        loss = F.cross_entropy(
            logits, labels, weights, reduction="sum", ignore_index=IGNORED, label_smoothing=self.label_smoothing
        )
        correct, number = (logits.detach().argmax(dim=-1) == labels).sum(), (labels != IGNORED).sum()
        counted = number if weights is None else weights[labels.clamp(min=0)].where(labels != IGNORED, 0.0).sum()
        return Loss(mean_of(loss, totals[0]), sums_of(loss, correct, number, counted))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Loss and accuracy."""
        loss, correct, number, weights = sums.tolist()
        return {"loss": loss / (weights or 1.0), "accuracy": correct / max(number, 1)}


@dataclass(frozen=True)
class LabelSetLoss(LossFunction):
    """Binary cross-entropy in nats of (N, C) logits, the mean over rows and labels.

    Weights apply to the rows with a label, in its loss; label smoothing moves targets away from 0 and 1 by half of it.
    """

    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0

    is_recordable: ClassVar[bool] = True
    shares: ClassVar[tuple[str, ...]] = ("decision_accuracy",)

    def totals(self, batch: LabeledBatch) -> Tensor:
        """(1,) rows times labels."""
        return torch.tensor([batch.labels.numel()], dtype=torch.float64)

    def loss(self, outputs: Tensor, part: LabeledBatch, totals: Tensor) -> Loss:
        targets = part.labels * (1 - self.label_smoothing) + self.label_smoothing / 2
        weights = _constants(self.class_weights, outputs)
        loss = F.binary_cross_entropy_with_logits(outputs, targets, pos_weight=weights, reduction="sum")
        correct = ((outputs.detach() > 0) == (part.labels > 0.5)).sum()
        return Loss(mean_of(loss, totals[0]), sums_of(loss, correct, targets.numel()))


def _constants(numbers: tuple[float, ...], like: Tensor) -> Tensor | None:
    """Numbers with the type and device of a tensor; None without any."""
    return _constants_on(numbers, like.dtype, like.device) if numbers else None


@lru_cache(maxsize=16)
def _constants_on(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers on a device, copied once."""
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=dtype, device=device)


@dataclass(frozen=True)
class OneOfClasses(Weighted):
    """One label of C for each row of logits, of a sequence or token."""

    temperature: AboveZero = 1.0  # logits are divided by it in predictions
    threshold: Probability = 0.0  # what is predicted has a higher probability; both from `bertkit calibrate`

    has_soft_labels: ClassVar[bool] = True

    def logits_of(self, network: Network, rows: Tensor) -> Tensor:
        """See `TextTask.logits_of`; divided by the temperature."""
        logits = super().logits_of(network, rows)
        return logits if self.temperature == 1 else logits / self.temperature

    @property
    def loss_function(self) -> ClassLoss:
        return ClassLoss(self.class_weights, self.label_smoothing)


def weights_asked_for(
    options: Mapping[str, Any], names: Sequence[str], balanced: Sequence[float] | np.ndarray
) -> dict[str, Any]:
    """The fields of `Weighted` from a user's options.

    Args:
        options: "class_weights", "balanced" or a weight for each label name, as a mapping or as "a=1,b=2.5";
            "label_smoothing".
        balanced: (C,) the weights for "balanced".

    Raises:
        UsageError: an invalid value.
    """
    weights = options.get("class_weights") or ()
    if weights == "balanced":
        weights = tuple(float(weight) for weight in balanced)
    elif weights:
        if isinstance(weights, str):
            weights = _weights_in(weights)
        if not isinstance(weights, Mapping) or set(weights) != set(names):
            raise UsageError(f"class_weights={weights!r}: expected 'balanced' or a weight for each of {list(names)}")
        try:
            weights = tuple(float(weights[name]) for name in names)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"class_weights={dict(weights)!r}: expected a number above 0 for each label") from None
    return {"class_weights": weights, "label_smoothing": options.get("label_smoothing", 0.0)}


def _weights_in(text: str) -> dict[str, float]:
    try:
        return {name: float(weight) for name, weight in (entry.rsplit("=", 1) for entry in text.split(","))}
    except ValueError:
        raise UsageError(f"class_weights {text!r}: expected 'balanced', or label=weight,label=weight") from None


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """(C,) weights by which all labels count equally, with the same total as without weights (scikit-learn's
    "balanced"); 1 for a label that does not occur."""
    occurs = counts > 0
    return np.where(occurs, counts.sum() / (occurs.sum() * np.maximum(counts, 1)), 1.0)
