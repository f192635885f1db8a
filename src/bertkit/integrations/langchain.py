"""LangChain: embeddings, a vector store, a retriever of an index, and a reranker of documents."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertkit.errors import DependencyError, UsageError, check_several, check_type, checked_path, warn
from bertkit.integrations.given import index_of, model_of
from bertkit.model import Model
from bertkit.search import Identity, Record, VectorStore, filter_of
from bertkit.search.encoder import Encoder
from bertkit.search.filters import keys_of, note_of_keys
from bertkit.search.index import Index
from bertkit.search.store.database import has_store

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore as LangChainStore
except ImportError:
    raise DependencyError("this adapter needs LangChain: pip install 'bertkit[langchain]'") from None


class BertkitEmbeddings(Embeddings):
    """Embeddings of a model, with its prompts of queries and documents.

    Args:
        model: a folder, a hub name, or the import name of a model package.
        options: those of `bertkit.search.encoder.Encoder.of`: precision, device, query_prompt, ...
    """

    def __init__(self, model: str = "all-MiniLM-L6-v2", **options: Any) -> None:
        options_of_encoder: dict[str, Any] = {"similarity": "cosine"} | options  # for stores of the framework
        self.encoder = Encoder.of(model, **options_of_encoder)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """See LangChain's `Embeddings`."""
        return self.encoder.embed_document(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        """See LangChain's `Embeddings`."""
        return self.encoder.embed_query([text])[0].tolist()


class BertkitStore(LangChainStore):
    """A store of texts with any embeddings of LangChain, exact and durable.

    Args:
        store: stores texts and vectors.
        embedding: computes the vectors.
    """

    def __init__(self, store: VectorStore, embedding: Embeddings) -> None:
        self.store, self._embedding = store, embedding

    @classmethod
    def open(cls, folder: str | Path, embedding: Embeddings) -> Self:
        """Open the store in a folder, or create it.

        Raises:
            UsageError: vectors of another model, as far as the embeddings name theirs, or of another size.
        """
        folder = checked_path("the folder of a store", folder)
        check_type("the embedding", embedding, Embeddings)
        if isinstance(embedding, BertkitEmbeddings):
            identity = embedding.encoder.identity
        else:
            name = f"langchain {type(embedding).__name__} {_model_name(embedding)}".rstrip()
            identity = Identity(name, len(embedding.embed_query("size")))
        store = VectorStore.open(folder) if has_store(folder) else VectorStore.create(folder, identity)
        store.identity.check(identity)
        return cls(store, embedding)

    @classmethod
    def from_texts(
        cls, texts: list[str], embedding: Embeddings, metadatas: list[dict] | None = None, **kwargs: Any
    ) -> Self:
        """See LangChain's `VectorStore`; the store is opened or created in ``folder``.

        Raises:
            UsageError: no ``folder``.
        """
        if "folder" not in kwargs:
            raise UsageError("from_texts needs the folder of the store: pass folder=")
        store = cls.open(kwargs.pop("folder"), embedding)
        store.add_texts(texts, metadatas, **kwargs)
        return store

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings that compute the vectors."""
        return self._embedding

    def add_texts(
        self, texts: Iterable[str], metadatas: list[dict] | None = None, *, ids: list[str] | None = None, **kwargs: Any
    ) -> list[str]:
        """See LangChain's `VectorStore`: texts replace those with the same ids.

        Raises:
            UsageError: another number of metadatas or ids than of texts.
        """
        check_several("texts", texts)
        texts = list(texts)
        _check_number("metadatas", metadatas, len(texts))
        pairs = zip(texts, metadatas or [{}] * len(texts), strict=True)
        return self.add_documents([Document(text, metadata=metadata) for text, metadata in pairs], ids=ids, **kwargs)

    def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """See LangChain's `VectorStore`: documents replace those with the same ids.

        Raises:
            UsageError: another number of ids than of documents.
        """
        _check_number("ids", kwargs.get("ids"), len(documents))
        given: Iterable[str | None] = kwargs.get("ids") or [document.id for document in documents]
        ids = [id or str(uuid.uuid4()) for id in given]
        vectors = self._embedding.embed_documents([document.page_content for document in documents])
        latest = {
            id: Record(id, document.page_content, np.asarray(vector, np.float32), metadata=document.metadata)
            for id, document, vector in zip(ids, documents, vectors, strict=True)
        }
        self.store.upsert(latest.values())
        return ids

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """See LangChain's `VectorStore`; without ids, all documents are removed."""
        self.store.delete([record.id for record in self.store.records()] if ids is None else ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """See LangChain's `VectorStore`."""
        check_several("ids", ids)
        return [_document(record) for record in self.store.get(list(dict.fromkeys(ids)))]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Documents and their cosines; ``filter``: as for `bertkit.search.filter_of`.

        Raises:
            UsageError: an unknown option, such as ``filters``, which would leave the search without a filter.
        """
        _refuse_options(kwargs)
        return self._search(self._embedding.embed_query(query), k, filter)

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """See LangChain's `VectorStore`."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """See LangChain's `VectorStore`."""
        where = kwargs.pop("filter", None)
        _refuse_options(kwargs)
        return [document for document, _ in self._search(embedding, k, where)]

    def _select_relevance_score_fn(self) -> Any:
        return lambda score: min(max(score, 0.0), 1.0)  # the cosine

    def _search(self, vector: list[float], k: int, wanted: dict[str, Any] | None) -> list[tuple[Document, float]]:
        if not isinstance(wanted, dict | None):
            raise UsageError(f"filter is {type(wanted).__name__}: expected a dict of metadata values")
        where = filter_of(wanted) if wanted else None
        if where is not None:
            with self.store.snapshot() as snapshot:
                known = snapshot.keys()
            if missing := keys_of(where).difference(known):
                warn(note_of_keys(missing, known))
        hits = self.store.search(np.asarray(vector, np.float32), self.store.identity, k, where)
        return [(_document(hit.record), hit.score) for hit in hits]


def _refuse_options(options: Mapping[str, Any]) -> None:
    if options:
        raise UsageError(f"the search got the unknown option {min(options)!r}: expected k and filter")


class BertkitRetriever(BaseRetriever):
    """Passages of an index by hybrid search, with their location in ``metadata``."""

    index: Any  # an Index, or its folder
    k: int = 4
    filter: dict[str, Any] | None = None  # as for `bertkit.search.filter_of`

    def model_post_init(self, context: Any, /) -> None:
        """Open the index."""
        self.index = index_of(self.index)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        index: Index = self.index
        where = filter_of(self.filter) if self.filter else None
        return [
            Document(one.text, id=one.id, metadata={**one.metadata, **one.location})
            for one in index.search(query, self.k, plain=True, where=where).warn_of_keys()
        ]


class BertkitReranker(BaseDocumentCompressor):
    """Reranks documents with a cross-encoder."""

    model: Any  # a Model, or its name as for `bertkit.load`
    top_n: int = 4

    def model_post_init(self, context: Any, /) -> None:
        """Open the model."""
        self.model = model_of(self.model)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        """See LangChain's `BaseDocumentCompressor`; the metadata gets a ``relevance_score``."""
        model: Model = self.model
        if not documents:
            return []
        ranked = model.rank(query, [document.page_content for document in documents], top_k=self.top_n)
        return [
            Document(
                documents[one.index].page_content,
                id=documents[one.index].id,
                metadata={**documents[one.index].metadata, "relevance_score": one.score},
            )
            for one in ranked
        ]


def _check_number(name: str, values: Sequence[Any] | None, number: int) -> None:
    if values and len(values) != number:  # LangChain takes an empty list for None
        raise UsageError(f"{len(values)} {name} for {number} texts: expected one for each text")


def _model_name(embedding: Embeddings) -> str:
    """The model of embeddings under the names that LangChain's integrations use; "" if there is none."""
    names = (getattr(embedding, name, None) for name in ("model", "model_name", "model_id"))
    return next((name for name in names if isinstance(name, str)), "")


def _document(record: Record) -> Document:
    return Document(record.text, id=record.id, metadata=dict(record.metadata))
