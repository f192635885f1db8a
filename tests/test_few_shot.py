"""Learning from few examples: pairs, the contrastive loss, the linear layer, saved models."""

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from random_models import our_model, vocabulary_tokens
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import bertkit
from bertkit import BertConfig, FewShotClassifier, Model, SequenceClassifier, Tokenizer
from bertkit.batch import LabeledEncodings
from bertkit.checkpoint import SentenceSettings
from bertkit.cli import run
from bertkit.errors import CheckpointError, DataError, UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import FewShotClassification
from bertkit.tasks.few_shot import ROUNDS, TEMPERATURE, ContrastFeed
from bertkit.tasks.linear_fit import FEW_SHOT_PENALTY, minimize
from bertkit.training import outputs_of

WORDS = "the of and sat un run walk talk blue red green one two three four".split()
KINDS = ("cat", "dog", "mat")
SETTINGS = FinetuningSettings.of(num_epochs=2, batch_size=20, learning_rate=3e-3, tokens_per_part=150, seed=5)

pytestmark = pytest.mark.usefixtures("one_thread")


def small_encoder(**changes: float) -> Model:
    """A sentence encoder with initial weights, without a pooler."""
    config = BertConfig(
        vocab_size=99, hidden_size=20, num_attention_heads=4, intermediate_size=44, num_hidden_layers=1,
        max_position_embeddings=24, initializer_range=0.1, **changes,
    )  # fmt: skip
    model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), ("masked_lm",), seed=3)
    model.checkpoint.sentence = SentenceSettings(pooling="mean")
    return model


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "model"
    small_encoder().save(folder)
    return folder


def data(number: int = 24, seed: int = 1) -> tuple[list[str], list[str]]:
    """One word of seven determines the class; the same number of texts of each."""
    draw = np.random.default_rng(seed)
    labels = [KINDS[index % 3] for index in range(number)]
    return [" ".join(draw.permutation([*draw.choice(WORDS, 6), label])) for label in labels], labels


def examples(number: int = 24, seed: int = 1) -> list:
    return [FewShotClassification.example(text, label) for text, label in zip(*data(number, seed), strict=True)]


def feed_of(labels: list[int], batch_size: int, seed: int = 5) -> ContrastFeed:
    """A feed of texts that are identified by their lengths."""
    tokenizer = Tokenizer.from_vocab(vocabulary_tokens(99))
    texts = [" ".join(["cat"] * index) for index in range(1, len(labels) + 1)]
    encodings = tokenizer.encode_batch(texts, max_length=None, on_long="error", with_offsets=False)
    return ContrastFeed(LabeledEncodings(encodings, np.array(labels)), batch_size, seed)


def texts_of(feed: ContrastFeed, position: int) -> np.ndarray:
    """(P, 2) the texts and partners of a batch, by their lengths."""
    batch = feed.batch(position, 0.0)
    texts = np.array(batch.batch.seqlens) - 3  # [CLS], [SEP]; the first text has one word
    assert (feed.data.labels[texts] == batch.labels.numpy()).all()
    return texts.reshape(-1, 2)


# ---- pairs


def test_every_text_is_drawn_alike_with_all_partners_of_its_class() -> None:
    labels = [0] * 7 + [1] * 2 + [2] * 5 + [0] * 3 + [3] * 7  # 24 texts
    feed, epochs = feed_of(labels, 32), 60
    assert feed.batches_per_epoch == 24 * ROUNDS // 32
    pairs = np.concatenate([texts_of(feed, position) for position in range(epochs * feed.batches_per_epoch)])
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert (feed.data.labels[pairs[:, 0]] == feed.data.labels[pairs[:, 1]]).all()
    of_epochs = pairs[:, 0].reshape(epochs, -1)
    assert all((np.bincount(drawn) == ROUNDS).all() for drawn in of_epochs)
    assert not (of_epochs[0] == of_epochs[1]).all()
    for text in range(24):
        others = [other for other in range(24) if labels[other] == labels[text] and other != text]
        drawn = np.bincount(pairs[pairs[:, 0] == text, 1], minlength=24)[others]
        expected, share = epochs * ROUNDS / len(others), 1 / len(others)
        assert np.abs(drawn - expected).max() <= 4.5 * math.sqrt(epochs * ROUNDS * share * (1 - share) + 1e-9), text


