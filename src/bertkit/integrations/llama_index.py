"""LlamaIndex: an embedding model, and a retriever of an index."""

from typing import Any

from bertkit.errors import DependencyError
from bertkit.search.encoder import Encoder
from bertkit.search.index import Index

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
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

    def __init__(self, model_name: str = "all-MiniLM-L6-v2", **options: Any) -> None:
        super().__init__(model_name=model_name, **options)
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
    """Passages of an index by hybrid search, with the offsets in their documents."""

    def __init__(self, index: Index, k: int = 4) -> None:
        super().__init__()
        self._index, self._k = index, k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = []
        for one in self._index.search(query_bundle.query_str, self._k, plain=True):
            metadata = {**one.metadata, "document": one.document_id}
            node = TextNode(
                id_=one.id, text=one.text, metadata=metadata, start_char_idx=one.start, end_char_idx=one.end
            )
            nodes.append(NodeWithScore(node=node, score=one.score))
        return nodes
