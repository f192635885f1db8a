"""Vectors to their nearest neighbors.

Takes: arrays of query and corpus embeddings.
Gives: for every query the scores and ids of the best corpus vectors.
May import: errors.
"""

from bertkit.neighbors.exact import top_k

__all__ = ["top_k"]