def test_batch_is_a_function_of_seed_and_position() -> None:
    labels = [0, 1, 2] * 8
    for position in (0, 3, 11):
        first = texts_of(feed_of(labels, 20), position)
        assert (texts_of(feed_of(labels, 20), position) == first).all()
        assert not (texts_of(feed_of(labels, 20, seed=6), position) == first).all()
    for batch_size in (2, 15, 16, 20, 33, 35):
        batch = feed_of(labels, batch_size).batch(1, 0.0)
        assert batch.labels.shape == (2 * batch_size,) and len(batch) == 2 * batch_size
        parts = batch.split(2)
        assert torch.cat([part.batch.input_ids for part in parts]).equal(batch.batch.input_ids) and len(parts) == 2
    with pytest.raises(UsageError, match="batch_size=1"):
        feed_of(labels, 1)


# ---- the loss


def test_loss_equals_that_of_a_plain_loop() -> None:
    task = FewShotClassification(("a", "b", "c", "d", "e"))
    model = our_model("vector_classification", 5, num_labels=5)
    feed = feed_of([0, 1, 2, 3] * 4, 33)
    batch = feed.batch(2, 0.0)
    batch.labels[3] = 4  # alone in the batch
    totals = task.totals(batch)
    whole = task.loss(task.vectors(outputs_of(model.network, batch)), batch, totals)

    hidden = model.encoder(batch.batch).last_hidden_state.detach().double().split(batch.batch.seqlens)
    vectors = [states.mean(0) / states.mean(0).norm() for states in hidden]
    losses, right = [], 0
    labels = batch.labels.tolist()
    for index, label in enumerate(labels):
        others = [other for other in range(len(labels)) if other != index]
        scores = {other: float(vectors[index] @ vectors[other]) / TEMPERATURE for other in others}
        log_sum = math.log(sum(math.exp(score) for score in scores.values()))
        results = [log_sum - scores[other] for other in others if labels[other] == label]
        losses += [sum(results) / len(results)] if results else []
        right += labels[max(scores, key=scores.__getitem__)] == label
    assert totals.item() == len(losses) == 65
    assert whole.value.item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    metrics = task.metrics(whole.sums)
    assert metrics["loss"] == pytest.approx(whole.value.item(), rel=1e-5)
    assert metrics["nearest_accuracy"] == pytest.approx(right / 65)


# ---- the linear layer


def logistic_regression(vectors: torch.Tensor, labels: torch.Tensor, num_labels: int) -> tuple:
    def loss(logits: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, labels, reduction="sum")

    return minimize(loss, vectors.double(), num_labels, FEW_SHOT_PENALTY)


def test_linear_layer_is_scikit_learns() -> None:
    draw = np.random.default_rng(4)
    labels = np.repeat([0, 1, 2, 3], [9, 2, 7, 4])
    vectors = draw.normal(size=(22, 5)) + np.eye(5)[labels]
    weight, bias = logistic_regression(torch.from_numpy(vectors), torch.from_numpy(labels), 4)
    theirs = LogisticRegression(C=FEW_SHOT_PENALTY, tol=1e-8, max_iter=1_000).fit(vectors, labels)
    assert np.abs(weight.numpy() - theirs.coef_).max() < 1e-4
    assert np.abs((bias - bias.mean()).numpy() - (theirs.intercept_ - theirs.intercept_.mean())).max() < 1e-4


# ---- what comes out


def run_of(out: Path, encoder: Path, settings: FinetuningSettings = SETTINGS) -> Finetuning:
    return Finetuning(out, encoder, "few-shot-classification", settings, log_line=lambda line: None)


