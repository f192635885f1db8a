"""Extraction by schemas: equality with the published package, windows, and independence of other texts and of order."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gliner2_reference import (
    CLASSES,
    ENTITIES,
    MULTILABEL_CLASSES,
    RECORDS,
    RELATIONS,
    STORED,
    TEXTS,
    THRESHOLD,
)
from gliner_reference import write_model

from bertkit.cli import run
from bertkit.errors import CheckpointError, UsageError
from bertkit.extraction import ExtractionReport, Schema, open_extractor
from bertkit.extraction.decoding import Entity
from bertkit.extraction.settings import read_schema_settings

PUBLISHED = json.loads(STORED.read_text())
SCHEMA = Schema(ENTITIES, RECORDS, RELATIONS, CLASSES, MULTILABEL_CLASSES)
"""Its names are in alphabetical order, in which ours are read."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("published")
    return {name: write_model(model, folder / name) for name, model in PUBLISHED.items()}


def assert_same_spans(entities: Any, expected: list[list[Any]]) -> None:
    """Equal spans with equal scores; the published ones are in the order of scores."""
    assert sorted((each.start, each.end) for each in entities) == sorted((start, end) for start, end, *_ in expected)
    ours, theirs = sorted(each.score for each in entities), sorted(each[3] for each in expected)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("name", PUBLISHED)
def test_readings_are_those_of_the_published_package(folders, name):
    readings = open_extractor(folders[name]).read(TEXTS, SCHEMA, threshold=THRESHOLD)
    for text, reading, expected in zip(TEXTS, readings, PUBLISHED[name]["outputs"], strict=True):
        for label in ENTITIES:
            own = [each for each in expected["entities"] if each[2] == label]
            assert_same_spans([each for each in reading.entities if each.label == label], own)
        assert all(text[each.start : each.end] == each.text for each in reading.entities)
        for kind in RECORDS:
            assert len(reading.records[kind]) == len(expected["records"][kind])
            for record, fields in zip(reading.records[kind], expected["records"][kind], strict=True):
                assert list(record) == list(fields)
                for label in fields:
                    assert_same_spans(record[label], fields[label])
        assert [each.label for each in reading.relations] == [each[0] for each in expected["relations"]]
        for relation, (_, *sides) in zip(reading.relations, expected["relations"], strict=True):
            for entity, side in zip((relation.head, relation.tail), sides, strict=True):
                assert_same_spans([entity], [side])
        for question, (label, probability) in expected["classes"].items():
            ours = reading.classes[question]
            assert max(ours, key=ours.__getitem__) == label and sum(ours.values()) == pytest.approx(1)
            assert ours[label] == pytest.approx(probability, abs=1e-5)
        for question, labels in expected["multilabel_classes"].items():
            assert reading.multilabel_classes[question] == pytest.approx(labels, abs=1e-5)


@pytest.mark.parametrize("name", PUBLISHED)
def test_readings_depend_neither_on_other_texts_nor_on_order(folders, name):
    extractor = open_extractor(folders[name])
    alone = [extractor.read([text], SCHEMA, threshold=0.1)[0] for text in TEXTS]
    turned = Schema(
        dict(reversed(ENTITIES.items())),
        {kind: RECORDS[kind][::-1] for kind in reversed(RECORDS)},
        dict(reversed(RELATIONS.items())),
        {kind: labels[::-1] for kind, labels in CLASSES.items()},
        {kind: labels[::-1] for kind, labels in MULTILABEL_CLASSES.items()},
    )
    texts = [*TEXTS[::-1], *TEXTS, " ".join(TEXTS)]
    assert extractor.read(texts, turned, threshold=0.1)[:6] == [*alone[::-1], *alone]


@pytest.mark.parametrize("name", PUBLISHED)
def test_long_texts_are_read_whole(folders, name):
    extractor, report = open_extractor(folders[name]), ExtractionReport()
    schema = Schema(ENTITIES, {"zoo": RECORDS["zoo"]}, ["in"], CLASSES)
    text = " ".join(TEXTS * 24)
    (reading,) = extractor.read([text], schema, threshold=0.3, report=report)
    assert report.num_windows > 3 and report.num_characters == len(text)
    windows = {each.window for each in reading.entities}
    assert len(windows) > 3 and max(end for _, end in windows) == len(text)
    for each in reading.entities:
        assert each.window[0] <= each.start < each.end <= each.window[1] and text[each.start : each.end] == each.text
    spans = [(each.start, each.end, each.label) for each in reading.entities]
    assert len(spans) == len(set(spans))
    assert sum(reading.classes["known"].values()) == pytest.approx(1)


