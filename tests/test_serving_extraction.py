"""The routes /extract, /run and /redact with labels: results of the library, with the same bits beside others."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples_of_tasks import COLOURS, model_of
from gliner2_reference import STORED as STORED_SCHEMAS
from gliner_reference import LABELS, STORED, TEXTS, write_model
from served import Server, serving

import bertkit
from bertkit import Model
from bertkit.extraction import ExtractionReport, Schema
from bertkit.tasks import SequenceClassification, TokenClassification

pytestmark = pytest.mark.full

ANIMALS = ["the cat and dog walk", "one two red", "the cat sat and one dog ran " * 40]
LONG = " ".join(TEXTS * 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Extraction models; and a tagger and a classifier over one trunk."""
    made = tmp_path_factory.mktemp("models")
    published = json.loads(STORED.read_text())
    for name in ("span-bert", "bi-span"):
        write_model(published[name], made / name)
    write_model(json.loads(STORED_SCHEMAS.read_text())["bert"], made / "schemas")
    tagger = model_of(TokenClassification(("B-animal", "I-animal", "O")))
    topics, other = model_of(SequenceClassification(COLOURS)), model_of(SequenceClassification(COLOURS))
    with torch.no_grad():
        weights = dict(tagger.encoder.named_parameters())
        for name, weight in topics.encoder.named_parameters():
            if not name.startswith("pooler."):
                weight.copy_(weights[name])
        next(other.encoder.layers.parameters()).add_(1)
    for name, model in {"tagger": tagger, "topics": topics, "other": other}.items():
        model.save(made / name)
    return made


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Model]:
    return {each.name: bertkit.load(each) for each in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def server(folder: Path):
    names = ("span-bert", "bi-span", "schemas", "tagger", "topics", "other")
    with serving(*[word for name in names for word in ("--model", folder / name)]) as running:
        yield running


def as_json(entities: Any) -> list[dict[str, Any]]:
    rows = [{name: value for name, value in asdict(each).items() if value is not None} for each in entities]
    return json.loads(json.dumps(rows))


@pytest.mark.parametrize("name", ["span-bert", "bi-span", "schemas"])
def test_entities_have_the_bits_of_the_library_beside_other_requests(server: Server, models, name):
    body, report = {"model": name, "labels": LABELS, "threshold": 0.3}, ExtractionReport()
    expected = [as_json(each) for each in models[name].extract([*TEXTS, LONG], LABELS, threshold=0.3, report=report)]
    assert all(expected[index] for index in (0, 2, 3))
    answer = server.post("/extract", body | {"inputs": [*TEXTS, LONG], "labels": LABELS[::-1]})
    assert answer["entities"] == expected
    assert answer["report"] == json.loads(json.dumps(report.to_json()))
    assert report.num_characters == sum(map(len, [*TEXTS, LONG])) and report.num_windows > 9

    def ask(number: int) -> Any:
        if number % 3 == 2:
            return server.post("/entities", {"model": "tagger", "inputs": ANIMALS})
        return server.post("/extract", body | {"inputs": [*TEXTS, LONG][number % 4]})["entities"]

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(36)))
    assert all(answer == expected[number % 4] for number, answer in enumerate(answers) if number % 3 != 2)


def test_nested_entities_and_the_model_of_a_request_without_one(server: Server, models):
    (expected,) = models["span-bert"].extract([TEXTS[0]], LABELS, threshold=0.3, nested=True)
    body = {"inputs": TEXTS[0], "labels": LABELS, "threshold": 0.3, "nested": True}
    assert server.post("/extract", body)["entities"] == as_json(expected)
    assert server.post("/extract", {"inputs": TEXTS[0], "labels": LABELS})["report"]["num_texts"] == 1
    found = server.post("/extract", {"inputs": ANIMALS, "model": "tagger"})["entities"]
    assert found == [as_json(each) for each in models["tagger"].extract(ANIMALS)] and any(found)


def test_a_schema_gives_readings(server: Server, models):
    parts: dict[str, Any] = {
        "relations": ["in"],
        "records": {"zoo": ["city", "name"]},
        "classes": {"old": ["yes", "no"]},
    }
    schema = Schema(entities=LABELS, **parts)
    expected = [asdict(each) for each in models["schemas"].extract(TEXTS, schema=schema, threshold=0.3)]
    body = {"model": "schemas", "labels": LABELS, "threshold": 0.3, **parts}
    assert server.post("/extract", body | {"inputs": TEXTS})["readings"] == json.loads(json.dumps(expected))
    assert server.post("/extract", body | {"inputs": TEXTS[0]})["readings"] == json.loads(json.dumps(expected[0]))