@pytest.mark.full
def test_contrastive_training_separates_labels_of_frozen_vectors(tmp_path: Path) -> None:
    """The words that determine the classes have nearly the same vector; the number of other words is irrelevant."""
    hiding, out = tmp_path / "encoder", tmp_path / "out"
    model = small_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    indices, words = [model.tokenizer.vocabulary.id(word) for word in KINDS], model.encoder.embeddings.word.weight.data
    words[indices] = words[indices[0]] + 0.1 * (words[indices] - words[indices[0]])
    model.save(hiding)

    def drawn(number: int, seed: int) -> list:
        draw = np.random.default_rng(seed)
        labels = [KINDS[index % 3] for index in range(number)]
        texts = [" ".join(draw.permutation([*draw.choice(WORDS[:4], draw.integers(3, 8)), name])) for name in labels]
        return [FewShotClassification.example(text, name) for text, name in zip(texts, labels, strict=True)]

    train, dev = drawn(60, 1), drawn(90, 2)
    settings = SETTINGS.changed(num_epochs=6, batch_size=32, learning_rate=1e-2)
    outcome = run_of(out, hiding, settings).start(train, dev)
    lines = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    results = [line["accuracy"] for line in lines if line["event"] == "evaluation"]
    assert results[0] < 0.6 and outcome.metrics["accuracy"] == max(results[1:]) > 0.9, results
    model = bertkit.load(out)
    assert model.evaluate(dev) == pytest.approx(outcome.metrics, rel=1e-4)
    assert tuple(model.network.heads) == ("vector_classification",) and model.sentence_settings.normalize
    vectors = torch.from_numpy(model.embed([one.text for one in train]))
    again, _ = logistic_regression(vectors, torch.tensor([KINDS.index(one.label) for one in train]), 3)
    head = model.network.cpu().heads["vector_classification"]
    assert torch.allclose(head.classifier.weight.double(), again, atol=1e-2)
    vectors = model.embed(data(9, 3)[0])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    logits = vectors @ head.classifier.weight.detach().numpy().T + head.classifier.bias.detach().numpy()
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    predicted = [list(one.probabilities.values()) for one in model.predict(data(9, 3)[0])]
    assert np.allclose(predicted, shares, atol=1e-5)


