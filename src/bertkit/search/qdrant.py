"""Vector store on Qdrant, for collections too large for one machine, through qdrant-client.

A store called NAME is the alias NAME of a collection; NAME.state holds the identities. A change of model fills another
collection, and the alias moves in one operation. Qdrant has no transactions over several requests: all records are
checked before the first is sent, but a server that fails during a change keeps the finished part.
Whole numbers beyond 2**53 are compared as floats, and a metadata key cannot have a '"'. For the cosine Qdrant keeps
vectors with length 1 in place of those that were given. Records with equal scores come in any order.
"""

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Self

import numpy as np

from bertkit.errors import DependencyError, StoreError, UsageError, checked_count
from bertkit.search.checksums import record_checksum
from bertkit.search.filters import (
    And,
    Between,
    Equal,
    Filter,
    InDocument,
    Not,
    OneOf,
    Or,
    Scalar,
    checked_ids,
    not_a_filter,
)
from bertkit.search.store import (
    Embed,
    Hit,
    Identity,
    Record,
    RepairReport,
    SearchReport,
    VectorStore,
    check_records,
    checked_queries,
    embedded,
    in_order,
    ranked,
)

try:
    from qdrant_client import QdrantClient, models
except ImportError as error:
    raise DependencyError("a store on Qdrant needs qdrant-client: pip install 'bertkit[qdrant]'") from error

POINTS_AT_ONCE = 500


