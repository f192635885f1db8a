"""Random bodies for every route, without a network: no 5xx, no NaN or null in a 200, no body kept after its request."""

import asyncio
import copy
import gc
import json
import math
import random
import re
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import jsonschema
import orjson
import pytest
from examples_of_tasks import model_of
from random_models import our_model
from test_generation import gpt2, marian

import bertkit
from bertkit.generation import load_generator
from bertkit.serving import hub_api, service, task_api
from bertkit.serving.app import Application
from bertkit.serving.engine import Engine
from bertkit.serving.generate_api import GenerateParameters
from bertkit.serving.guard import Guard
from bertkit.serving.jobs import Verb
from bertkit.serving.metrics import Metrics
from bertkit.serving.routes import Body
from bertkit.serving.served_models import ServedGenerator, ServedModel, ServedModels
from bertkit.serving.service import Service
from bertkit.serving.settings import ServerSettings
from bertkit.serving.shared_model import SharedModel
from bertkit.tasks import QuestionAnswering, Regression, SequenceClassification, TokenClassification
from bertkit.tasks.token_classification import EntityFound

ALLOWED_NULLS = {"start", "stop", "answer", "seed"}
TEXTS = ["a cat", "the [MASK] sat", "", "x" * 3_000, "\u0000", "é\u200b🙂", "one two three four " * 9, "\ud7ff\ue000"]
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**63, -(2**63), 10**30, 0.0, -0.5, 1e-320, 1e308, "query", "base64",
    "error", "window", "Left", [], {}, [[]], [1, 2], [[1, 2], [3]], "masks", "encoder", "storyteller", "translator",
    "ranker",
]  # fmt: skip
RAW = [b"", b"{", b"[]", b"null", b"NaN", b'{"inputs": NaN}', b"[" * 3_000, b"\xff\xfe", b'{"inputs": "\\ud800"}', b"0"]