@pytest.mark.full
def test_saved_encoders_open_in_other_libraries(tmp_path: Path, encoder: Path) -> None:
    run_of(tmp_path / "out", encoder).start(examples())
    model, text = bertkit.load(tmp_path / "out"), "the cat sat on one mat"
    theirs, report = transformers.AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    encoding = model.tokenizer.encode(text)
    with torch.inference_mode():
        states = theirs.eval()(torch.tensor([encoding.input_ids.tolist()])).last_hidden_state[0]
    vector = states.mean(0).numpy()
    assert np.allclose(model.embed(text), vector / np.linalg.norm(vector), atol=1e-5)
    assert {name.partition(".")[0] for name in report["missing_keys"]} <= {"pooler"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["BertForVectorClassification"]
    assert list(config["id2label"].values()) == sorted(KINDS)
    modules = json.loads((tmp_path / "out" / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["Transformer", "Pooling", "Normalize"]
    plain = bertkit.load(tmp_path / "out", heads=["sequence_classification"], new=["sequence_classification", "pooler"])
    assert tuple(plain.network.heads) == ("sequence_classification",)


@pytest.mark.full
def test_stopped_run_ends_with_the_same_bits(tmp_path: Path, encoder: Path) -> None:
    dev, steps = examples(9, seed=2), []
    for settings in (SETTINGS, SETTINGS.changed(lora_rank=2)):
        name = str(settings.lora_rank)
        run_of(tmp_path / f"whole {name}", encoder, settings).start(examples(), dev)
        stopped = run_of(tmp_path / f"stopped {name}", encoder, settings)
        steps.clear()
        assert stopped.start(examples(), dev, should_stop=lambda: steps.append(1) or len(steps) > 7).reason == "stopped"
        assert stopped.start(examples(), dev, resume=True).reason == "finished"
        ours, theirs = (
            dict(bertkit.load(tmp_path / f"{kind} {name}").network.named_parameters()) for kind in ("stopped", "whole")
        )
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.full
def test_modern_encoder_learns(tmp_path: Path) -> None:
    config = bertkit.ModernBertConfig(
        vocab_size=99, hidden_size=20, num_attention_heads=2, intermediate_size=24, num_hidden_layers=2,
        max_position_embeddings=24, local_attention=8,
    )  # fmt: skip
    Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), seed=3).save(tmp_path / "encoder")
    run_of(tmp_path / "out", tmp_path / "encoder").start(examples())
    model = bertkit.load(tmp_path / "out")
    assert {one.label for one in model.predict(data()[0])} <= set(KINDS)
    model.save(tmp_path / "again")
    assert bertkit.load(tmp_path / "again").predict(["a cat"]) == model.predict(["a cat"])


# ---- faces


@pytest.mark.full
def test_estimator(tmp_path: Path, encoder: Path) -> None:
    texts, labels = data()
    fast = {"num_epochs": 2, "batch_size": 16, "learning_rate": 3e-3}
    fitted = FewShotClassifier(encoder, **fast).fit(texts, np.array(labels))
    probabilities = fitted.predict_proba(texts)
    assert fitted.classes_.tolist() == sorted(KINDS) and probabilities.shape == (24, 3)
    assert fitted.score(texts, labels) > 0.8
    assert np.allclose(pickle.loads(pickle.dumps(fitted)).predict_proba(texts), probabilities, atol=1e-6)
    assert clone(fitted).get_params() == fitted.get_params() and "class_weights" not in fitted.get_params()
    fitted.save(tmp_path / "saved")
    assert np.allclose(FewShotClassifier.load(tmp_path / "saved").predict_proba(texts), probabilities, atol=1e-6)
    with pytest.raises(CheckpointError, match="holds a FewShotClassifier"):
        SequenceClassifier.load(tmp_path / "saved")
    search = GridSearchCV(FewShotClassifier(encoder, **fast), {"num_epochs": [1, 2]}, cv=2).fit(texts, labels)
    assert search.predict(texts).shape == (24,)


@pytest.mark.full
def test_commands(tmp_path: Path, encoder: Path, capsys) -> None:
    rows = "".join(f"{text},{label}\n" for text, label in zip(*data(), strict=True))
    (tmp_path / "train.csv").write_text("text,label\n" + rows)
    (tmp_path / "texts.txt").write_text("the cat\nred dog\n")
    out = str(tmp_path / "out")
    arguments = ["finetune", "few-shot-classification", "--model", str(encoder), "--train", str(tmp_path / "train.csv"),
                 "--out", out, "--num-epochs", "1", "--learning-rate", "0.003"]  # fmt: skip
    assert run(arguments) == 0
    capsys.readouterr()
    assert run(["predict", "--model", out, "--input", str(tmp_path / "texts.txt")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2 and {line["label"] for line in lines} <= set(KINDS)


def test_bad_input(tmp_path: Path, encoder: Path) -> None:
    classifier = FewShotClassifier(encoder)
    with pytest.raises(DataError, match="text 2: no other example has the label 'b'"):
        classifier.fit(["one", "two", "three"], ["a", "a", "b"])
    with pytest.raises(DataError, match="every example has the label 'a'"):
        classifier.fit(["one", "two"], ["a", "a"])
    with pytest.raises(UsageError, match="one class per text"):
        classifier.fit(["one", "two"], [[0, 1], [1, 0]])
    with pytest.raises(UsageError, match="batch_size=1"):
        classifier.set_params(batch_size=1).fit(*data())
    with pytest.raises(UsageError, match="no parameter 'class_weights'"):
        FewShotClassifier(encoder, class_weights="balanced")
    run = Finetuning(tmp_path / "out", encoder, "few-shot-classification", SETTINGS, {"label_smoothing": 0.1})
    with pytest.raises(UsageError, match="no label_smoothing"):
        run.start(examples())
    our_model("sequence_classification", 3).save(tmp_path / "other")
    with pytest.raises(CheckpointError, match="holds a model for sequence-classification"):
        FewShotClassifier.load(tmp_path / "other")
