"""The interface of vector stores: what a record, a hit and the identity of an embedding are, and what a store does."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, Protocol, Self

import numpy as np

from bertkit.errors import UsageError
from bertkit.search.filters import Filter, Scalar, check_key, check_scalar

Similarity = Literal["cosine", "dot"]
Embed = Callable[[list[str]], np.ndarray]
"""Texts of records to their (num_texts, dimensions) float32 vectors, with the prompt of documents."""


@dataclass(frozen=True)
class Identity:
    """How the vectors of a store were made. A query is compared only with vectors of the same identity."""

    model_hash: str  # hash of the content of the model folder
    dimensions: int
    similarity: Similarity = "cosine"
    query_prompt: str = ""  # put before every query
    document_prompt: str = ""  # put before every text of the store
    pooling: str = "mean"
    precision: str = "float32"  # of the encoder
    model_name: str = field(default="", compare=False)  # to open the model again; another name of it is no difference

    def __post_init__(self) -> None:
        if self.similarity not in ("cosine", "dot"):
            raise UsageError(f"similarity={self.similarity!r}: expected 'cosine' or 'dot'")
        if isinstance(self.dimensions, bool) or not isinstance(self.dimensions, int) or self.dimensions < 1:
            raise UsageError(f"dimensions={self.dimensions!r}: expected an int of at least 1")

    def check(self, other: "Identity") -> None:
        """Check that a query was embedded as the vectors of the store were.

        Raises:
            UsageError: it was not; every difference is named.
        """
        differences = [
            f"{one.name} {getattr(self, one.name)!r} in the store, {getattr(other, one.name)!r} in the query"
            for one in fields(self)
            if one.compare and getattr(self, one.name) != getattr(other, one.name)
        ]
        if differences:
            raise UsageError(
                f"the query was not embedded as this store was: {'; '.join(differences)}. Embed it with the model and "
                "options of the store, or embed the store again"
            )


@dataclass(frozen=True, eq=False)
class Record:
    """A text with its vector, and where it stands in its document."""

    id: str
    text: str
    vector: np.ndarray  # (dimensions,) float32
    document_id: str = ""
    start: int = 0  # characters of the document, end exclusive
    end: int = 0
    metadata: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Hit:
    """A record that a search returned."""

    id: str
    score: float  # cosine or dot product, larger is more alike
    rank: int  # from 1
    record: Record


@dataclass
class SearchReport:
    """What a search did, summed over its queries."""

    num_queries: int = 0
    num_searched: int = 0  # records that the filter left, counted once for each query
    num_scored_again: int = 0  # of them, those compared again in full precision


@dataclass
class RepairReport:
    """What a repair changed."""

    embedded_again: list[str] = field(default_factory=list)  # ids whose vector was damaged
    removed: list[str] = field(default_factory=list)  # ids whose text was damaged too: add them again


class VectorStore(Protocol):
    """Records searched by vector. Every store behaves alike, whichever engine keeps the records.

    A method that changes the store is one commit: all of it is kept, or nothing. When it returns, the change is on
    disk.
    """

    @property
    def identity(self) -> Identity:
        """How the vectors were made."""
        ...

    def add(self, records: Iterable[Record]) -> None:
        """Add records.

        Raises:
            UsageError: an id that is in the store or given twice, or a record that cannot be stored.
        """
        ...

    def upsert(self, records: Iterable[Record]) -> None:
        """Add records, each in the place of the record with its id, if there is one.

        Raises:
            UsageError: an id given twice, or a record that cannot be stored.
        """
        ...

    def delete(self, ids: Iterable[str]) -> int:
        """Remove records; ids that the store lacks are ignored. Returns how many were removed."""
        ...

    def get(self, ids: Sequence[str]) -> list[Record]:
        """Records by id, in the order of the ids; ids that the store lacks are left out."""
        ...

    def records(self, where: Filter | None = None) -> Iterator[Record]:
        """Every record, or those that a filter matches, in the order in which they were written."""
        ...

    def search(
        self,
        query: np.ndarray,
        identity: Identity,
        k: int = 10,
        where: Filter | None = None,
        report: SearchReport | None = None,
    ) -> list[Hit]:
        """The ``k`` records most similar to a query; all of them if there are fewer.

        Args:
            query: (dimensions,) float.
            identity: how the query was embedded.
            where: only records that it matches are compared.
            report: where counts are added to.

        Raises:
            UsageError: a query of another identity or shape, not finite or, for the cosine, zero; or ``k`` below 1.
        """
        return self.search_many(np.asarray(query)[None], identity, k, where, report)[0]

    def search_many(
        self,
        queries: np.ndarray,
        identity: Identity,
        k: int = 10,
        where: Filter | None = None,
        report: SearchReport | None = None,
    ) -> list[list[Hit]]:
        """As `search`, for (num_queries, dimensions) queries at once: one list for each."""
        ...

    def count(self, where: Filter | None = None) -> int:
        """Number of records, or of those that a filter matches."""
        ...

    def verify(self) -> list[str]:
        """Check everything that is stored. Returns the problems, one sentence each; none if all is well."""
        ...

    def repair(self, embed: Embed) -> RepairReport:
        """Fix what `verify` finds: damaged vectors are embedded again from their texts.

        Raises:
            StoreError: damage that leaves nothing to repair from.
        """
        ...

    def switch(self, identity: Identity, embed: Embed, batch_size: int = 1024) -> None:
        """Embed every text again with another model. Searches see the old vectors until all new ones are there."""
        ...

    def compact(self) -> None:
        """Free the space of removed records."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def check_records(records: Iterable[Record], identity: Identity) -> Iterator[Record]:
    """Yield records that can be stored, vectors as C-contiguous float32.

    Raises:
        UsageError: a wrong type, an id given twice, a vector of another shape, not finite or, for the cosine, zero.
    """
    seen: set[str] = set()
    for record in records:
        if not isinstance(record.id, str) or not record.id:
            raise UsageError(f"record id {record.id!r}: expected a str that is not empty")
        if record.id in seen:
            raise UsageError(f"record {record.id!r} is given twice: ids are unique")
        seen.add(record.id)
        if not isinstance(record.text, str) or not isinstance(record.document_id, str):
            raise UsageError(f"record {record.id!r}: expected text and document_id of type str")
        for name, text in (("id", record.id), ("text", record.text), ("document_id", record.document_id)):
            check_unicode(record.id, name, text)
        for key, value in record.metadata.items():
            check_key(key)
            check_scalar(key, value)
            check_unicode(record.id, "metadata", f"{key}{value}")
        yield Record(
            record.id,
            record.text,
            checked_vector(record.vector, identity, f"the vector of record {record.id!r}"),
            record.document_id,
            record.start,
            record.end,
            record.metadata,
        )


