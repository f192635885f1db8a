"""/generate: the tokens of the library, in the shapes of text-generation-inference."""

import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from served import Server, serving
from test_generation import MAKERS, gpt2

from bertkit.generation import GenerationSettings, load_generator
from bertkit.serving.generation import Continuation
from bertkit.serving.served_models import ServedGenerator

pytestmark = pytest.mark.full

NAMES = list(MAKERS)
TEXTS = ["the cat sat on the mat", "the dog", "one two three four walk talk"]
KINDS = {name: "text-generation" if name in ("gpt2", "bert") else "text2text-generation" for name in NAMES}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("generators")
    for number, name in enumerate(NAMES):
        MAKERS[name](folder / name, number)
    return {name: folder / name for name in NAMES}


@pytest.fixture(scope="module")
def server(models: dict, encoder):
    with serving("--model", encoder, *[word for path in models.values() for word in ("--model", path)]) as it:
        yield it


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 3, "length_penalty": 2.0},
        {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "seed": 5},
    ],
    ids=["greedy", "beams", "sampled"],
)
def test_equals_the_library_for_many_clients_at_once(server: Server, models: dict, name: str, options: dict) -> None:
    def ask(text: str) -> dict:
        parameters = options | {"max_new_tokens": 11, "details": True, "do_sample": "temperature" in options}
        return server.post("/generate", {"model": name, "inputs": text, "parameters": parameters})

    with ThreadPoolExecutor(3) as clients:
        answers = list(clients.map(ask, TEXTS))
    ours, settings = load_generator(models[name]), GenerationSettings(max_new_tokens=11, **options)
    for text, answer in zip(TEXTS, answers, strict=True):
        (made,) = ours.generate_ids(ours.encode([text]), settings)
        details = answer["details"]
        assert [token["id"] for token in details["tokens"]] == made.ids
        assert answer["generated_text"] == ours.generate([text], settings)[0].text
        assert details["generated_tokens"] == len(made.ids) and details["prefill"] == []
        assert details["finish_reason"] == ("eos_token" if made.has_ended else "length")
        assert details["seed"] == options.get("seed")
        assert [token["logprob"] for token in details["tokens"]] == pytest.approx(made.log_probs, abs=1e-5)
        if not options:
            assert sum(made.log_probs) == pytest.approx(made.score, abs=1e-4)
        if name == "gpt2":
            assert (
                "".join(token["text"] for token in details["tokens"] if not token["special"])
                == (answer["generated_text"])
            )


def test_likeliest_tokens_the_prompt_and_an_end(server: Server, models: dict) -> None:
    whole = server.post("/generate", {"model": "gpt2", "inputs": "the cat", "parameters": {"max_new_tokens": 8}})
    assert set(whole) == {"generated_text"}
    parameters = {"max_new_tokens": 8, "details": True, "top_n_tokens": 3, "return_full_text": True}
    more = server.post("/generate", {"model": "gpt2", "inputs": "the cat", "parameters": parameters})
    assert more["generated_text"] == "the cat" + whole["generated_text"]
    for step, token in zip(more["details"]["top_tokens"], more["details"]["tokens"], strict=True):
        assert step[0] == token | {"logprob": pytest.approx(token["logprob"], abs=1e-6)}
        assert step[0]["logprob"] >= step[1]["logprob"] >= step[2]["logprob"]
    stop = whole["generated_text"][2:4]
    parameters = {"max_new_tokens": 8, "details": True, "stop": ["never", stop]}
    stopped = server.post("/generate", {"model": "gpt2", "inputs": "the cat", "parameters": parameters})
    assert stopped["details"]["finish_reason"] == "stop_sequence" and stop in stopped["generated_text"]
    assert whole["generated_text"].startswith(stopped["generated_text"])
    assert stop not in "".join(token["text"] for token in stopped["details"]["tokens"][:-1])
    (made,) = load_generator(models["gpt2"]).generate(["the cat"], GenerationSettings(8, stop=(stop,)))
    assert made.text == stopped["generated_text"] and not made.has_ended


def test_a_seed_is_drawn_and_reported(server: Server) -> None:
    parameters = {"max_new_tokens": 9, "do_sample": True, "temperature": 3.0, "details": True}
    body = {"model": "gpt2", "inputs": "the cat", "parameters": parameters}
    one, two = server.post("/generate", body), server.post("/generate", body)
    assert one["details"]["seed"] != two["details"]["seed"]
    again = server.post("/generate", body | {"parameters": parameters | {"seed": one["details"]["seed"]}})
    assert again == one