def test_one_request_has_the_results_of_several_heads(server: Server, models):
    heads = ["entities", "topics", "vector", "redaction"]
    rows = server.post("/run", {"inputs": ANIMALS, "model": "tagger", "heads": heads})
    tagger = models["tagger"]
    expected = zip(
        tagger.extract(ANIMALS),
        models["topics"].predict(ANIMALS),
        tagger.embed(ANIMALS, on_long="window"),
        tagger.redact(ANIMALS),
        strict=True,
    )
    for row, (entities, topic, vector, redaction) in zip(rows, expected, strict=True):
        assert list(row) == heads
        assert row["entities"] == as_json(entities)
        assert row["topics"] == json.loads(json.dumps(asdict(topic)))
        assert np.array_equal(np.array(row["vector"], np.float32), vector)
        assert row["redaction"] == json.loads(json.dumps(asdict(redaction)))
    status, one, headers = server.request("/run", {"inputs": ANIMALS[0], "model": "tagger", "heads": heads})
    assert (status, one) == (200, rows[0])
    num_tokens = len(tagger.tokenizer.encode(ANIMALS[0]).input_ids)
    assert int(headers["x-compute-tokens"]) == num_tokens  # one pass for the four of them


def test_a_run_with_labels_given_at_run_time(server: Server, models):
    body = {"inputs": TEXTS, "model": "bi-span", "heads": ["entities", "redaction"], "labels": LABELS, "threshold": 0.3}
    rows = server.post("/run", body)
    options: Any = {"labels": LABELS, "threshold": 0.3}
    assert [row["entities"] for row in rows] == [as_json(each) for each in models["bi-span"].extract(TEXTS, **options)]
    assert [row["redaction"]["text"] for row in rows] == [
        each.text for each in models["bi-span"].redact(TEXTS, **options)
    ]


def test_names_are_redacted_by_labels(server: Server, models):
    body = {"inputs": TEXTS, "labels": LABELS, "model": "bi-span", "threshold": 0.3}
    rows = server.post("/redact", body)
    assert [row["text"] for row in rows] == [
        each.text for each in models["bi-span"].redact(TEXTS, labels=LABELS, threshold=0.3)
    ]
    assert rows[0]["tagger"] == "bi-span" and rows[0]["text"] != TEXTS[0]


@pytest.mark.parametrize(
    ("path", "more", "message"),
    [
        ("/extract", {"labels": []}, "no labels"),
        ("/extract", {}, "no labels"),
        (
            "/extract",
            {"labels": [f"label {number}" for number in range(10_000)]},
            "10,000 labels: expected at most 5,000",
        ),
        ("/extract", {"labels": ["zoo", "zoo"]}, "'zoo' is given twice"),
        ("/extract", {"labels": [" "]}, "' ' is empty"),
        ("/extract", {"labels": ["zoo " * 60]}, "tokens: expected"),
        ("/extract", {"labels": ["zoo " * 30_000]}, "characters: expected at most 100,000"),
        ("/extract", {"labels": "zoo"}, "expected a list of labels"),
        ("/extract", {"labels": ["zoo"], "threshold": 2}, "threshold"),
        ("/extract", {"labels": ["zoo"], "inputs": ""}, "cannot be empty"),
        ("/extract", {"labels": ["zoo"], "schema": {}}, "an unknown field"),
        ("/extract", {"labels": ["zoo"], "model": "topics"}, "not an extraction or token classification model"),
        ("/classify", {"candidate_labels": ["zoo", "sea"], "model": "topics"}, "topics has no label named entailment"),
        ("/extract", {"labels": ["zoo"], "model": "tagger"}, "this tagger has animal"),
        ("/extract", {"labels": ["zoo"], "model": "none"}, "is not served here"),
        ("/extract", {"classes": {"old": ["yes"] * 9}, "model": "schemas"}, "given twice"),
        (
            "/extract",
            {"classes": {"old": [str(each) for each in range(9_999)]}, "model": "schemas"},
            "labels: expected at most",
        ),
        ("/run", {"heads": []}, "heads"),
        ("/run", {"heads": ["none"]}, "is not served here"),
        ("/run", {"heads": ["entities", "other"], "model": "tagger"}, "has not the trunk of this model"),
        ("/run", {"heads": ["entities"], "model": "topics"}, "finds no entities"),
        ("/redact", {"labels": []}, "no labels"),
        ("/redact", {"labels": ["zoo"], "kinds": ["NAME"]}, "unknown kind 'NAME'"),
    ],
)
def test_bad_requests_are_refused_in_one_line(server: Server, path, more, message):
    status, body, _ = server.request(path, {"inputs": "Ann met Bern 4711"} | more)
    assert status in (400, 404, 422, 424), body
    assert message in body["error"] and len(body["error"].splitlines()) == 1
    assert "4711" not in str(body)


def test_binary_bodies_are_refused(server: Server):
    status, body, _ = server.request("/extract", b"\x80\0\1")
    assert status == 400 and "is not JSON" in body["error"]


def test_models_and_routes_are_described(server: Server):
    _, info, _ = server.request("/info")
    kinds = {each["model_id"]: each["kinds"] for each in info["models"]}
    assert kinds["span-bert"] == kinds["schemas"] == ["zero-shot-extraction"]
    _, described, _ = server.request("/openapi.json")
    assert {"/extract", "/run"} <= described["paths"].keys()
    assert "labels" in described["components"]["schemas"]["ExtractBody"]["properties"]
