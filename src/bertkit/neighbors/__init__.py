"""Nearest neighbors of vectors, most similar pairs and groups.

Takes: arrays of query and corpus embeddings, or one collection.
Gives: scores and ids of the best corpus vectors for every query; most similar pairs of a collection,
communities and groups of near duplicates.
May import: later, errors, device, executor, compiled.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.neighbors.block_sizes import ScanName
    from bertkit.neighbors.close_pairs import Pairs, number_rows
    from bertkit.neighbors.community_search import communities
    from bertkit.neighbors.device_scan import DeviceScan
    from bertkit.neighbors.device_top_k import Corpus
    from bertkit.neighbors.exact import top_k
    from bertkit.neighbors.exact_scores import similarities
    from bertkit.neighbors.pairs import duplicate_groups, top_pairs
    from bertkit.neighbors.proved import Nearest
    from bertkit.neighbors.row_mask import RowMask
    from bertkit.neighbors.scans import SCANS, encode_rows, nearest

__getattr__, __dir__ = on_demand(__name__)

__all__ = [
    "SCANS",
    "Corpus",
    "DeviceScan",
    "Nearest",
    "Pairs",
    "RowMask",
    "ScanName",
    "communities",
    "duplicate_groups",
    "encode_rows",
    "nearest",
    "number_rows",
    "similarities",
    "top_k",
    "top_pairs",
]
