"""Search: an index of documents, split into passages, by words and meaning.

Takes: files, or documents, and a model; queries in words. Of a store alone: records with their vectors, the identity
of the embedding, queries as vectors, filters on metadata.
Gives: Index, which finds passages by words and meaning (`bertkit.search.index`); VectorStore, the interface of every
store; EmbeddedStore, the store of a folder; hits, best first; parquet files of records.
May import: later, errors, files, locate, device, executor, compiled, corpus, tasks, checkpoint, inference, neighbors,
model, words.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.search.embedded.store import EmbeddedStore
    from bertkit.search.filters import And, Between, Equal, Filter, InDocument, Not, OneOf, Or
    from bertkit.search.parquet import export_parquet, read_identity, read_records, write_records
    from bertkit.search.store import Hit, Identity, Record, RepairReport, SearchReport, VectorStore

__getattr__, __dir__ = on_demand(__name__)

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
    "export_parquet",
    "read_identity",
    "read_records",
    "write_records",
]
