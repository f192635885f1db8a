"""The route /redact: results of the library, in every length, and no values in the log."""

import pytest
from examples_of_tasks import COLOURS, model_of
from served import Server, serving

from bertkit import Model
from bertkit.redaction import Redactor
from bertkit.redaction.spans import BLOCK, blocks_of
from bertkit.tasks import SequenceClassification, TokenClassification

pytestmark = pytest.mark.full

TEXT = "the cat and dog walk, ada@example.org, +44 20 7946 0958"
LONG = f"{TEXT}\n{'the red cat sat and one dog ran ' * 700}\n{TEXT}"


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {
        "sentiment": model_of(SequenceClassification(COLOURS)),
        "tagger": model_of(TokenClassification(("B-animal", "I-animal", "O"))),
    }


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        model.save(folder / name)
    with serving(*[word for name in models for word in ("--model", folder / name)]) as running:
        yield running


def placed(result) -> list[tuple]:
    return [(each.kind, each.start, each.end, each.placeholder) for each in result.replacements]


def test_blocks_are_the_text():
    assert len(blocks_of(LONG)) > len(LONG) // BLOCK
    assert "".join(blocks_of(LONG)) == LONG
    assert blocks_of("") == []


def test_answers_are_those_of_the_library(server: Server, models):
    expected = Redactor(tagger=models["tagger"])
    rows = server.post("/redact", {"inputs": [TEXT, LONG]})
    for text, row in zip([TEXT, LONG], rows, strict=True):
        result = expected.redact(text)
        assert row["text"] == result.text
        assert [tuple(each.values()) for each in row["replacements"]] == placed(result)
        assert row["tagger"] == "tagger"
    kinds = {each["kind"] for each in rows[1]["replacements"]}
    assert {"ANIMAL", "PHONE"} <= kinds  # of overlapping ones, that which begins first


def test_identifiers_need_no_tagger(server: Server):
    row = server.post("/redact", {"inputs": TEXT, "kinds": ["EMAIL"]})
    assert row["text"] == TEXT.replace("ada@example.org", "[EMAIL]")
    assert row["tagger"] is None
    assert server.post("/redact", {"inputs": '{"a": 1}', "is_json": True, "kinds": ["EMAIL"]})["text"] == '{"a": 1}'


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"kinds": ["NAME"]}, "unknown kind 'NAME'"),
        ({"kinds": []}, "kinds: expected at least 1 item, not 0"),
        ({"regions": ["XX"]}, "XX"),
        ({"key": "a"}, "an unknown field"),
        ({"model": "sentiment"}, "token classification"),
        ({"inputs": ""}, "empty"),
    ],
)
def test_invalid_bodies_are_refused_without_their_text(server: Server, more, message):
    status, body, _ = server.request("/redact", {"inputs": TEXT} | more)
    assert status in (413, 422, 424, 400)
    assert message in body["error"]
    assert "example.org" not in str(body)
    assert not [line for line in server.log if "example.org" in line or "7946" in line]
