"""Vector store in PostgreSQL with pgvector, through psycopg.

The tables of a store called NAME: NAME_state (the identity, the current table of vectors), NAME_record, and
NAME_vector_1, 2, ... for each model. A change is a transaction. A change of model fills another table, which one commit
makes current. Text with NUL characters cannot be stored in PostgreSQL.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import count, islice
from typing import Any, LiteralString, Self, cast

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
    import psycopg
    from pgvector.psycopg import register_vector
except ImportError as error:
    raise DependencyError(
        "a store in PostgreSQL needs psycopg and pgvector: pip install 'bertkit[pgvector]'"
    ) from error

ROWS_AT_ONCE = 1000
_COLUMNS = "r.id, r.text, v.vector, r.document_id, r.start_, r.end_, r.metadata"


class PgVectorStore(VectorStore):
    """A `VectorStore` in a PostgreSQL database.

    Args:
        address: connection string for psycopg, "postgresql://user@host/database".
        name: name of the store: letters, digits and _; created by `create`.
    """

    def __init__(self, address: str, name: str) -> None:
        self._name, self._cursor_numbers = _checked_name(name), count()
        self._connection = psycopg.connect(address, autocommit=True)
        if self._connection.execute("SELECT to_regclass(%s)", [f"{name}_state"]).fetchone() == (None,):
            self.close()
            raise StoreError(f"the database has no store {name!r}: create it")
        register_vector(self._connection)  # a database without stores can lack the type

    @classmethod
    def create(cls, address: str, name: str, identity: Identity) -> Self:
        """Create a store, and the extension ``vector`` if the database lacks it.

        Raises:
            UsageError: a store of that name exists.
        """
        _checked_name(name)
        with psycopg.connect(address) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            if connection.execute("SELECT to_regclass(%s)", [f"{name}_state"]).fetchone() != (None,):
                raise UsageError(f"the database has a store {name!r} already: choose another name, or open it")
            connection.execute(_sql(f"CREATE TABLE {name}_state (identity text NOT NULL, generation integer NOT NULL)"))
            connection.execute(
                _sql(
                    f"CREATE TABLE {name}_record (number bigserial PRIMARY KEY, id text UNIQUE NOT NULL, "
                    "document_id text NOT NULL, start_ bigint NOT NULL, end_ bigint NOT NULL, text text NOT NULL, "
                    "metadata jsonb NOT NULL, checksum bigint NOT NULL)"
                )
            )
            connection.execute(_sql(f"CREATE INDEX ON {name}_record (document_id)"))
            connection.execute(_sql(f"CREATE INDEX ON {name}_record USING gin (metadata)"))
            _create_vectors(connection, name, 1, identity)
            connection.execute(_sql(f"INSERT INTO {name}_state VALUES (%s, 1)"), [json.dumps(asdict(identity))])
        return cls(address, name)

    @property
    def identity(self) -> Identity:
        """Identity of the embedding."""
        return self._state()[1]

    def add(self, records: Iterable[Record]) -> None:
        """See `VectorStore.add`."""
        with self._connection.transaction():
            vectors, identity = self._state()
            for record in check_records(records, identity):
                self._insert(vectors, record)

    def upsert(self, records: Iterable[Record]) -> None:
        """See `VectorStore.upsert`."""
        with self._connection.transaction():
            vectors, identity = self._state()
            for record in check_records(records, identity):
                self._execute(f"DELETE FROM {self._name}_record WHERE id = %s", [record.id])
                self._insert(vectors, record)

    def delete(self, ids: Iterable[str]) -> int:
        """See `VectorStore.delete`."""
        ids = checked_ids("ids", ids)
        return self._execute(f"DELETE FROM {self._name}_record WHERE id = ANY(%s)", [ids]).rowcount

    def get(self, ids: Sequence[str]) -> list[Record]:
        """See `VectorStore.get`."""
        ids = checked_ids("ids", ids)
        return in_order(ids, map(_record, self._select("r.id = ANY(%s)", [ids])))

    def records(self, where: Filter | None = None) -> Iterator[Record]:
        """See `VectorStore.records`; reads one state of the store."""
        condition, values = _condition(where)
        vectors, _ = self._state()
        name = f"{self._name}_records_{next(self._cursor_numbers)}"
        # PostgreSQL keeps the result of a cursor "with hold": no transaction stays open between two records
        with self._connection.cursor(name, withhold=True) as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(_sql(self._query(vectors, condition, "r.number")), values)
            for row in cursor:
                yield _record(row)

    def search_many(
        self,
        queries: np.ndarray,
        identity: Identity,
        k: int = 10,
        where: Filter | None = None,
        report: SearchReport | None = None,
    ) -> list[list[Hit]]:
        """See `VectorStore.search_many`: every record is compared, in PostgreSQL's float32."""
        vectors, own = self._state()
        queries, k = checked_queries(queries, own, identity, k)
        condition, values = _condition(where)
        if report is not None:
            report.num_queries += len(queries)
            report.num_searched += len(queries) * self.count(where)
        score = "1 - (v.vector <=> %s)" if own.similarity == "cosine" else "-(v.vector <#> %s)"
        results = []
        for query in queries:
            rows = self._execute(
                f"SELECT {score} AS score, {_COLUMNS} FROM {vectors} v JOIN {self._name}_record r USING (number) "
                f"WHERE {condition} ORDER BY score DESC, number LIMIT %s",
                [query, *values, min(k, 2**62)],
            ).fetchall()
            results.append(ranked((score, _record(row)) for score, *row in rows))
        return results

    def count(self, where: Filter | None = None) -> int:
        """See `VectorStore.count`."""
        condition, values = _condition(where)
        (count,) = self._execute(f"SELECT count(*) FROM {self._name}_record r WHERE {condition}", values).fetchone()
        return count

    def verify(self) -> list[str]:
        """See `VectorStore.verify`: compares records with their checksums. PostgreSQL checks its own files."""
        missing = [f"record {id!r} has no vector" for _, id, _ in self._without_vectors()]
        return missing + [f"the text or metadata of record {id!r} is damaged" for id in self._damaged()]

    def repair(self, embed: Embed) -> RepairReport:
        """See `VectorStore.repair`: damaged records are removed, missing vectors embedded again."""
        report = RepairReport(removed=self._damaged())
        with self._connection.transaction():
            self.delete(report.removed)
            vectors, identity = self._state()
            for number, id, text in self._without_vectors():
                (vector,) = embedded([text], identity, embed)
                self._execute(f"INSERT INTO {vectors} (number, vector) VALUES (%s, %s)", [number, vector])
                report.embedded_again.append(id)
        return report

    def switch(self, identity: Identity, embed: Embed, batch_size: int = 1024) -> None:
        """See `VectorStore.switch`: fills another table, which the commit makes current."""
        batch_size = checked_count("batch_size", batch_size)
        with self._connection.transaction():
            old, _ = self._state()
            generation = int(old.rsplit("_", 1)[1]) + 1
            new = _create_vectors(self._connection, self._name, generation, identity)
            rows = iter(self._execute(f"SELECT number, text FROM {self._name}_record ORDER BY number").fetchall())
            while batch := list(islice(rows, batch_size)):
                vectors = embedded([text for _, text in batch], identity, embed)
                with self._connection.cursor() as cursor:
                    cursor.executemany(
                        _sql(f"INSERT INTO {new} (number, vector) VALUES (%s, %s)"),
                        [(number, vector) for (number, _), vector in zip(batch, vectors, strict=True)],
                    )
            state = [json.dumps(asdict(identity)), generation]
            self._execute(f"UPDATE {self._name}_state SET identity = %s, generation = %s", state)
            self._execute(f"DROP TABLE {old}")

    def compact(self) -> None:
        """See `VectorStore.compact`."""
        self._execute(f"VACUUM {self._name}_record")
        self._execute(f"VACUUM {self._state()[0]}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(_sql(statement), values)

    def _state(self) -> tuple[str, Identity]:
        """The current table of vectors, and its identity."""
        identity, generation = self._execute(f"SELECT identity, generation FROM {self._name}_state").fetchone()
        return f"{self._name}_vector_{generation}", Identity(**json.loads(identity))

    def _query(self, vectors: str, condition: str, order: str) -> str:
        tables = f"{vectors} v JOIN {self._name}_record r USING (number)"
        return f"SELECT {_COLUMNS} FROM {tables} WHERE {condition} ORDER BY {order}"

    def _select(self, condition: str, values: Sequence[Any]) -> list[Any]:
        return self._execute(self._query(self._state()[0], condition, "number"), values).fetchall()

    def _insert(self, vectors: str, record: Record) -> None:
        metadata = _metadata_json(record.metadata)
        row = (record.id, record.document_id, record.start, record.end, record.text)
        try:
            (number,) = self._execute(
                f"INSERT INTO {self._name}_record (id, document_id, start_, end_, text, metadata, checksum) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING number",
                [*row, metadata, record_checksum(*row, metadata)],
            ).fetchone()
        except psycopg.errors.UniqueViolation:
            raise UsageError(f"record {record.id!r} is in the store already: upsert it to replace it") from None
        except psycopg.DataError as error:
            raise UsageError(f"record {record.id!r} cannot be stored in PostgreSQL: {error}") from None
        self._execute(f"INSERT INTO {vectors} (number, vector) VALUES (%s, %s)", [number, record.vector])

    def _without_vectors(self) -> list[tuple[int, str, str]]:
        condition = f"number NOT IN (SELECT number FROM {self._state()[0]})"
        return self._execute(f"SELECT number, id, text FROM {self._name}_record WHERE {condition}").fetchall()

    def _damaged(self) -> list[str]:
        """Ids of the damaged records."""
        rows = self._execute(
            f"SELECT id, document_id, start_, end_, text, metadata, checksum FROM {self._name}_record ORDER BY number"
        )
        return [
            id
            for id, document_id, start, end, text, metadata, checksum in rows
            if record_checksum(id, document_id, start, end, text, _metadata_json(metadata)) != checksum
        ]


def _create_vectors(connection: Any, name: str, generation: int, identity: Identity) -> str:
    table = f"{name}_vector_{generation}"
    connection.execute(
        f"CREATE TABLE {table} (number bigint PRIMARY KEY REFERENCES {name}_record ON DELETE CASCADE, "
        f"vector vector({identity.dimensions}) NOT NULL)"
    )
    return table


def _record(row: Sequence[Any]) -> Record:
    id, text, vector, *rest = row
    return Record(id, text, np.asarray(vector.to_numpy(), np.float32), *rest)


def _metadata_json(metadata: Mapping[str, Scalar]) -> str:
    """Metadata as JSON with sorted keys, equal before and after it is stored in PostgreSQL.

    The type jsonb has no exponents and no negative zero: 1e+16 would come back as an int, and -0.0 as 0.0.
    """
    return "{" + ", ".join(f"{json.dumps(key)}: {_scalar_json(metadata[key])}" for key in sorted(metadata)) + "}"


def _scalar_json(value: Scalar) -> str:
    if isinstance(value, float):
        return format(value, ".1f") if abs(value) >= 1e16 else json.dumps(value + 0.0)
    return json.dumps(value)


def _condition(where: Filter | None) -> tuple[str, list[Any]]:
    """A filter as a condition on the record ``r``, and its values. No record has a key or text with a NUL character.

    Raises:
        UsageError: it is not a filter.
    """
    if where is None:
        return "true", []
    if isinstance(where, Equal | OneOf | Between) and "\0" in where.key:
        return "false", []
    if isinstance(where, Equal):
        return _condition(OneOf(where.key, (where.value,)))
    if isinstance(where, OneOf):
        values = json.dumps([value for value in where.values if not (isinstance(value, str) and "\0" in value)])
        return "coalesce(r.metadata -> %s IN (SELECT jsonb_array_elements(%s::jsonb)), false)", [where.key, values]
    if isinstance(where, Between):
        ends = [(sign, end) for sign, end in ((">=", where.low), ("<=", where.high)) if end is not None]
        compared = " AND ".join(f"(r.metadata ->> %s)::numeric {sign} %s" for sign, _ in ends) or "true"
        condition = f"CASE WHEN jsonb_typeof(r.metadata -> %s) = 'number' THEN {compared} ELSE false END"
        return condition, [where.key, *(value for _, end in ends for value in (where.key, end))]
    if isinstance(where, InDocument):
        return "r.document_id = ANY(%s)", [list(where.document_ids)]
    if isinstance(where, Not):
        condition, values = _condition(where.part)
        return f"NOT {condition}", values
    if isinstance(where, And | Or):
        parts = [_condition(part) for part in (where.joined() if isinstance(where, Or) else where.parts)]
        joined = (" AND " if isinstance(where, And) else " OR ").join(condition for condition, _ in parts)
        empty = "true" if isinstance(where, And) else "false"
        return f"({joined or empty})", [value for _, values in parts for value in values]
    raise not_a_filter(where)


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
        raise UsageError(f"name={name!r}: expected a lowercase letter, then letters, digits and _, at most 41")
    return name


def _sql(statement: str) -> LiteralString:
    """A statement built from checked names: values are passed separately."""
    return cast(LiteralString, statement)