class QdrantStore(VectorStore):
    """A `VectorStore` on a Qdrant server.

    Args:
        client: connection to the server, ``QdrantClient(url=...)``.
        name: name of the store; created by `create`.
        exact: compare every record. False: use the server's approximate index, which is faster and may miss some.
    """

    def __init__(self, client: QdrantClient, name: str, *, exact: bool = True) -> None:
        self._client, self._name, self._exact = client, name, exact
        aliases = {one.alias_name: one.collection_name for one in client.get_aliases().aliases}
        if name not in aliases:
            raise StoreError(f"Qdrant has no store {name!r}: create it")

    @classmethod
    def create(cls, client: QdrantClient, name: str, identity: Identity, *, exact: bool = True) -> Self:
        """Create a store.

        Raises:
            UsageError: a store of that name exists.
        """
        if client.collection_exists(name) or any(one.alias_name == name for one in client.get_aliases().aliases):
            raise UsageError(f"Qdrant has a store or collection {name!r} already: choose another name, or open it")
        _create_collection(client, name, 1, identity)
        _point_alias(client, name, 1)
        return cls(client, name, exact=exact)

    @property
    def identity(self) -> Identity:
        """Identity of the embedding."""
        return self._state()[1]

    def add(self, records: Iterable[Record]) -> None:
        """See `VectorStore.add`."""
        collection, identity = self._state()
        rows = _checked(records, identity)
        if there := self._points([row.id for row in rows]):
            raise UsageError(f"record {there[0].payload['id']!r} is in the store already: upsert it to replace it")
        self._send(collection, rows)

    def upsert(self, records: Iterable[Record]) -> None:
        """See `VectorStore.upsert`."""
        collection, identity = self._state()
        self._send(collection, _checked(records, identity))

    def delete(self, ids: Iterable[str]) -> int:
        """See `VectorStore.delete`."""
        points = [point.id for point in self._points(checked_ids("ids", ids))]
        if points:
            self._client.delete(self._state()[0], models.PointIdsList(points=points), wait=True)
        return len(points)

    def get(self, ids: Sequence[str]) -> list[Record]:
        """See `VectorStore.get`."""
        ids = checked_ids("ids", ids)
        return in_order(ids, map(_record, self._points(ids, with_vectors=True)))

    def records(self, where: Filter | None = None) -> Iterator[Record]:
        """See `VectorStore.records`."""
        for point in self._all_points(where):
            yield _record(point)

    def search_many(
        self,
        queries: np.ndarray,
        identity: Identity,
        k: int = 10,
        where: Filter | None = None,
        report: SearchReport | None = None,
    ) -> list[list[Hit]]:
        """See `VectorStore.search_many`."""
        collection, own = self._state()
        queries, k = checked_queries(queries, own, identity, k)
        condition = _condition(where)
        num_searched = self.count(where)
        if report is not None:
            report.num_queries += len(queries)
            report.num_searched += len(queries) * num_searched
            report.is_exact &= self._exact
        if num_searched == 0:
            return [[] for _ in queries]
        results = []
        for query in queries:
            response = self._client.query_points(
                collection,
                query=query.tolist(),
                query_filter=condition,
                limit=min(k, num_searched),
                with_payload=True,
                with_vectors=True,
                search_params=models.SearchParams(exact=self._exact),
            )
            results.append(ranked((point.score, _record(point)) for point in response.points))
        return results

    def count(self, where: Filter | None = None) -> int:
        """See `VectorStore.count`."""
        return self._client.count(self._state()[0], count_filter=_condition(where), exact=True).count

    def verify(self) -> list[str]:
        """See `VectorStore.verify`: compares records with their checksums. Qdrant checks its own files."""
        return [f"the text or metadata of record {record.id!r} is damaged" for record in self._damaged()]

    def repair(self, embed: Embed) -> RepairReport:
        """See `VectorStore.repair`: damaged records are removed."""
        report = RepairReport(removed=[record.id for record in self._damaged()])
        self.delete(report.removed)
        return report

    def switch(self, identity: Identity, embed: Embed, batch_size: int = 1024) -> None:
        """See `VectorStore.switch`: fills another collection, then moves the alias."""
        batch_size = checked_count("batch_size", batch_size)
        old, _ = self._state()
        generation = int(old.rsplit(".", 1)[1]) + 1
        new = _create_collection(self._client, self._name, generation, identity)
        try:
            points = self._all_points(None)
            while batch := list(islice(points, batch_size)):
                vectors = embedded([point.payload["text"] for point in batch], identity, embed)
                self._upload(new, [(point.id, point.payload) for point in batch], vectors)
        except BaseException:
            self._client.delete_collection(new)
            raise
        _point_alias(self._client, self._name, generation)
        self._client.delete_collection(old)

    def compact(self) -> None:
        """Do nothing: Qdrant frees the space of removed records by itself."""

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _state(self) -> tuple[str, Identity]:
        """The collection behind the alias, and its identity."""
        aliases = {one.alias_name: one.collection_name for one in self._client.get_aliases().aliases}
        collection = aliases[self._name]
        (point,) = self._client.retrieve(f"{self._name}.state", [int(collection.rsplit(".", 1)[1])])
        return collection, Identity(**json.loads((point.payload or {})["identity"]))

    def _points(self, ids: Sequence[str], with_vectors: bool = False) -> list[Any]:
        points = list(dict.fromkeys(_point_id(id) for id in ids))
        return self._client.retrieve(self._state()[0], points, with_payload=True, with_vectors=with_vectors)

    def _all_points(self, where: Filter | None) -> Iterator[Any]:
        collection, _ = self._state()
        start: int | None = None
        at_start: set[Any] = set()  # ids with this number that were listed: writers at the same time use the same
        while True:
            limit = POINTS_AT_ONCE + len(at_start)
            points, _ = self._client.scroll(
                collection,
                scroll_filter=_condition(where),
                limit=limit,
                order_by=models.OrderBy(key="number", start_from=start),
                with_payload=True,
                with_vectors=True,
            )
            new: list[Any] = [point for point in points if point.id not in at_start]
            yield from new
            if len(points) < limit:
                return
            last = (points[-1].payload or {})["number"]
            if last != start:
                start, at_start = last, set()
            at_start |= {point.id for point in new if point.payload["number"] == last}

    def _damaged(self) -> list[Record]:
        damaged = []
        for point in self._all_points(None):
            if _payload(record := _record(point), 0)["checksum"] != point.payload.get("checksum"):
                damaged.append(record)
        return damaged

    def _send(self, collection: str, rows: Sequence[Record]) -> None:
        first = time.time_ns()  # later than every number before it
        points = [(_point_id(row.id), _payload(row, first + index)) for index, row in enumerate(rows)]
        for start in range(0, len(rows), POINTS_AT_ONCE):
            part = slice(start, start + POINTS_AT_ONCE)
            self._upload(collection, points[part], np.stack([row.vector for row in rows[part]]))

    def _upload(self, collection: str, points: Sequence[tuple[Any, dict]], vectors: np.ndarray) -> None:
        structs = [
            models.PointStruct(id=id, vector=vector.tolist(), payload=payload)
            for (id, payload), vector in zip(points, vectors, strict=True)
        ]
        self._client.upsert(collection, structs, wait=True)


