"""Cross-encoders: relevance scores of query-text pairs, with both texts in one sequence."""

from bertkit.tasks.cross_encoder.task import CrossEncoding, TextScores

__all__ = ["CrossEncoding", "TextScores"]
