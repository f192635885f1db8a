"""Parquet files of records: every store can be exported, and a file can be read into any store.

The columns are id, text, vector (a list of float32 of fixed size), document_id, start, end, metadata as JSON, and
lines. The identity of the embedding is kept under the key "bertkit" of the file's own metadata, as JSON.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import DataError, checked_path
from bertkit.files.tables import open_parquet, required_parquet
from bertkit.files.whole_files import check_writable, whole_file
from bertkit.search.filters import Filter
from bertkit.search.records import Identity, Record
from bertkit.search.store.record_rows import batches_of
from bertkit.search.store.vector_store import VectorStore

RECORDS_AT_ONCE = 4096
_KEY = b"bertkit"


def export_parquet(store: VectorStore, path: str | Path, where: Filter | None = None) -> int:
    """Write the records of a store to a parquet file, whole or not at all. Returns the number of records.

    Args:
        where: write only records that match.

    Raises:
        UsageError: no such folder, or another extension.
        DependencyError: pyarrow is not installed.
    """
    check_writable(checked_path("the file to write", path), endings=(".parquet",))
    return write_records(path, store.records(where), store.identity)


def write_records(path: str | Path, records: Iterable[Record], identity: Identity) -> int:
    """Write records to a parquet file, whole or not at all. Returns the number of records.

    Raises:
        UsageError: no such folder.
        DependencyError: pyarrow is not installed.
    """
    parquet = required_parquet()
    import pyarrow as pa

    schema = pa.schema(
        [
            ("id", pa.string()),
            ("text", pa.string()),
            ("vector", pa.list_(pa.float32(), identity.dimensions)),
            ("document_id", pa.string()),
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("metadata", pa.string()),
            ("lines", pa.list_(pa.int64(), 2)),
        ],
        metadata={_KEY: json.dumps(asdict(identity))},
    )
    number = 0
    with whole_file(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        for batch in batches_of(records, RECORDS_AT_ONCE):
            vectors = np.concatenate([record.vector for record in batch]).astype(np.float32, copy=False)
            columns = {name: [getattr(record, name) for record in batch] for name in schema.names}
            columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors), identity.dimensions)
            columns["metadata"] = [json.dumps(dict(record.metadata), ensure_ascii=False) for record in batch]
            writer.write_table(pa.table(columns, schema))
            number += len(batch)
    return number


def read_identity(path: str | Path) -> Identity:
    """The identity of the embedding of a file from `write_records`.

    Raises:
        DataError: not such a file.
    """
    with open_parquet(Path(path)) as file:
        return _identity(file, path)


def read_records(path: str | Path) -> Iterator[Record]:
    """The records of a file from `write_records`, in its order.

    Raises:
        DataError: not such a file.
    """
    with open_parquet(Path(path)) as file:
        _identity(file, path)
        for batch in file.iter_batches(RECORDS_AT_ONCE):
            vectors = batch.column("vector").flatten().to_numpy().reshape(len(batch), -1)
            columns = ("id", "text", "document_id", "start", "end", "metadata", "lines")
            rows = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            for vector, (id, text, document_id, start, end, metadata, lines) in zip(vectors, rows, strict=True):
                yield Record(id, text, vector, document_id, start, end, json.loads(metadata), tuple(lines))


def _identity(file: Any, path: str | Path) -> Identity:
    try:
        file.schema_arrow.field("lines")  # which the first version of this format lacks
        return Identity(**json.loads((file.schema_arrow.metadata or {})[_KEY]))
    except (KeyError, ValueError, TypeError):
        raise DataError(f"{path} holds no records: expected a file that bertkit index --export wrote") from None
