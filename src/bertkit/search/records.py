"""Records of a store, hits, the identity of the embedding, and reports."""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from bertkit.documents.metadata import check_id, check_unicode, stored_metadata
from bertkit.errors import UsageError, check_collection, check_type, checked_count

Similarity = Literal["cosine", "dot"]
Embed = Callable[[list[str]], np.ndarray]
"""A function from texts of records to (num_texts, dimensions) float32 vectors, with the prompt of documents."""


@dataclass(frozen=True)
class Identity:
    """Identity of the embedding of a store. Queries are compared only with vectors of the same identity."""

    model_hash: str  # hash of the content of the model folder
    dimensions: int
    similarity: Similarity = "cosine"
    query_prompt: str = ""  # prepended to every query
    document_prompt: str = ""  # prepended to every text of the store
    pooling: str = "mean"
    precision: str = "float32"  # precision of the encoder
    model_name: str = field(default="", compare=False)  # to load the model again; names are not compared

    def __post_init__(self) -> None:
        if self.similarity not in ("cosine", "dot"):
            raise UsageError(f"similarity={self.similarity!r}: expected 'cosine' or 'dot'")
        object.__setattr__(self, "dimensions", checked_count("dimensions", self.dimensions))

    def check(self, other: "Identity") -> None:
        """Check that other vectors, such as those of queries, have the identity of the store's.

        Raises:
            UsageError: they have not; every difference is named.
        """
        check_type("the identity", other, Identity)
        differences = [
            f"{one.name} {getattr(self, one.name)!r} in the store, {getattr(other, one.name)!r} now"
            for one in fields(self)
            if one.compare and one.name != "model_hash" and getattr(self, one.name) != getattr(other, one.name)
        ]
        if self.model_hash != other.model_hash:
            before, now = (one.model_name or one.model_hash for one in (self, other))
            others = f"model {before!r} in the store, {now!r} now"
            differences.insert(0, f"the files of {before!r} have changed" if before == now else others)
        if differences:
            raise UsageError(
                f"this store was embedded differently: {'; '.join(differences)}. Use the model and options of the "
                "store, or embed its documents again in a new folder"
            )


@dataclass(frozen=True, eq=False)
class Record:
    """A text with its vector, and its location in a document. Ids have no NUL characters."""

    id: str
    text: str
    vector: np.ndarray  # (dimensions,) float32
    document_id: str = ""
    start: int = 0  # characters of the document, end exclusive
    end: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)  # values that `stored_value` accepts
    lines: tuple[int, int] = (0, 0)  # first and last line of it in its file, from 1; 0: unknown


@dataclass(frozen=True, eq=False)
class Hit:
    """A record returned by a search."""

    id: str
    score: float  # cosine or dot product, larger means more similar
    rank: int  # from 1
    record: Record


@dataclass
class SearchReport:
    """Counts of a search, summed over its queries."""

    num_queries: int = 0
    num_searched: int = 0  # records matched by the filter, counted for each query
    num_scored_again: int = 0  # records compared again in full precision
    is_exact: bool = True  # False: a record that is among the nearest can be missing from a result


@dataclass
class RepairReport:
    """Changes made by a repair."""

    embedded_again: list[str] = field(default_factory=list)  # ids whose vector was damaged
    removed: list[str] = field(default_factory=list)  # ids whose text was damaged too: add them again


def check_records(records: Iterable[Record], identity: Identity) -> Iterator[Record]:
    """Check records and yield them, with vectors as C-contiguous float32, ``start``, ``end`` and ``lines`` as int, and
    metadata as `stored_metadata`.

    Raises:
        UsageError: a wrong type, an id given twice or with a NUL character, an offset of more than 64 bits, a vector of
            another shape, not finite or, for the cosine, zero.
    """
    check_collection("records", records)
    seen: set[str] = set()
    for record in records:
        check_type("a record", record, Record)
        check_id("record id", record.id)
        if not record.id:
            raise UsageError("record id '': expected a str that is not empty")
        if record.id in seen:
            raise UsageError(f"record {record.id!r} is given twice: ids are unique")
        seen.add(record.id)
        if not isinstance(record.text, str):
            raise UsageError(f"record {record.id!r}: expected text of type str")
        check_id(f"record {record.id!r}: document_id", record.document_id)
        check_unicode(f"record {record.id!r}: text", record.text)
        if not isinstance(record.lines, Sequence) or len(record.lines) != 2:
            raise UsageError(f"record {record.id!r}: lines={record.lines!r:.60}: expected the first and the last line")
        first_line, last_line = (_checked_offset(record.id, "lines", one) for one in record.lines)
        yield Record(
            record.id,
            record.text,
            checked_vector(record.vector, identity, f"the vector of record {record.id!r}"),
            record.document_id,
            _checked_offset(record.id, "start", record.start),
            _checked_offset(record.id, "end", record.end),
            stored_metadata(record.metadata),
            (first_line, last_line),
        )


