"""Extraction: equality with the published package, windows, and independence of the other texts and labels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.extraction import Extractor, open_extractor
from gliner_reference import LABELS, STORED, TEXTS, THRESHOLD, write_model

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
