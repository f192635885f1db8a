"""Search: an index of documents, split into passages, by words and meaning.

Takes: documents and a model; queries in words. Of a store alone: records with their vectors, the identity of the
embedding, queries as vectors, filters on metadata.
Gives: Index, which finds passages by words and meaning (`bertkit.Index`); VectorStore, the store of a folder; hits,
best first; parquet files of records.
May import: later, errors, files, locate, device, executor, compiled, documents, tasks, checkpoint, inference,
neighbors, model, words.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.search.bulk import BulkEmbedding as BulkEmbedding
    from bertkit.search.encoder import Encoder as Encoder
    from bertkit.search.filter_syntax import filter_of as filter_of
    from bertkit.search.filters import And as And
    from bertkit.search.filters import Between as Between
    from bertkit.search.filters import Contains as Contains
    from bertkit.search.filters import Equal as Equal
    from bertkit.search.filters import Filter as Filter
    from bertkit.search.filters import InDocument as InDocument
    from bertkit.search.filters import Not as Not
    from bertkit.search.filters import OneOf as OneOf
    from bertkit.search.filters import Or as Or
    from bertkit.search.parquet import export_parquet as export_parquet
    from bertkit.search.parquet import read_identity as read_identity
    from bertkit.search.parquet import read_records as read_records
    from bertkit.search.parquet import write_records as write_records
    from bertkit.search.records import Hit as Hit
    from bertkit.search.records import Identity as Identity
    from bertkit.search.records import Record as Record
    from bertkit.search.records import RepairReport as RepairReport
    from bertkit.search.records import SearchReport as SearchReport
    from bertkit.search.store.vector_store import VectorStore as VectorStore

__getattr__, __dir__ = on_demand(__name__)