def _checked_offset(record_id: str, name: str, value: object) -> int:
    """``start`` or ``end`` as int, also an integer of numpy."""
    try:
        offset = int(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        offset = None
    if offset is None or not -(2**63) <= offset < 2**63:
        raise UsageError(f"record {record_id!r}: {name}={value!r}: expected an int of at most 64 bits")
    return offset


def checked_queries(queries: np.ndarray, identity: Identity, asked: Identity, k: int) -> tuple[np.ndarray, int]:
    """Queries as (num_queries, dimensions) float32, and ``k``, after checking the arguments of a search.

    Raises:
        UsageError: as `VectorStore.search`, and for values that float32 cannot hold.
    """
    identity.check(asked)
    k = checked_count("k", k)
    queries = np.asarray(queries)
    if queries.ndim != 2:
        raise UsageError(f"queries have shape {queries.shape}: expected (num_queries, {identity.dimensions})")
    rows = [checked_vector(query, identity, f"query {index}") for index, query in enumerate(queries)]
    return np.stack(rows) if rows else np.empty((0, identity.dimensions), np.float32), k


def checked_vector(vector: np.ndarray, identity: Identity, what: str) -> np.ndarray:
    """A (dimensions,) vector as C-contiguous float32.

    Raises:
        UsageError: another shape or dtype, a value that is not finite, or zero with cosine similarity.
    """
    try:
        vector = np.asarray(vector)
    except ValueError:
        raise UsageError(f"{what} has lists of different lengths: expected numbers") from None
    if vector.shape != (identity.dimensions,) or vector.dtype.kind not in "fiu":
        raise UsageError(
            f"{what} has shape {vector.shape} and dtype {vector.dtype}: this store has vectors of "
            f"{identity.dimensions} numbers"
        )
    with np.errstate(over="ignore"):
        vector = np.ascontiguousarray(vector, np.float32)
    if not np.isfinite(vector).all():
        raise UsageError(f"{what} has a value that is not finite in float32: expected finite numbers")
    if identity.similarity == "cosine" and not vector.any():
        raise UsageError(f"{what} is zero: cosine similarity needs a direction; omit it, or use similarity='dot'")
    return vector


def in_order(ids: Sequence[str], records: Iterable[Record]) -> list[Record]:
    """Records in the order of ids, as `VectorStore.get` returns them."""
    by_id = {record.id: record for record in records}
    return [by_id[id] for id in ids if id in by_id]


def ranked(scored: Iterable[tuple[float, Record]]) -> list[Hit]:
    """Hits of scores and records, best first."""
    return [Hit(record.id, score, rank, record) for rank, (score, record) in enumerate(scored, 1)]


def embedded(texts: Sequence[str], identity: Identity, embed: Embed) -> np.ndarray:
    """(num_texts, dimensions) float32 vectors of texts, checked.

    Raises:
        UsageError: ``embed`` returned a wrong number of vectors, or invalid ones.
    """
    vectors = np.asarray(embed(list(texts)))
    if len(vectors) != len(texts):
        raise UsageError(f"embed returned {len(vectors)} vectors for {len(texts)} texts: expected one for each")
    return np.stack([checked_vector(vector, identity, "the vector of a text") for vector in vectors])


def listed(name: str, values: Any, types: Any, expected: str) -> list:
    """One value or several as a list.

    Raises:
        UsageError: a value of another type.
    """
    if isinstance(values, types) or not isinstance(values, Iterable):
        values = [values]
    else:
        check_collection(name, values, in_order=False)
    values = list(values)
    for one in values:
        if not isinstance(one, types):
            raise UsageError(f"{name}: {one!r:.60} is {type(one).__name__}, expected {expected}")
    return values
