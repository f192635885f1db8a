"""Training of sentence encoders: examples, losses, metrics and the task."""

from bertkit.tasks.similarity.scorer import SimilarityPrediction
from bertkit.tasks.similarity.task import Similarity

__all__ = ["Similarity", "SimilarityPrediction"]
