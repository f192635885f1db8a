"""Extraction: equality with the published package, windows, and independence of the other texts and labels."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertkit.extraction import Extractor, open_extractor
from gliner_reference import LABELS, STORED, TEXTS, THRESHOLD, write_model

PUBLISHED = json.loads(STORED.read_text())


@pytest.fixture(scope="module", params=PUBLISHED)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Extractor, Path]:
    folder = write_model(PUBLISHED[request.param], tmp_path_factory.mktemp(request.param))
    return PUBLISHED[request.param], open_extractor(folder), folder


def test_entities_are_those_of_the_published_package(model):
    published, extractor, _ = model
    for name in ("flat", "nested"):
        results = extractor.extract(TEXTS, LABELS, threshold=THRESHOLD, nested=name == "nested")
        for text, output, entities in zip(TEXTS, published["outputs"], results, strict=True):
            expected = sorted(output[name])  # ours are in the order of the text
            assert [[each.start, each.end, each.label] for each in entities] == [each[:3] for each in expected]
            assert [each.text for each in entities] == [text[start:end] for start, end, *_ in expected]
            np.testing.assert_allclose([each.score for each in entities], [each[3] for each in expected], atol=1e-5)


def test_logits_are_those_of_the_published_package(model, monkeypatch):
    published, extractor, _ = model
    for text, output in zip(TEXTS, published["outputs"], strict=True):
        seen = []
        candidates = extractor._scorer.candidates
        monkeypatch.setattr(
            extractor._scorer, "candidates", lambda logits, *rest: (seen.append(logits), candidates(logits, *rest))[1]
        )
        extractor.extract([text], LABELS)
        monkeypatch.undo()
        expected = np.array(output["logits"]).reshape(output["shape"])
        (logits,) = seen
        is_within = np.isfinite(logits)  # published models score spans beyond the last word, too, and skip them later
        assert logits.shape == expected.shape
        np.testing.assert_allclose(logits[is_within], expected[is_within], atol=1e-5, rtol=1e-5)