def test_entities_of_labels_do_not_overlap_unless_nested(folders):
    extractor = open_extractor(folders["bert"])
    entities = extractor.extract([" ".join(TEXTS)], ENTITIES, threshold=0.2)[0]
    assert entities and all(first.end <= second.start for first, second in pairwise(entities))
    assert len(extractor.extract([" ".join(TEXTS)], ENTITIES, threshold=0.2, nested=True)[0]) >= len(entities)


@pytest.mark.parametrize("text", ["", " ", "river", "river."])
def test_a_full_stop_that_is_not_in_the_text_is_never_found(folders, text):
    for folder in folders.values():
        (reading,) = open_extractor(folder).read([text], SCHEMA, threshold=0.0)
        spans: list[Entity] = [*reading.entities, *(side for one in reading.relations for side in (one.head, one.tail))]
        assert all(each.end <= len(text) and text[each.start : each.end] == each.text for each in spans)
        assert sum(reading.classes["known"].values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "the schema is empty"),
        ([], "expected a JSON object"),
        ({"entity": ["zoo"]}, "expected a JSON object with keys of entities, records"),
        ({"entities": ["zoo", "zoo"]}, "'zoo' is given twice"),
        ({"entities": "zoo"}, "labels is a str"),
        ({"records": {"zoo": []}}, "no labels"),
        ({"classes": ["zoo"]}, "has no names"),
        ({"relations": [" "]}, "' ' is empty"),
        ({"entities": 5}, "5: expected names"),
        ({"relations": {"in": 5}}, "expected names"),
        ({"classes": {"topic": None}}, "None: expected names"),
        ({"entities": ["zoo " * 199]}, "tokens: expected at most"),
    ],
)
def test_schemas_that_cannot_be_used_are_refused(folders, content, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        open_extractor(folders["bert"]).read(["a zoo"], Schema.from_json(content))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architecture", "boundary"),
        ("token_pooling", "mean"),
        ("counting_layer", "count_lstm_moe"),
        ("span_head", {"max_width": 0}),
        ("unheard_of", 1),
    ],
)
def test_folders_that_are_not_supported_are_refused(folders, tmp_path, key, value):
    model = json.loads(json.dumps(PUBLISHED["bert"]))
    model["files"]["config.json"][key] = value
    with pytest.raises(CheckpointError, match=key if key != "span_head" else "max_width is 0"):
        open_extractor(write_model(model, tmp_path))


def test_width_of_the_span_head_counts_first(tmp_path):
    model = json.loads(json.dumps(PUBLISHED["bert"]))
    model["files"]["config.json"] |= {"max_width": 2, "span_head": {"max_width": 7}}
    assert read_schema_settings(write_model(model, tmp_path)).max_width == 7


def test_command(folders, tmp_path, capsys):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"entities": ENTITIES, "classes": CLASSES, "relations": ["in"]}))
    model = ["--model", str(folders["bert"]), "--threshold", "0.3"]
    assert run(["extract", TEXTS[0], "--schema", str(schema), *model]) == 0
    (reading,) = open_extractor(folders["bert"]).read(
        TEXTS[:1], Schema(entities=ENTITIES, classes=CLASSES, relations=["in"]), threshold=0.3
    )
    printed = json.loads(capsys.readouterr().out)
    assert [each["text"] for each in printed["entities"]] == [each.text for each in reading.entities]
    assert printed["classes"] == reading.classes
    for wrong in (["--labels", "zoo"], []):
        arguments = [*(["--schema", str(schema)] if wrong else []), *wrong]
        assert run(["extract", TEXTS[0], *arguments, *model]) == 2
    assert "either --labels or --schema" in capsys.readouterr().err
    schema.write_text("{")
    assert run(["extract", TEXTS[0], "--schema", str(schema), *model]) == 2
