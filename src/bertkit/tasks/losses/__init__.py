"""Losses of sentence encoders and cross-encoders, by name."""

from bertkit.tasks.losses.in_batch import InBatch
from bertkit.tasks.losses.lists import Divergence, LambdaLoss, Margin
from bertkit.tasks.losses.loss import BatchLoss, ScoreLoss, SentenceLoss, loss_parameter
from bertkit.tasks.losses.pairs import Contrastive, Cosent, Cosine, CrossEntropy, SquaredError
from bertkit.tasks.losses.triplet import Triplet

OBJECTIVES: dict[str, type[SentenceLoss]] = {
    "in-batch": InBatch,
    "triplet": Triplet,
    "cosent": Cosent,
    "cosine": Cosine,
    "contrastive": Contrastive,
    "cross-entropy": CrossEntropy,
    "squared-error": SquaredError,
    "lambda": LambdaLoss,
    "margin": Margin,
    "divergence": Divergence,
}
"""Losses by name, the value of the option "objective"."""

__all__ = ["OBJECTIVES", "BatchLoss", "ScoreLoss", "SentenceLoss", "loss_parameter"]
