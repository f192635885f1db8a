"""Static encoders extracted from a model and trained on pairs of texts."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit import Batch, BertConfig, InferenceReport, Model, StaticEncoder
from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.tasks import TextSet
from bertkit.tokenizer import Tokenizer
from bertkit.training import Outcome
from bertkit.words.contrastive import StaticTraining
from bertkit.words.extraction import extract, principal_components, token_outputs
from bertkit.words.opening import open_words
from bertkit.words.settings import PairTraining

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FOODS, TOOLS = "bread cheese soup apple rice".split(), "hammer saw drill nail screw".split()


def tiny_model() -> Model:
    tokenizer = Tokenizer.from_vocab([*SPECIAL, *FOODS, *TOOLS, *"the a of in to and on at by it".split()])
    config = BertConfig(
        vocab_size=25, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        max_position_embeddings=16,
    )  # fmt: skip
    return Model.create(config, tokenizer, seed=7)


def test_token_alone_is_the_mean_of_three_outputs():
    model = tiny_model()
    ids = np.array([7, 9, 20])
    outputs = token_outputs(model, ids)
    for row, token in zip(outputs, ids.tolist(), strict=True):
        batch = torch.tensor([[model.tokenizer.cls_id, token, model.tokenizer.sep_id]])
        states = model.encoder(Batch.from_padded(batch)).last_hidden_state
        np.testing.assert_allclose(row, states.mean(dim=0).detach().numpy(), atol=1e-6)


def test_principal_components_keep_distances_and_equal_scikit_learn():
    decomposition = pytest.importorskip("sklearn.decomposition")
    vectors = np.random.default_rng(0).normal(size=(50, 9)).astype(np.float32)
    ours, theirs = principal_components(vectors, 4), decomposition.PCA(4).fit_transform(vectors)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-4)


def test_extracted_encoders_have_weights_by_rank(tmp_path):
    model = tiny_model()
    encoder = extract(model, 5)
    assert encoder.embedding_dim == 5 and encoder.settings.normalize
    assert np.all(np.diff(encoder.weights) > 0)
    encoder.save(tmp_path / "static")
    text = model.tokenizer.vocabulary.tokens[20]
    opened = StaticEncoder.open(tmp_path / "static").embed(text, report=InferenceReport())
    np.testing.assert_allclose(opened, encoder.embed(text, report=InferenceReport()), atol=1e-6)
    with pytest.raises(UsageError, match="the width of the model"):
        extract(model, 1_000)
    assert extract(model).embedding_dim == model.config.hidden_size  # which is less than 256


def topic_rows(number: int) -> list[TextSet]:
    random = np.random.default_rng(0)
    return [
        TextSet(" ".join(random.choice(topic, 3)), (" ".join(random.choice(topic, 3)),))
        for topic in (FOODS, TOOLS) * (number // 2)
    ]


def trained(rows: list[TextSet], tokenizer: Tokenizer, settings: PairTraining) -> tuple[StaticEncoder, Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        outcome = StaticTraining(Path(folder) / "out", tokenizer, settings, log_line=lambda line: None).start(rows)
        return open_words(Path(folder) / "out"), outcome


@pytest.mark.slow
def test_similar_texts_are_close_at_every_width():
    tokenizer = Tokenizer.from_vocab([*SPECIAL, *FOODS, *TOOLS])
    settings = PairTraining(dimensions=16, nested=(16, 4), batch_size=20, num_epochs=20)
    encoder, report = trained(topic_rows(200), tokenizer, settings)
    again, _ = trained(topic_rows(200), tokenizer, settings)
    np.testing.assert_array_equal(encoder.vectors, again.vectors)
    assert report.metrics["last_loss"] < report.metrics["first_loss"] and report.step == 200
    for width in (4, 16):
        vectors = encoder.embed(FOODS + TOOLS, dimensions=width)
        cosines = vectors @ vectors.T
        assert cosines[:5, :5].mean() > cosines[:5, 5:].mean() + 0.5
    with pytest.raises(DataError, match="expected at least two"):
        trained(topic_rows(2)[:1], tokenizer, settings)


def vector_changes(rows: list[TextSet], **settings: int) -> np.ndarray:
    """How far an epoch moved the vector of each word, from the initial ones of the same seed."""
    tokenizer = Tokenizer.from_vocab([*SPECIAL, *FOODS, *TOOLS])
    initial = torch.randn(15, 8, generator=torch.Generator().manual_seed(0)).numpy()
    encoder, _ = trained(rows, tokenizer, PairTraining(dimensions=8, nested=(), **settings))
    return np.abs(encoder.vectors - initial).max(axis=1)


@pytest.mark.parametrize(("batch_size", "num_steps"), [(2, 2), (3, 2), (4, 1), (5, 1)])
def test_every_row_is_trained_in_each_epoch(batch_size, num_steps):
    words = FOODS + TOOLS
    rows = [TextSet(words[2 * number], (words[2 * number + 1],)) for number in range(5)]
    tokenizer = Tokenizer.from_vocab([*SPECIAL, *words])
    _, report = trained(rows, tokenizer, PairTraining(dimensions=8, batch_size=batch_size))
    assert report.step == num_steps
    assert (vector_changes(rows, batch_size=batch_size)[len(SPECIAL) :] > 0).all()


def test_unknown_words_are_skipped_in_training_as_in_the_encoder():
    rows = [TextSet("bread zebra", ("cheese zebra",)), TextSet("hammer zebra", ("saw zebra",))]
    changes = vector_changes(rows)
    assert np.count_nonzero(changes[len(SPECIAL) :]) == 4  # special tokens have no vectors


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([TextSet("a", ("b",), score=0.1), TextSet("c", ("d",), score=0.9)], "has a score, but static encoders"),
        ([TextSet("a", ("b",), ("c",)), TextSet("a", ("c",))], "'c' is a negative here and a positive"),
        ([TextSet("a", ("a",))] * 3, "every text is the same"),
    ],
)
def test_rows_that_cannot_be_learned(rows, message):
    with pytest.raises(DataError, match=message):
        trained(rows, Tokenizer.from_vocab([*SPECIAL, "a", "b", "c", "d"]), PairTraining())


def test_commands(tmp_path, capfd):
    rows = [{"anchor": one.query, "positive": one.positives[0]} for one in topic_rows(8)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tiny_model().save(tmp_path / "model")
    arguments = ["words", "train-pairs", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / "static")]
    assert run([*arguments, "--dimensions", "8", "--vocabulary", str(tmp_path / "model")]) == 0
    assert json.loads(capfd.readouterr().out)["num_rows"] == 8
    assert run(arguments) == 2
    assert "already contains a run" in capfd.readouterr().err
    arguments[-1] = str(tmp_path / "other")
    with pytest.raises(UsageError, match="expected an integer"):
        PairTraining(dimensions=2.5)  # type: ignore[arg-type]
    for extra, message in (
        (["--seed", "-1"], "--seed -1: expected an integer from 0"),
        (["--temperature", "0"], "--temperature 0"),
        (["--batch-size", "1"], "--batch-size 1: expected an integer of at least 2, as the other rows are negatives"),
        (["--nested", "0"], "--nested [0]: expected different widths of at least 1"),
        (["--nested", "4", "--nested", "4"], "--nested [4, 4]: expected different widths of at least 1"),
        (["--learning-rate", "-1"], "--learning-rate -1"),
        (["--learning-rate", "1e30"], "--learning-rate 1e+30: training diverged"),
    ):
        assert run([*arguments, "--dimensions", "8", "--vocabulary", str(tmp_path / "model"), *extra]) == 2
        assert message in capfd.readouterr().err and not list((tmp_path / "other").glob("*"))
    renamed = [{"q": row["anchor"], "a": row["positive"]} for row in rows]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, renamed)))
    named = [*arguments[:-1], str(tmp_path / "named"), "--vocabulary", str(tmp_path / "model")]
    assert run([*named, "--columns", "query=q", "positive=a"]) == 0
    (tmp_path / "pairs.jsonl").write_text("\n".join(json.dumps(row | {"score": 0.5}) for row in rows))
    assert run([*arguments, "--vocabulary", str(tmp_path / "model")]) == 2  # a pair with a low score is no positive
    assert "pairs.jsonl, line 1: has a score, but static encoders learn from pairs without" in capfd.readouterr().err
    distilled = ["words", "extract", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "distilled")]
    assert run([*distilled, "--dimensions", "6"]) == 0
    assert StaticEncoder.open(tmp_path / "distilled").embedding_dim == 6
    capfd.readouterr()
    assert run([*distilled[:-1], str(tmp_path / "whole")]) == 0
    assert "dimensions: all of them are kept" in capfd.readouterr().err
