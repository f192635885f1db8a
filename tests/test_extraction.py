"""Extraction: equality with the published package, windows, and independence of the other texts and labels."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gliner_reference import LABELS, RELATIONS, STORED, TEXTS, THRESHOLD, write_model

from bertkit.cli import run
from bertkit.errors import CheckpointError, UsageError
from bertkit.extraction import ExtractionReport, Extractor, Reading, Schema, open_extractor
from bertkit.extraction.settings import NAME

PUBLISHED = json.loads(STORED.read_text())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("published")
    return {name: write_model(model, folder / name) for name, model in PUBLISHED.items()}


def spans(entities: Any) -> list[list[Any]]:
    return [[each.start, each.end, each.label] for each in entities]


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("order", ["flat", "nested"])
def test_entities_are_those_of_the_published_package(folders, name, order):
    extractor, outputs = open_extractor(folders[name]), PUBLISHED[name]["outputs"]
    results = extractor.extract(TEXTS, LABELS, threshold=THRESHOLD, nested=order == "nested")
    for text, output, entities in zip(TEXTS, outputs, results, strict=True):
        expected = sorted(output[order])  # ours are in the order of the text
        assert spans(entities) == [each[:3] for each in expected]
        assert [each.text for each in entities] == [text[start:end] for start, end, *_ in expected]
        np.testing.assert_allclose([each.score for each in entities], [each[3] for each in expected], atol=1e-5)


@pytest.mark.parametrize("name", [name for name, model in PUBLISHED.items() if name.startswith("bi-")])
def test_labels_of_their_own_encoder_are_prepared_once(folders, monkeypatch, name):
    extractor, few = open_extractor(folders[name]), open_extractor(folders[name]).extract(TEXTS, LABELS, threshold=0.4)
    monkeypatch.setattr("bertkit.extraction.scorer._MANY_LABELS", 1)  # spans of all texts are multiplied at once
    monkeypatch.setattr("bertkit.extraction.label_encoder._MOST_PREPARED", 5)
    encoder: Any = extractor._label_encoder
    made, prepare = list[int](), encoder._prepare
    monkeypatch.setattr(encoder, "_prepare", lambda vectors: made.append(len(vectors)) or prepare(vectors))
    alone = [extractor.extract([text], LABELS, threshold=0.4)[0] for text in TEXTS]
    assert extractor.extract(TEXTS[::-1], LABELS[::-1], threshold=0.4) == alone[::-1] and made == [3]
    assert [spans(each) for each in alone] == [spans(each) for each in few] and any(few)
    for entities, others in zip(alone, few, strict=True):
        np.testing.assert_allclose([e.score for e in entities], [e.score for e in others], atol=1e-6)
    extractor.extract(TEXTS, LABELS[:2])
    extractor.extract(TEXTS, LABELS[1:])
    assert made == [3, 2, 2] and list(encoder._prepared) == [tuple(LABELS[1:])]


def logits_of(extractor: Extractor, text: str, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    seen, candidates = list[np.ndarray](), extractor._scorer.candidates

    def record(logits: np.ndarray, *rest: Any) -> Any:
        seen.append(logits)
        return candidates(logits, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(extractor._scorer, "candidates", record)
        extractor.extract([text], LABELS)
    (logits,) = seen
    return logits


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-6), ("float32", 1e-5)])
def test_logits_are_those_of_the_published_package(folders, monkeypatch, name, precision, tolerance):
    extractor = open_extractor(folders[name], precision=precision)
    for text, output in zip(TEXTS, PUBLISHED[name]["outputs"], strict=True):
        logits, expected = logits_of(extractor, text, monkeypatch), np.array(output["logits"]).reshape(output["shape"])
        assert logits.shape == expected.shape
        is_within = np.isfinite(logits)  # published models score spans beyond the last word, too, and skip them later
        largest = np.abs(expected).max()
        np.testing.assert_allclose(logits[is_within], expected[is_within], atol=tolerance * largest)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([], "no labels"),
        ([f"label {number}" for number in range(10_000)], "10,000 labels: expected at most 5,000"),
        (["zoo", "city", "zoo"], "'zoo' is given twice"),
        (["zoo", " "], "' ' is empty"),
        (["zoo", None], "None is empty or not a str"),
        ("zoo", "labels is a str"),
        (["zoo " * 60], "has 60 tokens: expected from 1 to"),
        (["\u200b"], "has 0 tokens"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(folders, labels, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        open_extractor(folders["span-bert"]).extract(["a zoo"], labels)


def test_a_label_longer_than_its_encoder_is_refused(folders):
    with pytest.raises(UsageError, match=r"the label 'zoo zoo .*shorten it"):
        open_extractor(folders["bi-span"]).extract(["a zoo"], ["zoo " * 90])


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        ("a zoo", {}, "texts is a str"),
        (["a", 3], {}, r"input 1: a text is int \(3\): expected str"),
        (["a zoo"], {"threshold": 1.5}, "threshold=1.5"),
        (["a zoo"], {"threshold": "0.5"}, "threshold='0.5': expected a number from 0 to 1"),
        (["a zoo"], {"threshold": float("nan")}, "threshold=nan"),
    ],
)
def test_texts_and_thresholds_that_cannot_be_used_are_refused(folders, texts, options, words):
    with pytest.raises(UsageError, match=words):
        open_extractor(folders["span-bert"]).extract(texts, LABELS, **options)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("span_mode", "conv_max"),
        ("subtoken_pooling", "mean"),
        ("fuse_layers", True),
        ("post_fusion_schema", "l2l-l2t"),
        ("represent_spans", True),
        ("relations_layer", "gcn"),
        ("triples_layer", "DistMult"),
        ("labels_decoder", "gpt2"),
        ("words_splitter_type", "spacy"),
        ("hidden_size", 0),
        ("max_width", 30),
        ("class_token_index", 3),
        ("model_type", "gliner_streaming_span"),
        ("unheard_of", 1),
    ],
)
def test_settings_that_are_not_supported_are_refused_by_name(tmp_path, key, value):
    folder = write_model(PUBLISHED["span-bert"], tmp_path / "model")
    settings = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps(settings | {key: value}))
    with pytest.raises(CheckpointError, match=key):
        open_extractor(folder)


def test_folders_that_are_incomplete_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"holds no gliner_config.json"):
        open_extractor(tmp_path)
    model = PUBLISHED["span-bert"]
    tensors = {name: shape for name, shape in model["tensors"].items() if name != "prompt_rep_layer.0.bias"}
    with pytest.raises(CheckpointError, match=r"lacks the tensors prompt_rep_layer.0.bias"):
        open_extractor(write_model(model | {"tensors": tensors}, tmp_path / "lacks"))
    with pytest.raises(CheckpointError, match=r"holds tensors that this model lacks: extra.weight"):
        open_extractor(write_model(model | {"tensors": model["tensors"] | {"extra.weight": [2]}}, tmp_path / "more"))
    with pytest.raises(CheckpointError, match=r"rnn.lstm.bias_hh_l0 has shape \[7\]"):
        open_extractor(
            write_model(model | {"tensors": model["tensors"] | {"rnn.lstm.bias_hh_l0": [7]}}, tmp_path / "shape")
        )
    pickled = write_model(model, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="bertkit convert"):
        open_extractor(pickled)
    settings = json.loads((pickled / NAME).read_text())
    (pickled / NAME).write_text(json.dumps(settings | {"encoder_config": None}))
    (pickled / "pytorch_model.bin").rename(pickled / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has no encoder_config: put config.json of microsoft/deberta-v3-small"):
        open_extractor(pickled)
    (pickled / "config.json").write_text(json.dumps(settings["encoder_config"]))
    assert open_extractor(pickled).extract(["old zoo"], LABELS)


RELATED = [name for name, model in PUBLISHED.items() if "relations" in model["outputs"][0]]
SCHEMA = Schema(LABELS, relations=RELATIONS)


def relations_of(reading: Reading) -> list[list[Any]]:
    sides = [(each.label, each.head, each.tail) for each in reading.relations]
    return [[label, *(value for side in two for value in (side.start, side.end, side.label))] for label, *two in sides]


@pytest.mark.parametrize("name", RELATED)
def test_relations_are_those_of_the_published_package(folders, name):
    found = open_extractor(folders[name]).read(TEXTS, SCHEMA, threshold=THRESHOLD)
    for reading, output in zip(found, PUBLISHED[name]["outputs"], strict=True):
        entities = sorted(output["related_entities"])
        assert spans(reading.entities) == [each[:3] for each in entities]
        np.testing.assert_allclose([each.score for each in reading.entities], [each[3] for each in entities], atol=1e-5)
        relations = sorted(output["relations"], key=lambda each: (each[1:3], each[4:6], each[0]))
        assert relations_of(reading) == [each[:-1] for each in relations]
        np.testing.assert_allclose(
            [each.score for each in reading.relations], [each[-1] for each in relations], atol=1e-5
        )
    assert any(reading.relations for reading in found)


@pytest.mark.parametrize("name", RELATED)
def test_relations_have_equal_bits_in_any_batch_stream_and_order(folders, name):
    extractor, random = open_extractor(folders[name]), np.random.default_rng(7)
    words = "Ann Bern zoo river old near was in the a of years".split()
    texts = [" ".join(random.choice(words, random.integers(0, 90))) for _ in range(12)]
    report = ExtractionReport()
    expected = [extractor.read([text], SCHEMA, report=report)[0] for text in texts]
    assert report.num_windows > len(texts)
    assert sum(len(each.relations) for each in expected) > 100
    order = random.permutation(len(texts))
    schema = Schema(LABELS[::-1], relations=RELATIONS[::-1])
    assert list(extractor.read_stream((texts[i] for i in order), schema)) == [expected[i] for i in order]
    for text, reading in zip(texts, expected, strict=True):
        for each in reading.relations:
            first, last = sorted((each.head, each.tail), key=lambda side: (side.start, side.end))
            assert first.window[0] <= first.start and last.end <= first.window[1], "one window holds both"
            assert each.head in reading.entities and each.tail in reading.entities and each.head != each.tail
            assert text[each.head.start : each.head.end] == each.head.text


def test_schemas_that_a_model_does_not_read_are_refused(folders):
    related, plain = open_extractor(folders[RELATED[0]]), open_extractor(folders["span-bert"])
    assert plain.read(TEXTS, Schema(LABELS))[0].entities == plain.extract(TEXTS, LABELS)[0]
    for extractor, schema, words in (
        (plain, SCHEMA, "has relations: this model reads entities only"),
        (related, Schema(LABELS, classes={"a": ["b", "c"]}), "has classes: this model reads entities and relations"),
        (related, Schema({"zoo": "old"}), "entities have descriptions"),
        (related, Schema(relations=RELATIONS), "no labels"),
        (related, Schema(LABELS, relations=["in", "in"]), "'in' is given twice"),
        (related, Schema(LABELS, relations=["in " * 40]), "the relations have 43 tokens: expected at most 15"),
    ):
        with pytest.raises(UsageError, match=words):
            extractor.read(["a zoo"], schema)


def test_command_prints_relations(folders, tmp_path, capsys):
    (tmp_path / "schema.json").write_text(json.dumps({"entities": LABELS, "relations": RELATIONS}))
    options = ("--schema", tmp_path / "schema.json", "--model", folders[RELATED[0]], "--threshold", THRESHOLD)
    assert extract(TEXTS[0], *options) == 0
    reading = json.loads(capsys.readouterr().out)
    assert len(reading["relations"]) == len(PUBLISHED[RELATED[0]]["outputs"][0]["relations"])
    assert reading["relations"][0].keys() == {"label", "head", "tail", "score"}


def extract(*arguments: str | Path | float) -> int:
    return run(["extract", *map(str, arguments)])


def test_command_prints_the_entities(folders, tmp_path, capsys):
    published = PUBLISHED["token-bert"]["outputs"][0]["flat"]
    options = ("--labels", ",".join(LABELS), "--model", folders["token-bert"], "--threshold", THRESHOLD)
    (tmp_path / "a.txt").write_text(TEXTS[0])
    for source in ((TEXTS[0],), ("--input", tmp_path / "a.txt")):
        assert extract(*source, *options) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [list(row) for row in rows] == [["text", "label", "score", "start", "end"]] * len(published)
        assert [[row["start"], row["end"], row["label"]] for row in rows] == [each[:3] for each in sorted(published)]
    assert extract(TEXTS[0], *options[:-1], 1.0) == 0
    assert capsys.readouterr() == (
        "",
        "no entity has a score above the threshold: lower --threshold, or name other --labels\n",
    )


def test_command_refuses_bad_input_in_one_line(folders, tmp_path, capsys):
    (tmp_path / "binary").write_bytes(b"\0\1\2zoo")
    model = ("--model", folders["span-bert"])
    for arguments, words in (
        (("a zoo", "--labels", "", *model), "no labels"),
        (("a zoo", "--labels", "zoo,zoo", *model), "given twice"),
        (("a zoo", "--labels", "zoo,,city", *model), "is empty"),
        (("--labels", "zoo", *model), "expected a text or --input FILE"),
        (("--input", tmp_path / "binary", "--labels", "zoo", *model), "zero bytes"),
        (("--input", tmp_path / "none", "--labels", "zoo", *model), "none"),
        (("a zoo", "--labels", "zoo", "--model", tmp_path), "holds no config.json"),
    ):
        assert extract(*arguments) == 2
        output = capsys.readouterr()
        assert words in output.err and len(output.err.splitlines()) == 1 and not output.out
