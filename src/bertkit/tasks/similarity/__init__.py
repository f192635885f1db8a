"""Sentence encoders: rows of texts that belong together or apart, the losses of their vectors, the task."""

from bertkit.tasks.similarity.scorer import SimilarityPrediction
from bertkit.tasks.similarity.task import Similarity

__all__ = ["Similarity", "SimilarityPrediction"]
