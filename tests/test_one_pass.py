"""One pass of the encoder for several heads: bits of each head alone, every sequence once, other trunks refused."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from examples_of_tasks import COLOURS, WORDS, model_of

from bertkit import Model
from bertkit.errors import UsageError
from bertkit.model import one_pass
from bertkit.redaction import Redactor
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


def results(models: dict[str, Model], texts: list[str]) -> list:
    tagger, topics = models["tagger"], models["topics"]
    redactor = Redactor(["ANIMAL"], tagger=tagger)
    return [
        list(map(asdict, tagger.predict(texts))),
        list(map(asdict, topics.predict(texts))),
        topics.embed(texts, pooling="mean").tobytes(),
        topics.embed(texts, layers="sum-last-4" if topics.config.num_hidden_layers > 3 else "embedding").tobytes(),
        [redactor.redact(text) for text in texts],
    ]


@pytest.mark.parametrize("number", [1, 37])
def test_results_have_the_bits_of_each_head_alone(models, number):
    texts = texts_of(number)
    alone = results(models, texts)
    with one_pass(**models):
        assert results(models, texts) == alone
        assert results(models, texts[::-1])[1] == alone[1][::-1]
    assert results(models, texts) == alone


def test_each_sequence_is_computed_once(models, monkeypatch):
    prepared, computed = models["tagger"]._runner.encoder, []

    def count(batch, **options):
        computed.extend(np.diff(batch.cu_seqlens.numpy()).tolist())
        return prepared(batch, **options)

    texts = list(dict.fromkeys(text for text in texts_of(37) if len(text.split()) < 10))
    with one_pass(**models):
        for model in models.values():
            object.__setattr__(model._prepared, "prepared", count)
        models["tagger"].predict(texts)
        assert len(computed) == len(texts)
        models["topics"].predict(texts)
        models["topics"].embed(texts)
        Redactor(["ANIMAL"], tagger=models["tagger"]).redact(texts[0])
    assert len(computed) == len(texts)


def test_other_trunks_are_refused_by_name(models):
    with pytest.raises(UsageError, match="1 models: expected at least two"), one_pass(tagger=models["tagger"]):
        pass
    with torch.no_grad():
        next(models["topics"].encoder.layers.parameters()).add_(1)
    with (
        pytest.raises(UsageError, match=r"topics has not the trunk of tagger: the weights .* differ"),
        one_pass(**models),
    ):
        pass


def test_a_model_whose_weights_change_computes_again(models):
    (text,) = texts_of(1)
    with one_pass(**models):
        before = models["topics"].embed(text)
        with torch.no_grad():
            models["topics"].encoder.embeddings.word.weight.add_(1)
        after = models["topics"].embed(text)
    assert not np.array_equal(before, after)
    assert np.array_equal(models["topics"].embed(text), after)
