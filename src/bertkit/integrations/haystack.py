"""Haystack: components that embed texts and documents, retrieve from an index, and rank."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bertkit.errors import DependencyError, UsageError, check_several, check_type
from bertkit.integrations.given import index_of, model_of
from bertkit.model import Model
from bertkit.search.encoder import Encoder
from bertkit.search.filter_syntax import comparison
from bertkit.search.filters import And, Filter, Not, Or
from bertkit.search.index import Index

try:
    from haystack import Document, component, default_to_dict
except ImportError:
    raise DependencyError("this adapter needs Haystack: pip install 'bertkit[haystack]'") from None


class _Embedder:
    """A model with options: those of `bertkit.search.encoder.Encoder.of`."""

    def __init__(self, model: str | Path = "all-MiniLM-L6-v2", **options: Any) -> None:
        self.model, self.options = str(model), options
        options_of_encoder: dict[str, Any] = {"similarity": "cosine"} | options  # for stores of the framework
        self.encoder = Encoder.of(model, **options_of_encoder)

    def to_dict(self) -> dict[str, Any]:
        """See Haystack's `Component`."""
        return default_to_dict(self, model=self.model, **self.options)


@component
class BertkitTextEmbedder(_Embedder):
    """Embeds a query, with the prompt of queries. Options: those of `bertkit.search.encoder.Encoder.of`."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """The vector of a text."""
        return {"embedding": self.encoder.embed_query([text])[0].tolist()}


@component
class BertkitDocumentEmbedder(_Embedder):
    """Embeds documents, with the prompt of documents. Options: those of `bertkit.search.encoder.Encoder.of`."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """The documents with their vectors."""
        for document in documents:
            check_type("a document", document, Document)
        vectors = self.encoder.embed_document([document.content or "" for document in documents]).tolist()
        pairs = zip(documents, vectors, strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in pairs]}


@component
class BertkitRetriever:
    """Retrieves passages of an index, given as an object or by its folder, by hybrid search, with their location in
    ``meta``. Filters are those of Haystack, on fields such as "meta.year"."""

    def __init__(self, index: Index | str | Path, top_k: int = 10, filters: dict[str, Any] | None = None) -> None:
        self.index, self.top_k, self.filters = index_of(index), top_k, filters

    def to_dict(self) -> dict[str, Any]:
        """See Haystack's `Component`."""
        return default_to_dict(self, index=str(self.index.store.folder), top_k=self.top_k, filters=self.filters)

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, top_k: int | None = None, filters: dict[str, Any] | None = None
    ) -> dict[str, list[Document]]:
        """The passages that fit a query, best first."""
        filters = filters or self.filters
        where = _filter(filters) if filters else None
        results = self.index.search(query, self.top_k if top_k is None else top_k, plain=True, where=where)
        documents = [
            Document(id=one.id, content=one.text, score=one.score, meta={**one.metadata, **one.location})
            for one in results.warn_of_keys()
        ]
        return {"documents": documents}


@component
class BertkitRanker:
    """Ranks documents with a cross-encoder, given as an object or by its name, as for `bertkit.load`."""

    def __init__(self, model: Model | str | Path, top_k: int = 10) -> None:
        self.name = None if isinstance(model, Model) else str(model)
        self.model, self.top_k = model_of(model), top_k

    def to_dict(self) -> dict[str, Any]:
        """See Haystack's `Component`.

        Raises:
            UsageError: the model was given as an object, which does not know its name.
        """
        if self.name is None:
            raise UsageError("a BertkitRanker of a loaded model cannot be saved: create it with the name of the model")
        return default_to_dict(self, model=self.name, top_k=self.top_k)

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """The documents of the best scores, best first."""
        if not documents:
            return {"documents": []}
        texts = [document.content or "" for document in documents]
        ranked = self.model.rank(query, texts, top_k=self.top_k if top_k is None else top_k)
        return {"documents": [replace(documents[one.index], score=one.score) for one in ranked]}


def _filter(given: dict[str, Any]) -> Filter:
    """A filter of Haystack as one of bertkit."""
    check_type("a filter", given, dict)
    operator = given.get("operator", "")
    if operator in ("AND", "OR", "NOT") and "field" not in given:
        check_several("conditions", conditions := given.get("conditions", ()))
        parts = tuple(map(_filter, conditions))
        return Or(parts) if operator == "OR" else Not(And(parts)) if operator == "NOT" else And(parts)
    if not {"field", "operator", "value"} <= given.keys():
        raise UsageError(f"the filter {given!r:.60} lacks field, operator or value, or AND, OR or NOT with conditions")
    check_type("the field of a filter", given["field"], str)
    return comparison(given["field"].removeprefix("meta."), "=" if operator == "==" else operator, given["value"])
