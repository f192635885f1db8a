"""Cross-encoders: scores of texts for a query, by an encoder that reads both together."""

from bertkit.tasks.cross_encoder.task import CrossEncoding, TextScores

__all__ = ["CrossEncoding", "TextScores"]
