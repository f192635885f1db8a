"""/search over a store: equal to the library, for concurrent clients, during writes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from served import Server, serving

import bertkit
import bertkit.serving.server as server_module
from bertkit.cli.models import EXACT
from bertkit.cli.serve import _opened
from bertkit.search import Equal

pytestmark = pytest.mark.full

WORDS = "the of and sat un run walk talk blue red green one two three four cat dog mat".split()


def document(number: int) -> bertkit.Document:
    text = " ".join(np.random.default_rng(number).choice(WORDS, 9)) + "."
    return bertkit.Document(
        str(number), text, metadata={"half": number % 2, "number": number, "tags": ["even"] * (number % 2 == 0)}
    )


@pytest.fixture(scope="module")
def folder(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "store"
    with bertkit.Index.open(folder, encoder) as index:
        index.add([document(number) for number in range(50)])
    return folder


@pytest.fixture(scope="module")
def server(folder: Path):
    with serving("--store", folder) as it:
        yield it


def documents(server: Server, **body) -> list[tuple[str, float]]:
    return [(one["document"], one["score"]) for one in server.post("/search", body)["results"]]


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_equals_the_library_for_many_clients_at_once(server: Server, folder: Path, mode: str) -> None:
    queries = [document(number).text for number in range(100, 124)]
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda query: documents(server, query=query, k=7, mode=mode), queries))
    with bertkit.Index.open(folder) as index:
        for query, answer in zip(queries, answers, strict=True):
            expected = index.search(query, 7, mode=mode)
            assert answer == [(result.document_id, pytest.approx(result.score)) for result in expected]


def test_metadata_filter_selects_passages(server: Server, folder: Path) -> None:
    answer = server.post("/search", {"query": "a cat", "k": 3, "where": {"half": 1}})["results"]
    assert len(answer) == 3
    assert all(one["metadata"]["half"] == 1 and one["file_state"] == "current" for one in answer)
    first = answer[0]
    assert document(int(first["document"])).text[first["start"] : first["end"]] == first["text"]
    with bertkit.Index.open(folder) as index:
        expected = index.search("a cat", 3, where=Equal("half", 1))
    assert [one["document"] for one in answer] == [one.document_id for one in expected]


def test_filters_are_those_of_the_library(server: Server, folder: Path) -> None:
    body = {"query": "a cat", "k": 50, "where": {"number": {"$gte": 7, "$lt": 20}, "tags": {"$contains": "even"}}}
    answer = server.post("/search", body)
    assert sorted(int(one["document"]) for one in answer["results"]) == list(range(8, 20, 2))
    assert answer["missing_keys"] == [] and answer["results"][0]["lines"] == [1, 1]
    for one in answer["results"]:
        assert {one["text"][start:end] for start, end in one["matches"]} <= {"cat"}
    assert any(one["matches"] for one in answer["results"])
    answer = server.post("/search", {"query": "a cat", "where": {"yaer": 1}})
    assert (answer["results"], answer["missing_keys"]) == ([], ["yaer"])


def test_long_queries_are_counted_in_headers(server: Server) -> None:
    _, _, headers = server.request("/search", {"query": "cat " * 30, "k": 1})
    assert (headers["x-inputs-cut"], headers["x-tokens-cut"]) == ("1", "8")
    assert "x-inputs-cut" not in server.request("/search", {"query": "cat", "k": 1})[2]


def test_model_of_the_store_is_served_and_described(server: Server, encoder: Path) -> None:
    info = server.request("/info")[1]
    assert info["store"] == {"model": str(encoder), "num_passages": 50} and info["model_id"] == encoder.name
    assert len(server.post("/embed", {"inputs": "a cat"})[0]) == 20


def test_records_of_another_process_are_searched(encoder: Path, tmp_path: Path) -> None:
    with bertkit.Index.open(tmp_path / "store", encoder) as index:
        index.add([document(1)])
    with serving("--store", tmp_path / "store") as server:
        assert len(documents(server, query="cat", k=9)) == 1
        with bertkit.Index.open(tmp_path / "store", encoder) as index:
            index.add([document(2), document(3)])
        assert len(documents(server, query="cat", k=9)) == 3


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"query": " "}, 422, "the query is empty"),
        ({"query": "a", "k": 0}, 422, "k is 0: expected greater than or equal to 1"),
        ({"query": "a", "mode": "best"}, 422, "mode is 'best': expected 'hybrid'"),
        ({"query": "a", "where": {"kind": [1]}}, 422, "where.kind"),
        (
            {"query": "a", "where": {"half": {"$like": 1}}},
            422,
            "where.half: unknown operator '$like', expected one of $eq",
        ),
        ({"query": "a", "where": [1]}, 422, "where"),
        ({"query": "a", "answer": True}, 424, "no question answering model is served here"),
        ({"query": "a", "rerank": True}, 424, "no re-ranker model is served here"),
    ],
)
def test_bad_bodies_have_one_clear_sentence(server: Server, body: dict, status: int, says: str) -> None:
    answer = server.request("/search", body)
    assert answer[0] == status and says in answer[1]["error"]


def test_search_without_store_raises(encoder: Path) -> None:
    with serving("--model", encoder) as server:
        assert server.request("/search", {"query": "a"})[:1] == (424,)
        assert "--store" in server.request("/search", {"query": "a"})[1]["error"]


def test_a_search_is_part_of_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    for name in ("exempt_from_collection", "unmap_pages_of_unused_files", "return_free_memory"):
        monkeypatch.setattr(server_module, name, lambda: None)
    models = SimpleNamespace(all={}, index=SimpleNamespace(search=lambda query, k: queries.append(query)))
    server_module._warm_up(models, None)  # type: ignore[arg-type]
    assert len(queries) == 1


def test_model_of_the_store_is_opened_once(tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").symlink_to(encoder)
    with bertkit.Index.open("store", "model") as index:
        assert _opened("model", index, EXACT, print) is index.encoder.model
        assert _opened(str(encoder), index, EXACT, print) is not index.encoder.model
