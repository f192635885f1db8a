"""Adapters: LangChain's standard suites, LlamaIndex, Haystack, and an MCP server over standard input and output."""

import asyncio
import json
import os
import sys
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from random_models import our_model

import bertkit
from bertkit.errors import UsageError
from bertkit.search import VectorStore
from bertkit.search.index import Index

pytest.importorskip("langchain_tests", reason="langchain-tests is not installed")
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests, VectorStoreIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from bertkit.integrations import langchain

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when haystack is imported
pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def index(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index.open(tmp_path_factory.mktemp("store") / "index", encoder) as index:
        texts = {"a": "The cat sat.", "b": "A zebra came by.", "c": "Rain fell."}
        index.add([bertkit.Document(id, text, "Notes", metadata={"kind": id}) for id, text in texts.items()])
        later = {"day": date(2026, 1, 31), "tags": ["x", "y"], "n": 3}
        index.add([bertkit.Document(id, "Two are equal.", metadata=later) for id in ("d", "e")])
        yield index


class _OfEncoder:
    @pytest.fixture(autouse=True)
    def _with_encoder(self, encoder: Path) -> None:
        type(self).folder = str(encoder)

    @property
    def embeddings_class(self) -> type:
        return langchain.BertkitEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": self.folder}


class TestLangChainEmbeddings(_OfEncoder, EmbeddingsUnitTests):
    pass


@pytest.mark.asyncio
class TestLangChainEmbeddingsInUse(_OfEncoder, EmbeddingsIntegrationTests):
    pass


@pytest.mark.asyncio
class TestLangChainStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[langchain.BertkitStore]:
        store = langchain.BertkitStore.open(tmp_path / "store", self.get_embeddings())
        yield store
        store.store.close()


def test_langchain_store_of_texts_with_filter_and_scores(encoder: Path, tmp_path: Path) -> None:
    embeddings = langchain.BertkitEmbeddings(str(encoder))
    texts, metadata = ["a joy", "dull", "a joy!"], [{"n": 1}, {"n": 2}, {"n": 2}]
    store = langchain.BertkitStore.from_texts(texts, embeddings, metadata, folder=tmp_path / "store")
    assert isinstance(store.store, VectorStore)
    (document, score), *_ = store.similarity_search_with_score("a joy", k=2)
    assert document.page_content == "a joy" and score == pytest.approx(1)
    for where in ({"n": 2}, {"n": {"$gte": 2}}, {"$not": {"n": {"$in": [1]}}}):
        assert {one.page_content for one in store.similarity_search("a joy", filter=where)} == {"dull", "a joy!"}
    scored = store.similarity_search_with_score("a joy", k=3)
    with warnings.catch_warnings(action="error"):
        relevant = store.similarity_search_with_relevance_scores("a joy", k=3, score_threshold=0.0)
    assert [score for _, score in relevant] == [min(max(score, 0), 1) for _, score in scored]
    scale = store._select_relevance_score_fn()
    assert (scale(0.25), scale(-0.1), scale(1.0000001)) == (0.25, 0, 1)
    with pytest.raises(bertkit.BertkitError, match=r"model '.*' in the store, 'langchain .*' now"):
        langchain.BertkitStore.open(tmp_path / "store", VectorStoreIntegrationTests.get_embeddings())
    store.delete()
    assert store.similarity_search("a joy") == []
    store.store.close()


class _Named(Embeddings):
    """Embeddings with the name of a model."""

    def __init__(self, **names: str) -> None:
        vars(self).update(names)

    def embed_query(self, text: str) -> list[float]:
        return [1.0, float(len(text))]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


@pytest.mark.parametrize("attribute", ["model", "model_name", "model_id"])
def test_langchain_store_refuses_vectors_of_another_model(tmp_path: Path, attribute: str) -> None:
    first, other = (_Named(**{attribute: name}) for name in ("first", "other"))
    langchain.BertkitStore.open(tmp_path / "store", first).store.close()
    langchain.BertkitStore.open(tmp_path / "store", first).store.close()
    with pytest.raises(UsageError, match=r"'langchain _Named first' in the store, 'langchain _Named other' now"):
        langchain.BertkitStore.open(tmp_path / "store", other)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "writer.lock").touch()  # by a process that was killed while it created the store
    langchain.BertkitStore.open(tmp_path / "begun", first).store.close()