class Fuzzed:
    """The application with a tiny model of every kind, asked in this process."""

    def __init__(self, folder: Path) -> None:
        engine = Engine(ServerSettings(max_concurrent_requests=10_000))
        models: dict[str, bertkit.Model] = {
            "encoder": our_model("encoder", 3, max_position_embeddings=29),
            "masks": our_model("masked_lm", 4, max_position_embeddings=29),
            "inference": model_of(SequenceClassification(("contradiction", "entailment", "neutral"))),
            "ranker": model_of(Regression()),
            "tagger": model_of(TokenClassification(("B-animal", "I-animal", "O"))),
            "answers": model_of(QuestionAnswering(no_answer=True)),
        }
        gpt2(folder / "storyteller")
        marian(folder / "translator")
        served: list[Any] = [ServedModel(name, "float32", SharedModel(one)) for name, one in models.items()]
        for name in ("storyteller", "translator"):
            served.append(ServedGenerator(name, "float32", load_generator(folder / name)))
        models["encoder"].save(folder / "encoder")
        index = bertkit.Index.open(folder / "store", folder / "encoder")
        index.add([bertkit.Document("a", "The cat sat on the mat.")])
        self.service = Service(ServedModels(served, index.with_encoder(served[0].model)), engine, Metrics())
        app = Application(self.service)
        self.app = Guard(app, self.service, local_only=False)
        self.bodies = {route.path: get_type_hints(route.endpoint).get("body") for route in app.routes}
        self.document = document = app.openapi
        self.routes = [path for path, verbs in document["paths"].items() if "post" in verbs and "{" not in path]
        self.routes += [f"/models/{one.name}" for one in served]
        self.fields = sorted(
            {name for one in document["components"]["schemas"].values() for name in one.get("properties", {})}
        )

    def known(self, path: str) -> set[str]:
        """Fields of the body of a path."""
        return set(self.bodies.get(path, self.bodies["/models/{name}"]).model_fields)

    async def ask(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer."""
        sent: list[dict[str, Any]] = []
        received = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if received:
                return received.pop()
            await asyncio.sleep(3_600)
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http", "http_version": "1.1", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "root_path": "", "scheme": "http", "client": ("127.0.0.1", 1), "server": ("a", 1),
            "headers": [(b"content-type", b"application/json")],
        }  # fmt: skip
        await self.app(scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    made = Fuzzed(tmp_path_factory.mktemp("fuzzed"))
    yield made


def random_value(draw: random.Random, fields: list[str], depth: int = 0) -> Any:
    kind = draw.random()
    if kind < 0.45 or depth > 3:
        return draw.choice(TEXTS)
    if kind < 0.65:
        return draw.choice(VALUES)
    if kind < 0.8:
        return [random_value(draw, fields, depth + 1) for _ in range(draw.randrange(4))]
    if kind < 0.85:
        return "".join(chr(draw.choice([draw.randrange(32, 127), draw.randrange(0xE000)])) for _ in range(9))
    return {draw.choice(fields): random_value(draw, fields, depth + 1) for _ in range(draw.randrange(4))}


def random_body(draw: random.Random, fields: list[str], known: set[str]) -> bytes:
    """Fields of the bodies, mostly those of a route, with likely and unlikely values; sometimes broken."""
    if draw.random() < 0.03:
        return draw.choice(RAW)
    names = [
        "inputs",
        "input",
        "query",
        "texts",
        "documents",
        "question",
        "context",
        "candidate_labels",
        "ids",
        "parameters",
    ]
    body = {name: random_value(draw, fields) for name in names if draw.random() < 0.5}
    if draw.random() < 0.6:
        body["inputs"] = body["input"] = draw.choice(TEXTS[:2])
        body["parameters"] = {draw.choice(fields): draw.choice(VALUES) for _ in range(2)} | {"max_new_tokens": 3}
    for _ in range(draw.randrange(3)):
        body[draw.choice(fields)] = random_value(draw, fields)
    if draw.random() < 0.8:
        body = {name: value for name, value in body.items() if name in known}
    sent = json.dumps(body).encode("utf-8", "surrogatepass")
    if draw.random() < 0.03:
        index = draw.randrange(len(sent))
        sent = sent[:index] + bytes([draw.randrange(256)]) + sent[index + 1 :]
    return sent


def is_sound(answer: Any, name: str = "") -> bool:
    """No NaN, and no null but where it is documented."""
    if isinstance(answer, dict):
        return all(is_sound(value, key) for key, value in answer.items())
    if isinstance(answer, list):
        return all(is_sound(value, name) for value in answer)
    return name in ALLOWED_NULLS if answer is None else not isinstance(answer, float) or math.isfinite(answer)


async def fuzz(fuzzed: Fuzzed, number: int, seed: int) -> Counter[int]:
    """Statuses of N random bodies, sixteen at a time."""
    draw, statuses = random.Random(seed), Counter()

    async def client(share: int) -> None:
        for _ in range(share):
            path = draw.choice(fuzzed.routes)
            body = random_body(draw, fuzzed.fields, fuzzed.known(path))
            status, answer = await asyncio.wait_for(fuzzed.ask(path, body), 60)
            statuses[status] += 1
            assert status < 500, (path, body[:500], answer[:300])
            parsed = orjson.loads(answer)
            if status == 200:
                assert is_sound(parsed), (path, body[:500], answer[:300])
            else:
                message = parsed["error"]
                assert message if isinstance(message, str) else message["message"], (path, body[:500])

    await asyncio.gather(*[client(number // 16) for _ in range(16)])
    return statuses


@pytest.mark.full
def test_random_bodies(fuzzed: Fuzzed) -> None:
    statuses = asyncio.run(fuzz(fuzzed, 400, seed=1))
    assert statuses[200] > 40 and statuses[422] > 40, statuses


def without_nulls(given: Any) -> Any:
    return (
        {name: without_nulls(value) for name, value in given.items() if value is not None}
        if isinstance(given, dict)
        else given
    )


@pytest.mark.full
def test_bodies_that_the_openapi_document_refuses_are_refused(fuzzed: Fuzzed) -> None:
    draw, statuses = random.Random(3), Counter()
    for _ in range(600):
        path = draw.choice(fuzzed.routes)
        body = random_body(draw, fuzzed.fields, fuzzed.known(path))
        status, answer = asyncio.run(fuzzed.ask(path, body))
        try:
            given = without_nulls(orjson.loads(body))
        except orjson.JSONDecodeError:
            assert status == (400 if body else 422), (path, body[:500])
            continue
        described = fuzzed.document["paths"].get(path, fuzzed.document["paths"]["/models/{name}"])["post"]
        schema = described["requestBody"]["content"]["application/json"]["schema"]
        validator = jsonschema.Draft202012Validator(schema | {"components": fuzzed.document["components"]})
        is_valid = validator.is_valid(given)
        assert is_valid or 400 <= status < 500, (path, body[:500], answer)
        statuses[is_valid, status == 200] += 1
    assert statuses[True, True] > 20 and statuses[False, False] > 20, statuses


OPENAI_INPUT = {"input": ["a cat", "a dog"]}
VALID_BODIES: dict[str, dict[str, Any]] = {
    "/v1/embeddings": OPENAI_INPUT, "/embeddings": OPENAI_INPUT,
    "/embed": {"inputs": "a cat"}, "/embed_all": {"inputs": "a cat"}, "/embed_sparse": {"inputs": "a cat"},
    "/similarity": {"inputs": {"source_sentence": "a cat", "sentences": ["a dog"]}, "parameters": {}},
    "/tokenize": {"inputs": "a cat"}, "/decode": {"ids": [5, 6]},
    "/rerank": {"query": "a cat", "texts": ["a dog", "the cat"]},
    "/v1/rerank": {"query": "a cat", "documents": ["a dog", {"text": "the cat"}]},
    "/v2/rerank": {"query": "a cat", "documents": ["a dog"]},
    "/predict": {"inputs": "a cat"}, "/entities": {"inputs": "a cat"}, "/fill": {"inputs": "a [MASK]"},
    "/redact": {"inputs": "mail ada@example.org"}, "/extract": {"inputs": "a cat", "model": "tagger"},
    "/run": {"inputs": "a cat", "model": "tagger", "heads": ["entities"]},
    "/answer": {"question": "who sat?", "context": "the cat sat"},
    "/classify": {"inputs": "a cat", "candidate_labels": ["animal", "mat"]},
    "/generate": {"inputs": "a cat", "parameters": {"max_new_tokens": 3}},
    "/search": {"query": "cat"},
    "/inspect/input": {"inputs": "a cat"}, "/inspect/attention": {"inputs": "a cat"},
    "/inspect/lens": {"inputs": "a [MASK]"},
    "/": {"inputs": "a cat", "parameters": {}},
}  # fmt: skip


def with_nulls(body: dict[str, Any], body_type: type[Body]) -> dict[str, Any]:
    """A body with null in every optional field that it lacks, in nested objects too."""
    fields, filled = body_type.model_fields, dict(body)
    for name, info in fields.items():
        if name not in body:
            assert not info.is_required(), (body_type, name)
            filled[name] = None
        elif isinstance(body[name], dict):
            types = [info.annotation, *get_args(info.annotation)]
            inner = [each for each in types if isinstance(each, type) and issubclass(each, Body)]
            filled[name] = with_nulls(body[name], inner[0]) if inner else body[name]
    return filled


def test_null_in_an_optional_field_means_absent_on_every_route(fuzzed: Fuzzed) -> None:
    types = {path: body for path, body in fuzzed.bodies.items() if body is not None and "{" not in path}
    assert set(types) == set(VALID_BODIES)
    for path, body in VALID_BODIES.items():
        filled = with_nulls(body, types[path])
        assert filled != body
        status, expected = asyncio.run(fuzzed.ask(path, json.dumps(body).encode()))
        assert status == 200, (path, expected)
        assert asyncio.run(fuzzed.ask(path, json.dumps(filled).encode())) == (200, expected), (path, filled)


@pytest.mark.parametrize("name", ["encoder", "masks", "inference", "ranker", "tagger", "answers", "translator"])
def test_null_in_a_parameter_means_absent_for_every_kind_of_model(fuzzed: Fuzzed, name: str) -> None:
    special = {"ranker": {"query": "a", "texts": ["a", "b"]}, "answers": {"question": "who?", "context": "the cat"}}
    inputs = special.get(name, "a [MASK]")
    options = ["candidate_labels", "function_to_apply", "generate_parameters", "clean_up_tokenization_spaces"]
    given = {"max_new_tokens": 3} if name == "translator" else {}
    fields = [field for field in [*options, *fuzzed.fields] if field not in ("inputs", "parameters", *given)]
    nulls = dict.fromkeys(fields)
    answers = [
        asyncio.run(fuzzed.ask(f"/models/{name}", json.dumps({"inputs": inputs} | more).encode()))
        for more in ({"parameters": given}, {"parameters": nulls | given}, {"parameters": given or None} | nulls)
    ]
    assert answers[0][0] == 200 and answers[1] == answers[2] == answers[0]


def test_objects_of_the_hub_are_the_bodies_of_own_routes(fuzzed: Fuzzed) -> None:
    def ask(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return asyncio.run(fuzzed.ask(path, json.dumps(body).encode()))

    given, options = {"query": "a cat", "texts": ["a dog", "the cat"]}, {"raw_scores": True, "return_text": True}
    own = ask("/rerank", given | options | {"model": "ranker"})
    assert own[0] == 200 and ask("/models/ranker", {"inputs": given, "parameters": options}) == own
    status, answer = ask("/models/ranker", {"inputs": given | {"inputs": 3}})
    assert status == 422 and b"inputs is 3: an unknown field" in answer
    labels = {"candidate_labels": ["animal", "mat"], "hypothesis_template": "{}", "truncate": False}
    own = ask("/classify", {"inputs": "a cat", "model": "inference"} | labels)
    assert own[0] == 200 and ask("/models/inference", {"inputs": "a cat", "parameters": labels}) == own
    assert ask("/classify", {"inputs": "a cat " * 99, "model": "inference"} | labels)[0] == 422


def test_null_is_the_default_of_generation() -> None:
    nulls = dict.fromkeys(GenerateParameters.model_fields)
    assert GenerateParameters.model_validate(nulls) == GenerateParameters()


def test_null_in_a_required_field_is_refused(fuzzed: Fuzzed) -> None:
    status, answer = asyncio.run(fuzzed.ask("/v1/embeddings", b'{"input": null}'))
    assert status == 400 and b"input: expected a text, a list of texts" in answer


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_a_hundred_thousand_random_bodies(fuzzed: Fuzzed) -> None:
    statuses = asyncio.run(fuzz(fuzzed, 100_000, seed=2))
    assert statuses[200] > 10_000, statuses


def limited(fuzzed: Fuzzed, **settings: Any) -> Fuzzed:
    """The same models with other limits."""
    other = copy.copy(fuzzed)
    other.service = Service(fuzzed.service.models, Engine(ServerSettings(**settings)), Metrics())
    other.app = Guard(Application(other.service), other.service, local_only=False)
    return other


MANY = {"inputs": ["a cat sat"] * 40}


@pytest.mark.parametrize(
    ("path", "body", "num_bytes"),
    [
        ("/embed_all", MANY | {"model": "encoder"}, 40 * 5 * 18 * 12),
        ("/tokenize", {"inputs": "a " * 60}, 62 * 100),
        ("/fill", {"inputs": "[MASK] " * 20, "top_k": 12}, 20 * 12 * 80),
        ("/models/masks", {"inputs": "[MASK] " + "a" * 990, "parameters": {"top_k": 20}}, 20 * (80 + 997)),
        ("/embed_sparse", MANY, None),
    ],
)
def test_answers_much_larger_than_their_requests_are_limited(
    fuzzed: Fuzzed, monkeypatch: pytest.MonkeyPatch, path: str, body: dict, num_bytes: int | None
) -> None:
    sent = json.dumps(body).encode()
    status, whole = asyncio.run(fuzzed.ask(path, sent))
    assert status == 200 and (num_bytes is None or 0.3 < len(whole) / num_bytes < 1.2), len(whole)
    small = limited(fuzzed, max_answer_bytes=4_000)
    status, answer = asyncio.run(small.ask(path, sent))
    says = json.loads(answer)["error"]
    assert status == 422 and "expected at most 4,000: send fewer or shorter inputs" in says
    assert num_bytes is None or f"the answer would have about {num_bytes:,} bytes" in says
    small.service._num_answer_bytes = 3_999  # of other requests
    one = json.dumps({"inputs": "a [MASK]", **({"model": "encoder"} if path == "/embed_all" else {})}).encode()
    assert asyncio.run(small.ask(path, one))[0] == 200 and small.service._num_answer_bytes == 3_999
    monkeypatch.setattr(service, "_SMALL_ANSWER_BYTES", 0)
    assert asyncio.run(small.ask(path, one))[0] == 429 and small.service._num_answer_bytes == 3_999
    small.service._num_answer_bytes = 0
    assert asyncio.run(small.ask(path, one))[0] == 200 and small.service._num_answer_bytes == 0


@pytest.mark.parametrize("path", ["/entities", "/models/tagger"])
def test_answers_of_many_entities_are_limited(fuzzed: Fuzzed, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    found = SimpleNamespace(entities=[EntityFound(1_234, 1_239, "horse", "animal", 0.123456789)] * 30)
    for module in (hub_api, task_api):
        monkeypatch.setattr(module, "prediction", lambda *_: Verb(lambda items, report: [found] * len(items), "found"))
    body = json.dumps({"inputs": ["a", "b"]}).encode()
    status, whole = asyncio.run(fuzzed.ask(path, body))
    assert status == 200 and 0.7 < len(whole) / 6_000 < 1.2
    small = limited(fuzzed, max_answer_bytes=5_000)
    status, answer = asyncio.run(small.ask(path, body))
    assert status == 422 and b"the answer would have about 6,000 bytes" in answer
    assert small.service._num_answer_bytes == 0


def test_room_for_an_answer_is_given_back_when_it_has_been_sent(fuzzed: Fuzzed) -> None:
    """The server waits with the last message until the client has read most of the others."""
    received: list[dict[str, Any]] = [{"type": "http.request", "body": b'{"inputs": "a"}', "more_body": False}]
    sent: list[tuple[dict[str, Any], int]] = []

    async def receive() -> dict[str, Any]:
        return received.pop() if received else await asyncio.sleep(3_600)

    async def send(message: dict[str, Any]) -> None:
        sent.append((message, fuzzed.service._num_answer_bytes))

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/tokenize", "headers": headers, "client": None}
    asyncio.run(fuzzed.app(scope, receive, send))
    assert [(message.get("more_body", False), num_bytes) for message, num_bytes in sent] == [
        (False, 300), (True, 300), (False, 300),
    ]  # fmt: skip
    assert fuzzed.service._num_answer_bytes == 0


def test_room_for_an_answer_is_given_back_when_its_request_has_ended_and_no_more_is_taken(
    fuzzed: Fuzzed, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = limited(fuzzed, request_timeout_seconds=0.05)
    wait, reserve, seen, given = threading.Event(), late.service.reserve, [], []

    def reserved(ticket: Any, num_bytes: int) -> None:
        given.append(num_bytes)
        reserve(ticket, num_bytes)
        if num_bytes:  # on a core
            wait.wait()

    async def ask() -> None:
        seen.append((await late.ask("/tokenize", b'{"inputs": ["a", "b", "c"]}'))[0])
        seen.append(late.service._num_answer_bytes)
        wait.set()
        while late.service.engine.is_busy:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(late.service, "reserve", reserved)
    asyncio.run(ask())
    assert seen == [503, 0] and late.service._num_answer_bytes == 0
    assert given == [0, 300, 300], "a text is computed for a request that has ended"


def test_large_bodies_in_progress_are_limited_together(fuzzed: Fuzzed) -> None:
    asked = limited(fuzzed, max_body_bytes_in_progress=300_000)
    body = json.dumps({"inputs": "a"}).encode() + b" " * 150_000
    assert asyncio.run(asked.ask("/embed", body))[0] == 200 and asked.app._num_body_bytes == 0
    asked.app._num_body_bytes = 200_000  # of other requests
    assert asyncio.run(asked.ask("/embed", body))[0] == 429
    asked.app._num_body_bytes = 400_000
    assert asyncio.run(asked.ask("/embed", b'{"inputs": "a"}'))[0] == 200 and asked.app._num_body_bytes == 400_000
    assert 'te_request_failure{err="overloaded"} 1' in asked.service.metrics.text()


def test_inputs_are_counted_when_they_are_admitted_and_when_they_are_computed(fuzzed: Fuzzed) -> None:
    asked = limited(fuzzed)
    for path, body in (
        ("/embed", {"inputs": ["a", "b", "c"]}), ("/embed", {"inputs": ["a", "a " * 300], "truncate": False}),
        ("/predict", {"inputs": [["a"], ["b"]]}), ("/embed", {"inputs": []}), ("/tokenize", {"inputs": "a"}),
    ):  # fmt: skip
        asyncio.run(asked.ask(path, json.dumps(body).encode()))
    lines = asked.service.metrics.text().splitlines()
    for line in ("te_embed_count 5", "te_embed_success 3", "te_predict_count 2", "te_predict_success 2"):
        assert line in lines


@pytest.mark.parametrize("seconds", [3_600.0, 0.02])
def test_a_body_that_does_not_arrive_in_time_is_refused(fuzzed: Fuzzed, seconds: float) -> None:
    """Also if a byte now and then arrives."""
    engine = Engine(ServerSettings(receive_timeout_seconds=0.1, receive_bytes_per_second=1_000))
    service = Service(fuzzed.service.models, engine, Metrics())
    app, parts, sent = Guard(Application(service), service, local_only=False), [b'{"inputs"', b': "a'], []

    async def receive() -> dict[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(0), "more_body": True}
        await asyncio.sleep(seconds)
        return {"type": "http.request", "body": b"a", "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": headers, "client": None}
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 5))
    assert sent[0]["status"] == 408 and (b"connection", b"close") in sent[0]["headers"]
    says = json.loads(sent[1]["body"])["error"]
    assert re.match(r"\d+ bytes of the body came in 0\.\d seconds, .* every 0\.1 seconds, .* 1,000 bytes per", says)


def test_a_body_that_arrives_steadily_is_read(fuzzed: Fuzzed) -> None:
    engine = Engine(ServerSettings(receive_timeout_seconds=0.2, receive_bytes_per_second=1_000))
    service = Service(fuzzed.service.models, engine, Metrics())
    app, parts, sent = Guard(Application(service), service, local_only=False), [b'{"inputs": "a"', *[b" " * 99] * 6], []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05 if parts else 3_600)
        return {"type": "http.request", "body": parts.pop(0), "more_body": True} if parts[1:] else last()

    def last() -> dict[str, Any]:
        parts.clear()
        return {"type": "http.request", "body": b"}", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": headers, "client": None}
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 5))
    assert sent[0]["status"] == 200


@pytest.mark.full
def test_no_body_is_kept_after_its_request(fuzzed: Fuzzed) -> None:
    paths = ["/embed", "/predict", "/generate", "/search"]
    field = {"/search": "query"}
    bodies = [json.dumps({field.get(path, "inputs"): "cat"}).encode() + b" " * 9_000 for path in paths]

    async def ask() -> None:
        for path, body in zip(paths, bodies, strict=True):
            assert (await fuzzed.ask(path, body))[0] == 200, path
        await fuzzed.ask("/embed", b'{"inputs": "another"}')

    before = [sys.getrefcount(body) for body in bodies]
    asyncio.run(ask())
    gc.collect()
    assert [sys.getrefcount(body) for body in bodies] == before


ERRORS = {
    "/embed": {"inputs": ["a", "a cat " * 50], "truncate": False},
    "/embed_sparse": {"inputs": "the " * 90, "truncate": False},
    "/embed_all": {"inputs": ["a", "the " * 90], "truncate": False},
    "/fill": {"inputs": "none"}, "/decode": {"ids": [99_999]}, "/generate": {"inputs": "a " * 500},
    "/inspect/input": {"inputs": "the " * 100}, "/rerank": {"query": "a", "texts": []}, "/search": {"query": '"a'},
    "/predict": {"inputs": 5}, "/extract": {"inputs": "a", "labels": ["none"], "model": "tagger"},
}  # fmt: skip


@pytest.mark.parametrize("path", ERRORS)
def test_a_replaced_model_is_freed_by_counting_references_after_errors(fuzzed: Fuzzed, path: str) -> None:
    """An error of a request is in no cycle with its frames, which hold the model."""
    body = json.dumps(ERRORS[path]).encode()
    asked, other = limited(fuzzed), fuzzed.service.models
    asked.service.models = ServedModels([copy.copy(each) for each in other.all.values()], other.index)
    models = [weakref.ref(each) for each in asked.service.models.all.values()]

    async def ask() -> None:
        for _ in range(3):
            status, _ = await asked.ask(path, body)
            assert 400 <= status < 500, status
        while asked.service.engine.is_busy:
            await asyncio.sleep(0.001)
        asked.service.models = other  # as a reload does

    gc.collect()
    gc.disable()
    try:
        asyncio.run(ask())
        end = time.monotonic() + 5
        while any(model() is not None for model in models) and time.monotonic() < end:
            time.sleep(0.01)  # a core may still hold what it computed last
        assert not any(model() is not None for model in models), "a model waits for a search for cycles"
    finally:
        gc.enable()


def test_jobs_are_freed_at_once_without_a_search_for_cycles(fuzzed: Fuzzed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load the server rarely searches, and a job holds the model that a reload has replaced."""
    jobs, num_jobs = weakref.WeakSet[service.Job](), 0

    class NotedJob(service.Job):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            nonlocal num_jobs
            super().__init__(*arguments, **options)
            jobs.add(self)
            num_jobs += 1

    monkeypatch.setattr(service, "Job", NotedJob)
    bodies = [json.dumps({"inputs": [f"one {row} two {number}" for row in range(99)]}).encode() for number in range(20)]

    async def ask_all() -> list[tuple[int, bytes]]:
        return await asyncio.gather(*(fuzzed.ask("/embed", body) for body in bodies))

    gc.collect()
    gc.disable()
    try:
        assert {status for status, _ in asyncio.run(ask_all())} == {200}
        end = time.monotonic() + 10
        while jobs and time.monotonic() < end:
            time.sleep(0.01)  # a core may still hold what it computed last
        assert num_jobs == 20 and not jobs, f"{len(jobs)} jobs are kept"
    finally:
        gc.enable()