def test_inference_client_and_descriptions(server: Server, models: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it would refuse this machine, too
    settings = GenerationSettings(max_new_tokens=7)
    client = InferenceClient(model=f"{server.url}/models/gpt2", token="none")
    (expected,) = load_generator(models["gpt2"]).generate(["the cat"], settings)
    assert client.text_generation("the cat", max_new_tokens=7) == expected.text
    output = client.text_generation("the cat", max_new_tokens=7, details=True)
    assert (output.generated_text, output.details.generated_tokens) == (expected.text, 7)
    translator = InferenceClient(model=f"{server.url}/models/marian", token="none")
    (expected,) = load_generator(models["marian"]).generate(["the cat"], GenerationSettings(max_new_tokens=100))
    assert translator.translation("the cat").translation_text == expected.text
    assert translator.summarization("the cat").summary_text == expected.text
    (short,) = load_generator(models["marian"]).generate(["the cat"], GenerationSettings(max_new_tokens=3))
    given = {"generate_parameters": {"max_new_tokens": 3}, "clean_up_tokenization_spaces": False}
    assert translator.translation("the cat", **given).translation_text == short.text
    for options in ({"generate_parameters": {"no_repeat_ngram_size": 2}}, {"src_lang": "en", "tgt_lang": "fr"}):
        with pytest.raises(HfHubHTTPError) as refused:
            translator.translation("the cat", **options)
        assert refused.value.response.status_code == 400 and "omit it" in refused.value.response.text
    kinds = {each["model_id"]: each["kinds"] for each in server.request("/info")[1]["models"]}
    assert {name: kinds[name] for name in NAMES} == {name: [kind] for name, kind in KINDS.items()}
    document = server.request("/openapi.json")[1]
    assert document["paths"]["/generate"]["post"]["requestBody"]["required"]
    assert server.request("/v1/models")[1]["data"][1]["id"] == "gpt2"
    assert "text-generation" in server.request("/")[1]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"inputs": "a", "model": "model"}, 400, "model is not a generative model: model is for feature-extraction"),
        ({"inputs": "a", "model": "none"}, 404, "not served here"),
        ({"inputs": ""}, 400, "cannot be empty"),
        ({"inputs": "a " * 500}, 422, "prompt 0 has"),
        ({"inputs": "a" * 100_000}, 422, "characters"),
        ({"inputs": "a", "stream": True}, 400, "does not stream"),
        ({"inputs": "a", "parameters": {"max_new_tokens": 0}}, 422, "max_new_tokens"),
        ({"inputs": "a", "parameters": {"temperature": 0}}, 422, "temperature"),
        ({"inputs": "a", "parameters": {"top_p": 1.5}}, 422, "top_p"),
        ({"inputs": "a", "parameters": {"stop": [""]}}, 422, "stop"),
        ({"inputs": "a", "parameters": {"seed": 5}}, 422, "seed=5 requires sampling"),
        ({"inputs": "a", "parameters": {"num_beams": 2, "do_sample": True}}, 422, "beam search does not sample"),
        ({"inputs": "a", "parameters": {"num_beams": 2, "stop": ["b"]}}, 422, "stop is not supported for beams"),
        ({"inputs": "a", "parameters": {"repetition_penalty": 1.2}}, 400, "repetition_penalty is 1.2"),
        ({"inputs": "a", "parameters": {"best_of": 2}}, 400, "best_of is 2"),
        ({"inputs": "a", "parameters": {"no_repeat_ngram_size": 2}}, 400, "no_repeat_ngram_size is 2"),
        ({"inputs": "a", "parameters": {"max_tokens": 2}}, 400, "max_tokens is 2"),
    ],
    ids=str,
)
def test_bad_bodies_have_one_clear_sentence(server: Server, body: dict, status: int, says: str) -> None:
    received, answer, _ = server.request("/generate", body)
    assert received == status and says in answer["error"], answer


def test_a_server_without_a_generating_model_says_so(encoder) -> None:
    with serving("--model", encoder) as server:
        status, answer, _ = server.request("/generate", {"inputs": "a"})
    assert status == 400 and "no generative model is served here" in answer["error"]


def test_tokenize_without_a_model_chooses_one_that_can(models: dict, encoder) -> None:
    with serving("--model", models["gpt2"], "--model", encoder) as server:
        (tokens,) = server.post("/tokenize", {"inputs": "the cat"})
        assert [token["text"] for token in tokens[1:-1]] == ["the", "cat"]
        status, answer, _ = server.request("/tokenize", {"inputs": "the cat", "model": "gpt2"})
        assert status == 422 and "no special tokens" in answer["error"]


def test_steps_are_the_tokens_of_the_library_and_their_number_is_known(tmp_path) -> None:
    gpt2(tmp_path / "model")
    served = ServedGenerator("model", "float32", load_generator(tmp_path / "model"))
    settings = GenerationSettings(max_new_tokens=6, num_beams=2)
    continuation, sizes, made = Continuation(served, "the cat", settings), [], None
    while made is None:
        sizes.append(continuation.num_tokens_left())
        made = continuation.step()
    (expected,) = served.generator.generate_ids(served.generator.encode(["the cat"]), settings)
    assert made.ids == expected.ids and made.score == expected.score
    assert sizes[0] > 12 and sizes == sorted(sizes, reverse=True)


def test_a_client_that_leaves_ends_its_text(models: dict) -> None:
    with serving("--model", models["gpt2"]) as server:
        text, parameters = "the cat", {"max_new_tokens": 100, "num_beams": 16}
        body = json.dumps({"inputs": text, "parameters": parameters}).encode()
        began = time.monotonic()
        for _ in range(20):
            lines = ["POST /generate HTTP/1.1", "host: localhost", "content-type: application/json"]
            head = "\r\n".join([*lines, f"content-length: {len(body)}"])
            with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
                connection.sendall(head.encode() + b"\r\n\r\n" + body)
        for _ in range(100):
            waiting = re.search(r"te_queue_size (\d+)", server.request("/metrics")[1])
            if waiting and waiting[1] == "0":
                break
            time.sleep(0.05)
        assert waiting and waiting[1] == "0", "work of clients that left remains"
        server.post("/generate", {"inputs": text, "parameters": {"max_new_tokens": 2}})
        assert time.monotonic() - began < 20
