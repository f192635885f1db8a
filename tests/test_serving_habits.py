"""What clients, proxies and pages in browsers expect of a server: names, slashes, prefixes, origins and errors."""

import base64
from pathlib import Path

import numpy as np
import openai
import pytest
from served import Server, serving

from bertkit.cli import run
from bertkit.cli.serve import _names, _origin, _root_path
from bertkit.errors import UsageError

ORIGIN = "https://app.example"


@pytest.fixture(scope="module")
def folders(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The folders of two models whose last parts are equal."""
    root = tmp_path_factory.mktemp("models")
    paths = [root / name / "model" for name in ("one", "two")]
    for folder in paths:
        folder.parent.mkdir()
        folder.symlink_to(encoder)
    return [f"{root}/one/model/", f"{root}/two/model"]


@pytest.fixture(scope="module")
def server(encoder: Path):
    arguments = ["--served-model-name", "text-embedding-3-small", "--served-model-name", "other"]
    with serving("--model", encoder, *arguments, "--cors-origin", ORIGIN, "--root-path", "/bert/") as running:
        yield running


@pytest.mark.parametrize(
    ("models", "given", "names", "others"),
    [
        (["all-MiniLM-L6-v2"], [], ["all-MiniLM-L6-v2"], {"sentence-transformers/all-MiniLM-L6-v2"}),
        (["intfloat/e5-small-v2"], [], ["e5-small-v2"], {"intfloat/e5-small-v2"}),
        (["a/e5", "b/e5", "c"], [], ["a/e5", "b/e5", "c"], set()),
        (["intfloat/e5-small-v2"], ["e", "f"], ["e"], {"intfloat/e5-small-v2", "f"}),
        (["a/e5", "b/e5"], ["e", "f"], ["e", "f"], {"a/e5", "b/e5"}),
    ],
)
def test_a_model_has_its_name_and_those_that_its_clients_know(models, given, names, others):
    by_name, aliases = _names(models, given)
    assert list(by_name) == names and list(by_name.values()) == models
    assert set(aliases) - set(models) <= others <= set(aliases)
    assert all(by_name[aliases[model]] == model for model in models)


@pytest.mark.parametrize(
    ("models", "given", "says"),
    [
        (["a", "a"], [], "--model a: given twice"),
        (["a", "b"], ["x"], "1 names for 2 models"),
        (["a", "b"], ["x", "x"], "--served-model-name x: given twice"),
    ],
)
def test_names_that_do_not_fit_the_models_are_refused(models, given, says):
    with pytest.raises(UsageError, match=says):
        _names(models, given)


@pytest.mark.parametrize(
    ("check", "given"), [(_origin, "app.example"), (_origin, ORIGIN + "/page"), (_root_path, "bert")]
)
def test_origins_and_prefixes_that_never_match_are_refused(check, given):
    with pytest.raises(UsageError, match="expected"):
        check(given)


@pytest.mark.full
def test_two_models_with_the_same_last_part_are_served_by_their_whole_names(folders):
    with serving(*[word for folder in folders for word in ("--model", folder)]) as server:
        assert [each["id"] for each in server.request("/v1/models")[1]["data"]] == folders
        vectors = [server.post("/embed", {"inputs": "a cat", "model": folder}) for folder in folders]
        assert vectors[0] == vectors[1] and server.request("/v1/models/" + folders[1])[1]["id"] == folders[1]
        assert server.request("/embed", {"inputs": "a cat", "model": "model"})[0] == 404


def test_a_model_is_served_by_given_names_and_that_of_its_start(server: Server, encoder: Path):
    assert [each["id"] for each in server.request("/v1/models")[1]["data"]] == ["text-embedding-3-small"]
    answers = [
        server.post("/v1/embeddings", {"input": "a cat", "model": name})
        for name in ("text-embedding-3-small", "other", str(encoder))
    ]
    assert answers[0]["data"] == answers[1]["data"] == answers[2]["data"] and answers[1]["model"] == "other"
    assert server.request("/v1/embeddings", {"input": "a", "model": "model"})[0] == 404


@pytest.mark.parametrize("prefix", ["", "/bert"])
def test_paths_have_a_prefix_or_a_slash_at_their_end_without_a_redirect(server: Server, prefix):
    body = {"inputs": "a cat"}
    expected = server.post("/embed", body)
    for path in ("/embed", "/embed/", "/models/other/"):
        assert server.request(prefix + path, body)[:2] == (200, expected), path
    for path in ("/health", "/healthz", "/healthz/", "/ready/", "/v1/models/", "/v1/models/other/", "", "/"):
        assert server.request(prefix + path)[0] == 200, path
    assert server.request(prefix + "/no-such-path/")[0] == 404
    assert server.request(prefix + "/openapi.json")[1]["servers"] == [{"url": "/bert"}]


def test_errors_of_embeddings_have_the_form_of_openai_with_and_without_a_version(server: Server):
    for base in ("/v1", ""):
        client = openai.OpenAI(base_url=server.url + base, api_key="none", max_retries=0)
        with pytest.raises(openai.NotFoundError, match="'nothing' is not served here") as refused:
            client.embeddings.create(model="nothing", input="a")
        assert refused.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match=r"`input\[2\]` cannot be empty: each of the 3 inputs"):
            client.embeddings.create(model="other", input=["a", "b", ""])


EMBEDDINGS = {
    "LiteLLM, openai/": ("/v1/embeddings", {"model": "other", "input": ["a cat", "a dog"]}),
    "LiteLLM, openai/ with all it takes": (
        "/v1/embeddings",
        {"model": "other", "input": ["a cat", "a dog"], "user": "me", "dimensions": 20, "encoding_format": "float"},
    ),
    "LiteLLM, litellm_proxy/ and infinity/": ("/embeddings", {"model": "other", "input": ["a cat", "a dog"]}),
    "LiteLLM, nvidia_nim/": (
        "/v1/embeddings",
        {"model": "other", "input": ["a cat", "a dog"], "encoding_format": "float", "input_type": "query"},
    ),
    "LiteLLM, huggingface/": ("/", {"inputs": ["a cat", "a dog"]}),
    "LlamaIndex, OpenAILikeEmbedding": (
        "/v1/embeddings",
        {"model": "other", "input": ["a cat", "a dog"], "encoding_format": "base64"},
    ),
    "LlamaIndex, TextEmbeddingsInference": ("/embed", {"inputs": ["a cat", "a dog"], "truncate": True}),
    "LlamaIndex, TextEmbeddingsInference of whole texts": (
        "/embed",
        {"inputs": ["a cat", "a dog"], "truncate": False},
    ),
}
"""Bodies as litellm 1.110.2 and llama-index-core 0.14.25 send them."""


@pytest.mark.parametrize("client", EMBEDDINGS)
def test_vectors_for_the_bodies_of_clients(server: Server, client: str):
    path, body = EMBEDDINGS[client]
    answer = server.post(path, body)
    vectors = [row["embedding"] for row in answer["data"]] if "data" in answer else answer
    if isinstance(vectors[0], str):
        vectors = [np.frombuffer(base64.b64decode(row), "<f4") for row in vectors]
    expected = server.post("/embed", {"inputs": ["a cat", "a dog"]})
    np.testing.assert_array_equal(np.array(vectors, np.float32), np.array(expected, np.float32))


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/embed", {"inputs": ["a", "", "b"]}, "`inputs[1]` cannot be empty"),
        ("/embed", {"inputs": ""}, "`inputs` cannot be empty"),
        ("/embed", {"inputs": ["a", 3, "b"]}, "one or several; element 1 of 3 is a number"),
        ("/embed", {"inputs": ["a", "b", None]}, "one or several; element 2 of 3 is null"),
        ("/embed", {"inputs": [[5], [6], "a", {}]}, "one or several; element 2 of 4 is a string"),
        ("/tokenize", {"inputs": ["a", ["b"]]}, "a list of texts; element 1 of 2 is an array"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b", ""]}}, "`inputs.sentences[1]` cannot"),
        ("/similarity", {"inputs": {"source_sentence": "", "sentences": ["b"]}}, "`inputs.source_sentence` cannot be"),
        ("/embed", {"inputs": ["a", "cat " * 40], "truncate": False}, "text 1 "),
    ],
)  # fmt: skip
def test_the_text_of_a_list_that_is_wrong_is_named(server: Server, path, body, says):
    status, answer, _ = server.request(path, body)
    assert status in (400, 422) and says in answer["error"], answer


def test_pages_of_given_origins_may_send_requests(server: Server):
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    for origin, is_allowed in ((ORIGIN, True), ("https://evil.example", False)):
        status, _, headers = server.request("/embed", method="OPTIONS", headers={"origin": origin} | asks)
        assert (status, headers.get("access-control-allow-origin")) == ((200, ORIGIN) if is_allowed else (400, None))
        for body, expected in (({"inputs": "a"}, 200), ({"inputs": ""}, 400)):
            status, _, headers = server.request("/embed", body, headers={"origin": origin})
            allowed = headers.get("access-control-allow-origin")
            assert (status, allowed) == (expected, ORIGIN if is_allowed else None)


@pytest.mark.full
def test_without_the_option_no_origin_is_allowed_and_no_prefix_is_known(encoder: Path):
    with serving("--model", encoder) as server:
        status, _, headers = server.request("/embed", {"inputs": "a"}, headers={"origin": ORIGIN})
        assert status == 200 and "access-control-allow-origin" not in headers
        assert server.request("/bert/embed", {"inputs": "a"})[0] == 404
        assert "servers" not in server.request("/openapi.json")[1]


def test_a_wrong_origin_is_an_error_of_usage(capsys):
    assert run(["serve", "--cors-origin", "app.example"]) == 2
    assert "--cors-origin app.example: expected * or an origin" in capsys.readouterr().err
