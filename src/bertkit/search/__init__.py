"""Vector stores: records of text, metadata and vector, searched by vector.

Takes: records with their vectors, the identity of the embedding, queries as vectors, filters on metadata.
Gives: VectorStore, the interface of every store; hits, best first; EmbeddedStore, the store of a folder.
May import: errors, files, executor, compiled, neighbors.
"""

from bertkit.search.embedded.store import EmbeddedStore
from bertkit.search.filters import And, Between, Equal, Filter, InDocument, Not, OneOf, Or
from bertkit.search.store import Hit, Identity, Record, RepairReport, SearchReport, VectorStore

__all__ = [
    "And",
    "Between",
    "EmbeddedStore",
    "Equal",
    "Filter",
    "Hit",
    "Identity",
    "InDocument",
    "Not",
    "OneOf",
    "Or",
    "Record",
    "RepairReport",
    "SearchReport",
    "VectorStore",
]
