"""Clustering of texts by their vectors, with cluster names.

Takes: texts and their vectors.
Gives: clusters: their rows, a name made of distinctive words, and their most typical texts.
May import: errors, tokenizer, neighbors.
"""

from bertkit.clusters.clusters import METHODS, Cluster, ClusterOptions, find_clusters

__all__ = ["METHODS", "Cluster", "ClusterOptions", "find_clusters"]