def _checked(records: Iterable[Record], identity: Identity) -> list[Record]:
    """The records of `check_records`, all with keys that a filter can name."""
    rows = list(check_records(records, identity))
    for key in {key for row in rows for key in row.metadata}:
        _path(key)
    return rows


def _create_collection(client: QdrantClient, name: str, generation: int, identity: Identity) -> str:
    state, collection = f"{name}.state", f"{name}.{generation}"
    if not client.collection_exists(state):
        client.create_collection(state, vectors_config=models.VectorParams(size=1, distance=models.Distance.DOT))
    client.upsert(
        state,
        [models.PointStruct(id=generation, vector=[1.0], payload={"identity": json.dumps(asdict(identity))})],
        wait=True,
    )
    distance = models.Distance.COSINE if identity.similarity == "cosine" else models.Distance.DOT
    client.delete_collection(collection)  # left by an interrupted switch
    client.create_collection(
        collection, vectors_config=models.VectorParams(size=identity.dimensions, distance=distance)
    )
    for field, kind in (
        ("number", models.PayloadSchemaType.INTEGER),
        ("document_id", models.PayloadSchemaType.KEYWORD),
    ):
        client.create_payload_index(collection, field, field_schema=kind, wait=True)
    return collection


def _point_alias(client: QdrantClient, name: str, generation: int) -> None:
    alias = models.CreateAlias(collection_name=f"{name}.{generation}", alias_name=name)
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])


def _point_id(id: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"bertkit:{id}"))


def _payload(record: Record, number: int) -> dict[str, Any]:
    metadata = dict(record.metadata)
    row = (record.id, record.document_id, record.start, record.end, record.text)
    checksum = record_checksum(*row, json.dumps(metadata, sort_keys=True))
    names = ("id", "document_id", "start", "end", "text")
    return dict(zip(names, row, strict=True)) | {"metadata": metadata, "number": number, "checksum": checksum}


def _record(point: Any) -> Record:
    payload = point.payload
    parts = (payload[name] for name in ("document_id", "start", "end", "metadata"))
    return Record(payload["id"], payload["text"], np.array(point.vector, np.float32), *parts)


def _condition(where: Filter | None) -> Any:
    """Translate a filter to Qdrant's.

    Raises:
        UsageError: it is not a filter.
    """
    if where is None:
        return models.Filter()
    if isinstance(where, And):
        return models.Filter(must=[_condition(part) for part in where.parts])
    if isinstance(where, Or):
        return _any([_condition(part) for part in where.joined()])
    if isinstance(where, Not):
        return models.Filter(must_not=[_condition(where.part)])
    if isinstance(where, Equal):
        return models.Filter(must=[_equal(where.key, where.value)])
    if isinstance(where, OneOf):
        texts = [value for value in where.values if isinstance(value, str)]
        of_texts = [models.FieldCondition(key=_path(where.key), match=models.MatchAny(any=texts))] if texts else []
        return _any([*of_texts, *(_equal(where.key, value) for value in where.values if not isinstance(value, str))])
    if isinstance(where, Between):
        return models.Filter(
            must=[models.FieldCondition(key=_path(where.key), range=models.Range(gte=where.low, lte=where.high))]
        )
    if isinstance(where, InDocument):
        match = models.MatchAny(any=list(where.document_ids))
        return models.Filter(must=[models.FieldCondition(key="document_id", match=match)])
    raise not_a_filter(where)


def _any(conditions: list[Any]) -> Any:
    """A filter for records that match at least one of these conditions."""
    return models.Filter(should=conditions) if conditions else models.Filter(must=[models.HasIdCondition(has_id=[])])


def _equal(key: str, value: Scalar) -> Any:
    if value is None:
        return models.IsNullCondition(is_null=models.PayloadField(key=_path(key)))
    if isinstance(value, bool | str):
        return models.FieldCondition(key=_path(key), match=models.MatchValue(value=value))
    return models.FieldCondition(key=_path(key), range=models.Range(gte=value, lte=value))


def _path(key: str) -> str:
    """The path of a metadata value in the payload.

    Raises:
        UsageError: Qdrant has no way to write this key.
    """
    if '"' in key:
        raise UsageError(f"metadata key {key!r}: a store on Qdrant cannot filter on a key with '\"': rename it")
    return f"metadata.{key}" if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'metadata."{key}"'
