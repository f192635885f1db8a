"""Several heads from one pass of the encoder: bits of each head alone, every sequence once, other trunks refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples_of_tasks import COLOURS, WORDS, model_of

import bertkit
from bertkit import Model
from bertkit.errors import MissingHeadError, UsageError
from bertkit.model.shared_pass import SharedTrunk
from bertkit.tasks import SequenceClassification, TokenClassification

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def models() -> dict[str, Model]:
    """Heads, and a pooler each, over one trunk."""
    tagger, topics = (
        model_of(TokenClassification(("B-animal", "I-animal", "O"))),
        model_of(SequenceClassification(COLOURS)),
    )
    with torch.no_grad():
        weights = dict(tagger.encoder.named_parameters())
        for name, weight in topics.encoder.named_parameters():
            if not name.startswith("pooler."):
                weight.copy_(weights[name])
    return {"tagger": tagger, "topics": topics}


def texts_of(number: int) -> list[str]:
    draw = np.random.default_rng(number)
    return [" ".join(draw.choice(WORDS, int(draw.integers(1, 45)))) for _ in range(number)]  # up to three windows


def alone(models: dict[str, Model], texts: list[str]) -> list[tuple[Any, ...]]:
    tagger, topics = models["tagger"], models["topics"]
    vectors = tagger.embed(texts, on_long="window").tolist()
    columns = [tagger.extract(texts), topics.predict(texts), vectors, tagger.redact(texts)]
    return list(zip(*columns, strict=True))


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(entities, label, vector.tolist(), redaction) for entities, label, vector, redaction in rows]


@pytest.mark.parametrize("number", [1, 37])
def test_results_have_the_bits_of_each_head_alone(models, monkeypatch, number):
    texts, tagger = texts_of(number), models["tagger"]
    expected = alone(models, texts)
    assert any(entities for entities, *_ in expected) and len({str(label) for _, label, *_ in expected}) == number
    heads: Any = ["entities", models["topics"], "vector", "redaction"]
    assert plain(tagger.run(texts, heads)) == expected
    assert plain(tagger.run(texts[::-1], heads)) == expected[::-1]
    assert plain([tagger.run(texts[0], heads)]) == expected[:1]
    monkeypatch.setattr("bertkit.model.finding._WEIGHT_OF_PASS", 10**6)  # several passes
    assert plain(tagger.run(iter(texts), heads)) == expected
    assert alone(models, texts) == expected


def test_results_of_opened_folders_have_the_same_bits(models, tmp_path: Path):
    for name, model in models.items():
        model.save(tmp_path / name)
    texts = texts_of(9)
    opened = {name: bertkit.load(tmp_path / name) for name in models}
    expected = alone(opened, texts)  # computed before torch is needed
    assert plain(opened["tagger"].run(texts, ["entities", opened["topics"], "vector", "redaction"])) == expected


def test_each_sequence_is_computed_once(models, monkeypatch):
    computed, base = list[int](), models["tagger"]._runner
    run = type(base).run

    def count(self, encodings, forward, **options):
        if self is base:
            computed.extend(encodings.seqlens.tolist())
        return run(self, encodings, forward, **options)

    monkeypatch.setattr(type(base), "run", count)
    texts = list(dict.fromkeys(text for text in texts_of(37) if len(text.split()) < 10))
    rows = models["tagger"].run(texts, ["entities", models["topics"], "vector", "redaction", "prediction"])
    assert len(computed) == len(rows) == len(texts) > 5


def test_vectors_of_other_layers_have_the_same_bits(models):
    texts, tagger = texts_of(5), models["tagger"]
    heads = SharedTrunk(models).one_pass()
    for options in ({"pooling": "cls"}, {"layers": "embedding"}):
        for name, model in models.items():
            assert heads[name].embed(texts, **options).tobytes() == model.embed(texts, **options).tobytes()
    topics = models["topics"]
    assert heads["topics"].embed(texts, pooling="pooler").tobytes() == topics.embed(texts, pooling="pooler").tobytes()
    assert heads["tagger"].embed(texts).tobytes() == tagger.embed(texts).tobytes()


def test_heads_that_cannot_be_used_are_refused(models):
    tagger, topics = models["tagger"], models["topics"]
    for heads, message in (
        ([], r"heads=\[\]: expected a list of some of entities"),
        ("vector", "heads='vector': expected a list"),
        (["labels"], "the head 'labels': expected one of entities"),
        ([3], "the head 3: expected one of"),
    ):
        with pytest.raises(UsageError, match=message):
            tagger.run(["a cat"], heads)
    with pytest.raises(MissingHeadError, match="finds no entities"):
        topics.run(["a cat"], ["entities"])
    with torch.no_grad():
        next(topics.encoder.layers.parameters()).add_(1)
    with pytest.raises(UsageError, match=r"heads\[1\] has not the trunk of this model: the weights .* differ"):
        tagger.run(["a cat"], ["vector", topics])