def check_unicode(record_id: str, name: str, text: str) -> None:
    """Check that a text can be written as UTF-8.

    Raises:
        UsageError: it holds half of a surrogate pair.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"record {record_id!r}: {name} has a lone surrogate at character {error.start}, which is no text; "
                "decode the file again with errors='replace'"
            ) from None


def checked_queries(queries: np.ndarray, identity: Identity, asked: Identity, k: int) -> np.ndarray:
    """Queries as (num_queries, dimensions) float32, checked together with the other arguments of a search.

    Raises:
        UsageError: as `VectorStore.search`, and for values that float32 cannot hold.
    """
    identity.check(asked)
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise UsageError(f"k={k!r}: expected an int of at least 1")
    queries = np.asarray(queries)
    if queries.ndim != 2:
        raise UsageError(f"queries have shape {queries.shape}: expected (num_queries, {identity.dimensions})")
    rows = [checked_vector(query, identity, f"query {index}") for index, query in enumerate(queries)]
    return np.stack(rows) if rows else np.empty((0, identity.dimensions), np.float32)


def checked_vector(vector: np.ndarray, identity: Identity, what: str) -> np.ndarray:
    """A (dimensions,) vector as C-contiguous float32.

    Raises:
        UsageError: another shape or no numbers, a value that is not finite, or zero where the cosine needs a direction.
    """
    vector = np.asarray(vector)
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
        raise UsageError(f"{what} is zero: the cosine needs a direction; leave it out, or use similarity='dot'")
    return vector


def embedded(texts: Sequence[str], identity: Identity, embed: Embed) -> np.ndarray:
    """(num_texts, dimensions) float32 vectors of texts, checked.

    Raises:
        UsageError: ``embed`` returned another number of vectors, or some that cannot be stored.
    """
    vectors = np.asarray(embed(list(texts)))
    if len(vectors) != len(texts):
        raise UsageError(f"embed returned {len(vectors)} vectors for {len(texts)} texts: expected one for each")
    return np.stack([checked_vector(vector, identity, "the vector of a text") for vector in vectors])
