"""Clients of other projects get the results of the library: Haystack's ranker, re-ranking as of Cohere, LangChain."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from examples_of_tasks import model_of
from served import Server, serving

import bertkit
from bertkit.tasks import Regression

pytestmark = pytest.mark.full

QUERY = "one two"
TEXTS = ["a cat sat", "the dog ran and ran", "blue", "red mat", "one two three"]


@pytest.fixture(scope="module")
def ranker() -> bertkit.Model:
    return model_of(Regression())


@pytest.fixture(scope="module")
def server(ranker: bertkit.Model, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models") / "ranker"
    ranker.save(folder)
    with serving("--model", encoder, "--model", folder) as running:
        yield running


@pytest.fixture(scope="module")
def expected(ranker: bertkit.Model) -> list[tuple[int, float]]:
    """Index and sigmoid of the score of each text, best first."""
    logits = np.array([each.score for each in ranker.predict([(QUERY, text) for text in TEXTS])], np.float64)
    return [(int(index), float(1 / (1 + np.exp(-logits[index])))) for index in np.argsort(-logits, kind="stable")]


def test_haystack_ranker(server: Server, expected: list[tuple[int, float]]) -> None:
    haystack = pytest.importorskip("haystack", reason="Haystack is not installed: pip install haystack-ai")
    rankers = pytest.importorskip(
        "haystack_integrations.components.rankers.huggingface_api",
        reason="Haystack's clients of Hugging Face are not installed: pip install huggingface-api-haystack",
    )
    ranker = rankers.HuggingFaceTEIRanker(url=server.url, top_k=4)
    documents = [haystack.Document(content=text) for text in TEXTS]
    ranked = ranker.run(query=QUERY, documents=documents)["documents"]
    assert [TEXTS.index(one.content) for one in ranked] == [index for index, _ in expected[:4]]
    assert [one.score for one in ranked] == pytest.approx([score for _, score in expected[:4]], abs=1e-6)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_a_client_of_cohere_and_jina(server: Server, expected: list[tuple[int, float]], path: str) -> None:
    """Their clients post this body with a bearer token and read ``results``."""
    body = {"model": "ranker", "query": QUERY, "documents": TEXTS, "top_n": 3, "max_tokens_per_doc": 4_096}
    headers = {"content-type": "application/json", "authorization": "Bearer key", "x-client-name": "test"}
    with urllib.request.urlopen(urllib.request.Request(server.url + path, json.dumps(body).encode(), headers)) as reply:
        answer = json.load(reply)
    assert [one["index"] for one in answer["results"]] == [index for index, _ in expected[:3]]
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores == pytest.approx([score for _, score in expected[:3]], abs=1e-6)
    assert all(set(one) == {"index", "relevance_score"} for one in answer["results"])
    assert answer["usage"]["total_tokens"] > 0 and answer["meta"]["billed_units"]["search_units"] == 1


@pytest.mark.cpu_only
def test_langchain_embeddings_with_the_setting(server: Server, encoder: Path) -> None:
    library = pytest.importorskip("langchain_openai", reason="not installed: pip install langchain-openai")
    client = library.OpenAIEmbeddings(
        model=encoder.name, base_url=server.url + "/v1", api_key="none", check_embedding_ctx_length=False
    )
    ours = bertkit.load(encoder, device="cpu").embed(TEXTS, normalize=True)
    vectors = np.array(client.embed_documents(TEXTS), np.float32)
    assert (vectors == ours).all() and np.float32(client.embed_query(TEXTS[0])).tolist() == ours[0].tolist()


RERANKING = {
    "LiteLLM, cohere/": ("/v2/rerank", {"top_n": 2, "return_documents": True}),
    "LiteLLM, cohere/ with rank fields": (
        "/v1/rerank",
        {"rank_fields": ["text"], "return_documents": True, "max_chunks_per_doc": 3},
    ),
    "LiteLLM, jina_ai/ and litellm_proxy/": ("/v1/rerank", {"top_n": 2, "return_documents": True}),
    "LiteLLM, hosted_vllm/": ("/rerank", {"top_n": 2, "return_documents": True}),
    "LlamaIndex, CohereRerank": ("/v2/rerank", {"top_n": 2}),
}
"""Bodies as litellm 1.110.2 and llama-index-core 0.14.25 send them, besides model, query and documents."""


@pytest.mark.parametrize("client", RERANKING)
def test_ranks_for_the_bodies_of_clients(server: Server, expected: list[tuple[int, float]], client: str) -> None:
    path, options = RERANKING[client]
    documents = [{"text": text, "title": "x"} for text in TEXTS] if "rank_fields" in options else TEXTS
    rows = server.post(path, {"model": "ranker", "query": QUERY, "documents": documents} | options)["results"]
    assert [row["index"] for row in rows] == [index for index, _ in expected][: options.get("top_n")]
    np.testing.assert_allclose([row["relevance_score"] for row in rows], [p for _, p in expected][: len(rows)], 1e-6)
    texts = [row.get("document", {}).get("text") for row in rows]
    assert texts == [TEXTS[row["index"]] if options.get("return_documents") else None for row in rows]


def test_ranks_in_the_form_of_text_embeddings_inference(server: Server, expected: list[tuple[int, float]]) -> None:
    body = {"query": QUERY, "texts": TEXTS}
    of_litellm = {"raw_scores": False, "truncation_direction": "Right", "top_n": 2, "return_text": True}
    rows, first = server.post("/rerank", body), server.post("/rerank", body | of_litellm)
    assert [row["index"] for row in rows] == [index for index, _ in expected]
    assert first == [row | {"text": TEXTS[row["index"]]} for row in rows[:2]]