def test_langchain_store_says_what_it_expects(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="from_texts needs the folder of the store: pass folder="):
        langchain.BertkitStore.from_texts(["a"], _Named())
    store = langchain.BertkitStore.from_texts(["a"], _Named(), folder=tmp_path / "store")
    with pytest.raises(UsageError, match=r"where.n: unknown operator '\$like', expected one of \$eq, "):
        store.similarity_search("a", filter={"n": {"$like": 1}})
    with pytest.raises(UsageError, match="filter is function: expected a dict of metadata values"):
        store.similarity_search("a", filter=lambda document: True)
    with pytest.warns(UserWarning, match="^no passage has the metadata yaer; the keys are none$"):
        assert store.similarity_search("a", filter={"yaer": 2020}) == []
    for search in (
        store.similarity_search,
        lambda text, **options: store.similarity_search_by_vector([1, 1], **options),
    ):
        with pytest.raises(UsageError, match="the search got the unknown option 'filters': expected k and filter"):
            search("a", filters={"n": 1})
    for several in (store.add_texts, store.get_by_ids):
        with pytest.raises(UsageError, match=r"is a str \('abc'\): expected several, such as \['abc'\]"):
            several("abc")
    for texts, metadatas, ids, message in (
        (["a", "b", "c"], None, ["1", "2"], "2 ids for 3 texts"), (["a"], None, ["1", "2"], "2 ids for 1 texts"),
        (["a", "b"], [{}], None, "1 metadatas for 2 texts"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            store.add_texts(texts, metadatas, ids=ids)
    with pytest.raises(UsageError, match="1 ids for 2 texts"):
        store.add_documents([Document("a"), Document("b")], ids=["1"])
    assert store.add_texts(iter(["b", "c"]), [{"n": 1}, {"n": 2}], ids=["1", "2"]) == ["1", "2"]
    assert store.get_by_ids(["2"])[0].metadata == {"n": 2}
    store.store.close()


def test_langchain_retriever_and_reranker(index: Index, tmp_path: Path) -> None:
    matches = langchain.BertkitRetriever(index=index, k=2).invoke("zebra")
    assert matches[0].page_content == "A zebra came by."
    assert matches[0].metadata == {"kind": "b", "document": "b", "start": 0, "end": 16, "lines": [1, 1]}
    (equal,) = langchain.BertkitRetriever(index=index, filter={"tags": {"$contains": "x"}}).invoke("zebra")
    assert (equal.metadata["document"], equal.metadata["also_in"]) == ("d", ["e"])
    model = our_model("sequence_classification", 3, num_labels=1)
    documents = [Document(text, metadata={"n": number}) for number, text in enumerate(["a joy", "dull", "warm"])]
    ranked = langchain.BertkitReranker(model=model, top_n=2).compress_documents(documents, "joy")
    scores = model.score_pairs("joy", ["a joy", "dull", "warm"])
    assert [one.metadata["n"] for one in ranked] == (-scores).argsort()[:2].tolist()
    assert ranked[0].metadata["relevance_score"] == pytest.approx(float(scores.max()))
    assert langchain.BertkitReranker(model=model).compress_documents([], "joy") == []
    model.save(tmp_path / "reranker")
    for name in (tmp_path / "reranker", str(tmp_path / "reranker")):
        assert langchain.BertkitReranker(model=name, top_n=2).compress_documents(documents, "joy") == ranked
    index.close()
    assert langchain.BertkitRetriever(index=index.store.folder, k=2).invoke("zebra") == matches
    for wrong, message in (
        (lambda: index.encoder.embed_document("abc"), "texts is a str"),
        (lambda: langchain.BertkitStore.open(tmp_path / "s", None), "the embedding is NoneType"),
    ):
        with pytest.raises(UsageError, match=message):
            wrong()
    with pytest.raises(ValueError, match=r"the model is int \(5\): expected a Model"):
        langchain.BertkitReranker(model=5)
    with pytest.raises(ValueError, match=r"the index is int \(5\): expected an Index, or its folder"):
        langchain.BertkitRetriever(index=5)


def test_llama_index(index: Index, encoder: Path) -> None:
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    from llama_index.core.ingestion.pipeline import get_transformation_hash
    from llama_index.core.schema import MetadataMode
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

    from bertkit.integrations import llama_index

    embedding = llama_index.BertkitEmbedding(str(encoder))
    expected = bertkit.load(encoder).embed(["a joy", "dull"], normalize=True)
    assert embedding.get_text_embedding_batch(["a joy", "dull"]) == expected.tolist()
    assert embedding.get_query_embedding("a joy") == expected[0].tolist()
    assert asyncio.run(embedding.aget_query_embedding("a joy")) == expected[0].tolist()
    options = {"query_prompt": "the ", "embed_batch_size": 64}
    other = llama_index.BertkitEmbedding(str(encoder), **options)
    again = llama_index.BertkitEmbedding.from_dict(other.to_dict())
    assert again.get_query_embedding("joy") == other.get_query_embedding("joy") != embedding.get_query_embedding("joy")
    hashes = [get_transformation_hash([], one) for one in (embedding, other, again)]
    assert hashes[0] != hashes[1] == hashes[2] and again.class_name() == "BertkitEmbedding"
    with pytest.raises(ValueError, match="presicion"):
        llama_index.BertkitEmbedding(str(encoder), presicion="int8")
    first, *_ = llama_index.BertkitRetriever(index, 2).retrieve("zebra")
    assert first.node.text == "A zebra came by." and (first.node.start_char_idx, first.node.end_char_idx) == (0, 16)
    assert first.node.get_content(MetadataMode.LLM) == "kind: b\ndocument: b\n\nA zebra came by."
    one = MetadataFilter
    for filters, condition, expected in (
        ([one(key="kind", value="a"), one(key="kind", value="b")], "or", ["a", "b"]),
        ([one(key="kind", value=["a", "b"], operator="in"), one(key="kind", value="a", operator="!=")], "and", ["b"]),
        ([one(key="kind", value="b", operator=">"), one(key="kind", value="d", operator="<")], None, ["c"]),
        ([one(key="kind", value=["a", "b"], operator="nin"), one(key="n", value=3, operator="!=")], "and", ["c"]),
        ([one(key="tags", value=["x", "z"], operator="any")], "and", ["d"]),
        ([one(key="tags", value=["x", "z"], operator="all")], "and", []),
        ([one(key="tags", value="y", operator="contains")], "and", ["d"]),
        ([MetadataFilters(filters=[one(key="n", value=3)], condition="not"), one(key="kind", value="c")], "and", ["c"]),
    ):
        where = MetadataFilters(filters=filters, condition=condition)
        nodes = llama_index.BertkitRetriever(index, 9, where).retrieve("zebra")
        assert sorted(each.node.metadata["document"] for each in nodes) == expected
        assert all(each.node.metadata["also_in"] == ["e"] for each in nodes if expected == ["d"])
    with pytest.warns(UserWarning, match="^no passage has the metadata yaer; the keys are context, day, "):
        where = MetadataFilters(filters=[one(key="yaer", value=1)])
        assert llama_index.BertkitRetriever(index, 9, where).retrieve("zebra") == []
    with pytest.raises(UsageError, match="filter on 'kind': unknown operator 'text_match', expected one of =, !=,"):
        where = MetadataFilters(filters=[one(key="kind", value="a", operator="text_match")])
        llama_index.BertkitRetriever(index, 9, where)


def test_haystack(index: Index, encoder: Path, tmp_path: Path) -> None:
    haystack = pytest.importorskip("haystack", reason="haystack-ai is not installed")
    from bertkit.integrations import haystack as components

    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", components.BertkitRetriever(index))
    model = our_model("sequence_classification", 3, num_labels=1)
    pipeline.add_component("ranker", components.BertkitRanker(model, top_k=2))
    pipeline.connect("retriever.documents", "ranker.documents")
    documents = pipeline.run({"retriever": {"query": "zebra"}, "ranker": {"query": "zebra"}})["ranker"]["documents"]
    assert len(documents) == 2 and documents[0].score >= documents[1].score
    assert components.BertkitRetriever(index).run("zebra", 1)["documents"][0].content == "A zebra came by."
    with pytest.raises(UsageError, match="k=0: expected"):
        components.BertkitRetriever(index).run("zebra", 0)
    for wrong in ([1], {"operator": "AND", "conditions": 5}, {"field": 5, "operator": "==", "value": 1}):
        with pytest.raises(
            UsageError, match=r"a filter is list|expected conditions, got 5|the field of a filter is int"
        ):
            components.BertkitRetriever(index).run("zebra", filters=wrong)

    def field(name: str, operator: str, value: Any) -> dict[str, Any]:
        return {"field": name, "operator": operator, "value": value}

    kinds = field("meta.kind", "in", ["a", "b"])
    for filters, expected in (
        (field("meta.kind", "==", "b"), ["b"]),
        ({"operator": "AND", "conditions": [kinds, field("meta.kind", "!=", "a")]}, ["b"]),
        ({"operator": "OR", "conditions": [kinds, field("kind", ">=", "c")]}, ["a", "b", "c"]),
        ({"operator": "NOT", "conditions": [kinds]}, ["c", "d"]),
        (field("meta.day", ">", "2026-01-30"), ["d"]),
        (field("meta.n", "not in", [3]), ["a", "b", "c"]),
    ):
        documents_of = components.BertkitRetriever(index, filters=filters).run("zebra")["documents"]
        assert documents_of == components.BertkitRetriever(index).run("zebra", filters=filters)["documents"]
        assert sorted(one.meta["document"] for one in documents_of) == expected
    assert documents_of[0].meta["lines"] == [1, 1]
    with pytest.warns(UserWarning, match="^no passage has the metadata yaer; the keys are context, day, "):
        results = components.BertkitRetriever(index, filters=field("meta.yaer", "==", 1)).run("zebra")
    assert results == {"documents": []}
    for filters, message in (
        (field("meta.kind", "~", "b"), "filter on 'kind': unknown operator '~', expected one of =,"),
        ({"field": "kind", "value": 1}, "lacks field, operator or value"),
        ({"operator": "XOR"}, "lacks field, operator"),
    ):
        with pytest.raises(UsageError, match=message):
            components.BertkitRetriever(index, filters=filters).run("zebra")
    with pytest.raises(UsageError, match="top_k=0: expected"):
        components.BertkitRanker(model).run("zebra", documents, 0)
    expected = bertkit.load(encoder).embed("a joy", normalize=True).tolist()
    assert components.BertkitTextEmbedder(str(encoder)).run("a joy")["embedding"] == expected
    embedded = components.BertkitDocumentEmbedder(str(encoder)).run([haystack.Document(content="a joy")])
    assert embedded["documents"][0].embedding == expected
    pipeline = haystack.Pipeline()
    pipeline.add_component("query", components.BertkitTextEmbedder(str(encoder), query_prompt="the "))
    pipeline.add_component("documents", components.BertkitDocumentEmbedder(str(encoder)))
    again = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=["bertkit.integrations.haystack"])
    inputs = {"query": {"text": "joy"}, "documents": {"documents": [haystack.Document(content="a joy")]}}
    assert again.run(inputs) == pipeline.run(inputs)
    with pytest.raises(UsageError, match="cannot be saved: create it with the name of the model"):
        components.BertkitRanker(model).to_dict()
    model.save(tmp_path / "reranker")
    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", components.BertkitRetriever(index, top_k=1, filters=kinds))
    pipeline.add_component("ranker", components.BertkitRanker(str(tmp_path / "reranker"), top_k=2))
    again = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=["bertkit.integrations.haystack"])
    inputs = {"retriever": {"query": "zebra"}, "ranker": {"query": "zebra", "documents": documents}}
    assert again.run(inputs) == pipeline.run(inputs)


