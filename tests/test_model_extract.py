"""`Model.extract` and `Model.redact`: results of the extraction models and taggers they stand for, and bad input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples_of_tasks import COLOURS, model_of
from gliner2_reference import CLASSES, RELATIONS
from gliner2_reference import STORED as STORED_SCHEMAS
from gliner_reference import LABELS, STORED, TEXTS, write_model

import bertkit
from bertkit import Model
from bertkit.checkpoint.own_record import change_section
from bertkit.cli import run
from bertkit.errors import BertkitError, CheckpointError, MissingHeadError, UsageError
from bertkit.extraction import ExtractionReport, Schema, open_extractor, opening
from bertkit.extraction.opening import SECTION
from bertkit.model.finding import ModelFinding
from bertkit.redaction import Key
from bertkit.tasks import SequenceClassification, TokenClassification

KINDS = ("span-bert", "token-bert", "bi-span", "schema")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("published")
    published = json.loads(STORED.read_text()) | {"schema": json.loads(STORED_SCHEMAS.read_text())["bert"]}
    return {name: write_model(published[name], folder / name) for name in KINDS}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, Model]:
    return {name: bertkit.load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def tagger() -> Model:
    return model_of(TokenClassification(("B-animal", "I-animal", "B-colour", "I-colour", "O")))


@pytest.mark.parametrize("name", KINDS)
def test_a_loaded_model_extracts_as_the_extractor_of_its_folder(folders, models, name):
    extractor, options = open_extractor(folders[name]), {"threshold": 0.3}
    report, own = ExtractionReport(), ExtractionReport()
    expected = extractor.extract(TEXTS, LABELS, report=report, **options)
    assert any(expected)
    assert models[name].extract(TEXTS, LABELS[::-1], report=own, **options) == expected
    assert own == report and own.num_windows >= 3
    assert models[name].extract(TEXTS[0], labels=LABELS, **options) == expected[0]
    nested = extractor.extract(TEXTS, LABELS, nested=True, **options)
    assert models[name].extract(TEXTS, LABELS, nested=True, **options) == nested


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_is_opened_once_for_the_precision_of_its_choice(folders, monkeypatch, name):
    expected = bertkit.load(folders[name], precision="bfloat16").extract(TEXTS, LABELS)
    opened, read = list[Path](), opening.stored_tensors
    monkeypatch.setattr(opening, "stored_tensors", lambda folder: opened.append(folder) or read(folder))
    monkeypatch.setattr(opening, "choose_precision", lambda *_: opening.PrecisionChoice("bfloat16", "a reason"))
    model = bertkit.load(folders[name], precision="auto")
    assert opened == [folders[name]] and (model.precision, model.precision_reason) == ("bfloat16", "a reason")
    assert model.extract(TEXTS, LABELS) == expected


@pytest.mark.parametrize("name", ["bi-span", "span-bert"])
def test_entities_and_vectors_of_one_run_have_the_bits_of_each_alone(models, name):
    model, texts = models[name], [*TEXTS, " ".join(TEXTS * 9)]
    options: Any = {"labels": LABELS, "threshold": 0.3}
    rows = model.run(texts, ["entities", "vector", "redaction"], **options)
    assert [entities for entities, *_ in rows] == model.extract(texts, **options)
    assert np.array([vector for _, vector, _ in rows]).tobytes() == model.embed(texts, on_long="window").tobytes()
    assert [redaction for *_, redaction in rows] == model.redact(texts, **options)


def test_entities_of_a_pass_are_decided_once(tagger, monkeypatch):
    read, extract = [], ModelFinding.extract
    monkeypatch.setattr(
        ModelFinding,
        "extract",
        lambda self, texts, *given, **how: read.extend(texts) or extract(self, texts, *given, **how),
    )
    rows = tagger.run(TEXTS, ["entities", "redaction"])
    assert read == list(dict.fromkeys(TEXTS))
    assert [redaction for _, redaction in rows] == tagger.redact(TEXTS)


def test_a_schema_gives_a_reading(folders, models):
    schema = Schema(entities=LABELS, relations=RELATIONS, classes=CLASSES)
    expected = open_extractor(folders["schema"]).read(TEXTS, schema, threshold=0.3)
    assert any(each.entities for each in expected)
    assert models["schema"].extract(TEXTS, schema=schema, threshold=0.3) == expected
    described = {label: f"a {label}" for label in LABELS}
    assert models["schema"].extract(TEXTS, described, threshold=0.1) != models["schema"].extract(
        TEXTS, LABELS, threshold=0.1
    )


def test_a_stored_threshold_is_used(folders, tmp_path):
    folder = write_model(json.loads(STORED.read_text())["span-bert"], tmp_path / "model")
    change_section(folder, SECTION, {"threshold": 0.2})
    model = bertkit.load(folder)
    assert model.extract(TEXTS, LABELS) == bertkit.load(folders["span-bert"]).extract(TEXTS, LABELS, threshold=0.2)
    assert model.extract(TEXTS, LABELS) != model.extract(TEXTS, LABELS, threshold=0.5)


def test_a_tagger_finds_its_own_labels(tagger):
    texts = ["the cat and dog walk", "one two red blue green", "the cat sat and one red dog ran " * 12]
    report = ExtractionReport()
    found = tagger.extract(texts, report=report)
    predictions = [row for _, rows in tagger.predict_stream(texts, report=bertkit.InferenceReport(), on_long="window")
                   for row in rows]  # fmt: skip
    assert [[(each.start, each.end, each.label, each.score) for each in row] for row in found] == [
        [(each.start, each.end, each.label, each.probability) for each in prediction.entities]
        for prediction in predictions
    ]
    assert {each.label for row in found for each in row} == {"animal", "colour"}
    assert (report.num_texts, report.num_characters) == (3, sum(map(len, texts))) and report.num_words >= 106
    lowest = min(each.score for row in found for each in row)
    assert tagger.extract(texts, ["animal"]) == [tuple(each for each in row if each.label == "animal") for row in found]
    assert tagger.extract(texts, threshold=lowest) == [
        tuple(each for each in row if each.score > lowest) for row in found
    ]


def test_redaction_with_labels_takes_names_out_and_back(models):
    text, key = "Ann was in the old zoo of Bern: ada@example.org", Key()
    entities = models["bi-span"].extract(text, LABELS, threshold=0.3)
    redaction = models["bi-span"].redact(text, labels=LABELS, threshold=0.3, key=key)
    assert len(entities) > 1
    kinds = {each.kind for each in redaction.replacements}
    assert kinds & {"CITY", "NAME_OF_A_PERSON", "ZOO"} and "ada@example.org" not in redaction.text
    assert all(text[each.start : each.end] not in redaction.text for each in entities if each.end - each.start > 3)
    assert "".join(key.restore([redaction.text])) == text
    only = models["bi-span"].redact(text, ["ZOO"], labels=LABELS, threshold=0.3)
    assert {each.kind for each in only.replacements} <= {"ZOO"}


def test_several_texts_are_redacted_as_each_alone(tagger):
    texts = ["the cat and dog walk, ada@example.org", "one two red", "the cat sat and one red dog ran\n" * 600]
    assert tagger.redact(texts) == [tagger.redact(text) for text in texts]
    assert {each.kind for each in tagger.redact(texts[0]).replacements} & {"ANIMAL", "COLOUR"}


BAD: list[tuple[Any, str]] = [
    ({"labels": []}, 'no labels: expected what to look for, such as ["person", "place"]'),
    ({}, "no labels: expected what to look for"),
    ({"labels": [f"label {number}" for number in range(10_000)]}, "10,000 labels: expected at most 5,000"),
    ({"labels": ["zoo", "city", "zoo"]}, "the label 'zoo' is given twice"),
    ({"labels": ["zoo", " "]}, "the label ' ' is empty"),
    ({"labels": "zoo"}, "labels is a str"),
    ({"labels": ["zoo " * 199]}, "tokens: expected"),
    ({"labels": ["zoo"], "threshold": 2}, "threshold=2: expected a number from 0 to 1"),
    ({"labels": ["zoo"], "schema": Schema(entities=["zoo"])}, "labels and a schema: give one of them"),
    ({"schema": Schema()}, "the schema is empty"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
@pytest.mark.parametrize("name", ["span-bert", "schema"])
def test_labels_that_cannot_be_used_are_refused_in_one_line(models, name, options, words):
    if name == "span-bert" and words == "the schema is empty":
        pytest.skip("a model of labels")
    with pytest.raises(UsageError) as error:
        models[name].extract(["a zoo"], **options)
    assert words in str(error.value) and len(str(error.value).splitlines()) == 1


def test_models_that_cannot_extract_say_why(models, tagger, tmp_path):
    topics = model_of(SequenceClassification(COLOURS))
    for call, kind, words in (
        (lambda: topics.extract("a cat"), MissingHeadError, "finds no entities: expected an extraction model, or one"),
        (lambda: topics.redact("a cat"), MissingHeadError, "finds no entities"),
        (lambda: tagger.extract("a cat", ["zoo"]), UsageError, "'zoo': this tagger has animal, colour"),
        (
            lambda: tagger.extract("a cat", schema=Schema(entities=["x"])),
            MissingHeadError,
            "labels that are given at run",
        ),
        (lambda: tagger.extract([b"\0"]), UsageError, "a text is bytes"),
        (lambda: models["span-bert"].extract([b"\0"], ["zoo"]), UsageError, "a text is bytes"),
        (lambda: models["span-bert"].extract(None, ["zoo"]), UsageError, "expected texts, got None: pass a str"),
        (lambda: tagger.redact(b"Ada"), UsageError, "expected texts, got b'Ada': pass a str"),
        (lambda: tagger.run(None, ["vector"]), UsageError, "expected texts, got None: pass a str"),
        (lambda: models["span-bert"].redact(["a"]), UsageError, "no labels"),
        (lambda: models["span-bert"].predict(["a"]), MissingHeadError, "not trained for a task"),
        (lambda: models["span-bert"].save(tmp_path / "copy"), CheckpointError, "cannot be saved: copy the folder"),
    ):
        with pytest.raises(kind, match=words) as error:
            call()
        assert isinstance(error.value, BertkitError) and len(str(error.value).splitlines()) == 1


def test_a_folder_of_extraction_takes_no_heads(folders):
    with pytest.raises(UsageError, match="opens with precision and device only"):
        bertkit.load(folders["span-bert"], heads=["masked_lm"])


def test_commands_extract_and_redact_with_a_tagger_or_labels(folders, models, tagger, tmp_path, capsys):
    tagger.save(tmp_path / "tagger")
    assert run(["extract", "the cat and dog walk", "--model", str(tmp_path / "tagger")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = tagger.extract("the cat and dog walk")
    assert [(row["start"], row["end"], row["label"]) for row in rows] == [(e.start, e.end, e.label) for e in expected]
    (tmp_path / "a.txt").write_text(TEXTS[0])
    options = ["--labels", ",".join(LABELS), "--threshold", "0.3", "--model", str(folders["bi-span"])]
    assert run(["redact", str(tmp_path / "a.txt"), *options]) == 0
    output = capsys.readouterr()
    assert output.out == models["bi-span"].redact(TEXTS[0], labels=LABELS, threshold=0.3).text != TEXTS[0]
    for arguments, words in (
        (["redact", str(tmp_path / "a.txt"), "--labels", "zoo"], "labels without a model"),
        (["redact", str(tmp_path / "a.txt"), "--model", str(folders["bi-span"])], "no labels"),
        (["redact", str(tmp_path / "a.txt"), "--labels", "zoo,", *options[2:]], "is empty"),
        (["extract", "a", "--labels", ",".join(map(str, range(10_000))), *options[2:]], "10,000 labels"),
        (["extract", "a", "--model", str(tmp_path / "tagger"), "--labels", "zoo"], "this tagger has animal, colour"),
    ):
        assert run(arguments) == 2
        output = capsys.readouterr()
        assert words in output.err and len(output.err.splitlines()) == 1
