"""LlamaIndex: an embedding model, and a retriever of an index."""

from pathlib import Path
from typing import Any

from bertkit.errors import DependencyError, check_type, checked_path
from bertkit.integrations.given import index_of
from bertkit.search.encoder import Encoder
from bertkit.search.filter_syntax import comparison
from bertkit.search.filters import And, Contains, Filter, Not, Or
from bertkit.search.index import Index

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
except ImportError:
    raise DependencyError("this adapter needs LlamaIndex: pip install 'bertkit[llama-index]'") from None


class BertkitEmbedding(BaseEmbedding):
    """Embeddings of a model, with its prompts of queries and documents.

    Args:
        model_name: a folder, a hub name, or the import name of a model package.
        precision, device, query_prompt, document_prompt, no_prompt: see `bertkit.search.encoder.Encoder.of`.
        options: those of `BaseEmbedding`: embed_batch_size, callback_manager, ...
    """

    model_config = ConfigDict(extra="forbid")

    precision: str = "float32"
    device: str = "auto"
    query_prompt: str | None = None
    document_prompt: str | None = None
    no_prompt: bool = False
    _encoder: Encoder = PrivateAttr()

    def __init__(self, model_name: str | Path = "all-MiniLM-L6-v2", **options: Any) -> None:
        super().__init__(model_name=str(checked_path("the model's name", model_name)), **options)
        self._encoder = Encoder.of(
            self.model_name,
            precision=self.precision,
            device=self.device,
            query_prompt=self.query_prompt,
            document_prompt=self.document_prompt,
            no_prompt=self.no_prompt,
            similarity="cosine",
        )

    @classmethod
    def class_name(cls) -> str:
        """See LlamaIndex's `BaseComponent`."""
        return "BertkitEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._encoder.embed_query([query])[0].tolist()

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._encoder.embed_document(texts).tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class BertkitRetriever(BaseRetriever):
    """Passages of an index, given as an object or by its folder, by hybrid search, with their location in ``metadata``,
    which prompts omit.

    Raises:
        UsageError: filters with an operator that bertkit lacks: a text match, or "is_empty".
    """

    def __init__(self, index: Index | str | Path, k: int = 4, filters: MetadataFilters | None = None) -> None:
        super().__init__()
        self._index, self._k, self._where = index_of(index), k, None if filters is None else _filter(filters)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = []
        results = self._index.search(query_bundle.query_str, self._k, plain=True, where=self._where)
        for one in results.warn_of_keys():
            node = TextNode(
                id_=one.id,
                text=one.text,
                metadata={**one.metadata, **one.location},
                excluded_llm_metadata_keys=["start", "end", "lines", "also_in"],
                start_char_idx=one.start,
                end_char_idx=one.end,
            )
            nodes.append(NodeWithScore(node=node, score=one.score))
        return nodes


def _filter(given: Any) -> Filter:
    """A MetadataFilters or MetadataFilter as a filter of bertkit."""
    if isinstance(given, MetadataFilters):
        parts = tuple(map(_filter, given.filters))
        condition = given.condition or "and"
        return Or(parts) if condition == "or" else Not(And(parts)) if condition == "not" else And(parts)
    check_type("a filter", given, MetadataFilter)
    operator = {"==": "=", "nin": "not in"}.get(given.operator.value, given.operator.value)
    if operator in ("any", "all") and isinstance(given.value, list):
        items = tuple(Contains(given.key, one) for one in given.value)
        return Or(items) if operator == "any" else And(items)
    return comparison(given.key, operator, given.value)
