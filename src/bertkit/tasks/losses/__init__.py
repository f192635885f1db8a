"""Losses of sentence encoders and cross-encoders, one file for each or for a small family."""

from bertkit.tasks.losses.cross_entropy import CrossEntropy
from bertkit.tasks.losses.in_batch import InBatch
from bertkit.tasks.losses.lambda_loss import LambdaLoss
from bertkit.tasks.losses.loss import BatchLoss, ScoreLoss, SentenceLoss, VectorLoss, parameter
from bertkit.tasks.losses.scored_pairs import Contrastive, Cosent
from bertkit.tasks.losses.squared_error import Cosine, SquaredError
from bertkit.tasks.losses.teacher_scores import Divergence, Margin
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

__all__ = ["OBJECTIVES", "BatchLoss", "ScoreLoss", "SentenceLoss", "VectorLoss", "parameter"]