def test_mcp_tools(index: Index) -> None:
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    from bertkit.integrations.mcp import mcp_server

    async def use() -> None:
        async with mcp.Client(mcp_server(index)) as client:
            assert client.server_info.version == bertkit.__version__
            assert {tool.name for tool in (await client.list_tools()).tools} == {"search", "get"}
            await check_tools(client)
            for arguments, reason in (
                ({"query": "zebra", "k": 0}, "k=0: expected an int of at least 1"),
                ({"query": " "}, "the query is empty: expected a few words, or a question"),
                ({"query": "zebra", "where": {"kind": {"$like": 1}}}, "where.kind: unknown operator '$like', expected"),
                (
                    {"query": "zebra", "where": {"year": 2020}},
                    "no passage has the metadata year; the keys are context, day, ",
                ),
            ):
                result = await client.call_tool("search", arguments)
                assert result.is_error and reason in result.content[0].text

    asyncio.run(use())


def test_mcp_command_over_standard_input_and_output(index: Index) -> None:
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "bertkit", "mcp", "--store", str(index.store.folder)],
        env={**os.environ},
    )

    async def use() -> None:
        async with mcp.Client(server) as client:
            await check_tools(client)

    asyncio.run(use())


async def check_tools(client: Any) -> None:
    matches = rows_of(await client.call_tool("search", {"query": "zebra", "k": 2}))
    assert len(matches) == 2 and matches[0]["text"] == "A zebra came by." and matches[0]["document"] == "b"
    assert matches[0]["metadata"] == {"kind": "b"} and matches[0]["lines"] == [1, 1]
    (equal,) = rows_of(await client.call_tool("search", {"query": "zebra", "where": {"n": {"$lt": 4}}}))
    assert (equal["document"], equal["also_in"]) == ("d", ["e"])
    for match in matches:
        del match["score"]
        match.pop("also_in", None)  # which documents have the same passage is known from a search
        assert rows_of(await client.call_tool("get", {"ids": [match["id"]]})) == [match]


def rows_of(result: Any) -> list[dict[str, Any]]:
    assert not result.is_error
    return [json.loads(content.text) for content in result.content]
