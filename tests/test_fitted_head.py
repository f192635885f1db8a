"""A new head starts fitted: equal to scikit-learn's, over the pooling of its encoder, kept if nothing is better."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from examples_of_tasks import WORDS, first_note
from random_models import our_model, vocabulary_tokens
from sklearn.linear_model import LogisticRegression, Ridge

from bertkit import BertConfig, Model, SequenceClassifier, Tokenizer, load
from bertkit.batch import collate
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import DataError, UsageError
from bertkit.evidence import gather_evidence
from bertkit.finetuning import Finetuning, FinetuningSettings, sweep
from bertkit.finetuning.fitted_head import FittedHead, fit_new_head
from bertkit.finetuning.network import model_to_train, what_head_reads
from bertkit.tasks import (
    ChoiceQuestion,
    MultiLabelClassification,
    MultipleChoice,
    Question,
    Regression,
    SequenceClassification,
    TextExample,
    TokenClassification,
    task_kind,
)
from bertkit.tasks.linear_fit import minimize

SETTINGS = FinetuningSettings.of(num_epochs=2, batch_size=8, learning_rate=3e-3, seed=5)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def sentence_encoder(tmp_path_factory) -> Path:
    """A sentence encoder with initial weights, with a pooler that no training has changed."""
    config = BertConfig(
        vocab_size=99, hidden_size=20, num_attention_heads=4, intermediate_size=44, num_hidden_layers=2,
        max_position_embeddings=40, initializer_range=0.1,
    )  # fmt: skip
    model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), seed=3)
    model.checkpoint.sentence = SentenceSettings(pooling="mean")
    folder = tmp_path_factory.mktemp("sentences") / "model"
    model.save(folder)
    return folder


def texts(number: int, seed: int = 1) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, int(draw.integers(2, 9)))) for _ in range(number)]


def label_of(text: str) -> str:
    return "cat" if "cat" in text else "dog" if "dog" in text else "other"


def labeled(number: int, seed: int = 1) -> list[TextExample]:
    return [TextExample(text, label=label_of(text)) for text in texts(number, seed)]


def pairs(number: int, seed: int = 1) -> list[TextExample]:
    both = zip(texts(number, seed), texts(number, seed + 100), strict=True)
    return [TextExample(a, b, label=float(len(set(a.split()) & set(b.split())))) for a, b in both]


def fitted(encoder: Path, task: Any, examples: list, **settings: Any) -> tuple[Model, FittedHead]:
    model = model_to_train(str(encoder), task, SETTINGS.changed(**settings), print, examples[0])
    return model, fit_new_head(model, examples, "float32")


# ---- equal to scikit-learn


@pytest.mark.parametrize(("num_classes", "factor"), [(2, 2), (3, 1)])
def test_penalty_relative_to_that_of_scikit_learn(num_classes: int, factor: int) -> None:
    draw = np.random.default_rng(0)
    features, labels = draw.normal(size=(60, 4)), np.arange(60) % num_classes
    weight, bias = minimize(
        lambda logits: F.cross_entropy(logits, torch.tensor(labels), reduction="sum"), torch.tensor(features),
        num_classes, 0.1,
    )  # fmt: skip
    theirs = LogisticRegression(C=factor * 0.1, tol=1e-8, max_iter=5_000).fit(features, labels)
    ours = (torch.tensor(features) @ weight.T + bias).softmax(dim=1).numpy()
    assert np.allclose(ours, theirs.predict_proba(features), atol=1e-5)


@pytest.mark.full
def test_probabilities_equal_those_of_logistic_regression(sentence_encoder: Path) -> None:
    train, dev = labeled(200), labeled(60, seed=2)
    model, head = fitted(sentence_encoder, SequenceClassification.of_examples(train, {}), train)
    vectors, others = (model.embed([one.text for one in part], normalize=True) for part in (train, dev))
    theirs = LogisticRegression(C=head.inverse_penalty, tol=1e-8, max_iter=5_000)
    expected = theirs.fit(vectors, [one.label for one in train]).predict_proba(others)
    ours = [list(one.probabilities.values()) for one in model.predict(dev)]
    assert np.abs(np.array(ours) - expected).max() < 1e-3
    assert head.num_examples == 200 and head.num_held_out == 200 and head.metrics["accuracy"] > 0.5
    assert what_head_reads(model) == "mean of the tokens"


@pytest.mark.full
def test_pairs_are_read_apart_and_numbers_are_ridge_regression(sentence_encoder: Path) -> None:
    train, dev = pairs(150), pairs(40, seed=2)
    model, head = fitted(sentence_encoder, Regression.of_examples(train, {}), train)

    def features(part: list[TextExample]) -> np.ndarray:
        first, second = (
            model.embed(list(side), normalize=True)
            for side in zip(*((one.text, one.pair) for one in part), strict=True)
        )
        return np.hstack([np.abs(first - second), first * second, (first * second).sum(axis=1, keepdims=True)])

    rows, targets = features(train), np.array([one.label for one in train])
    penalty = (rows**2).sum(axis=1).mean() / (2 * head.inverse_penalty)
    expected = Ridge(alpha=penalty).fit(rows, targets).predict(features(dev))
    ours = [one.score for one in model.predict(dev)]
    assert ours == pytest.approx(expected, abs=1e-3)
    assert [one.score for one in model.predict(dev[::-1])] == ours[::-1]  # the same bits in any order


@pytest.mark.full
def test_each_of_several_labels_is_a_logistic_regression(sentence_encoder: Path) -> None:
    names = ("blue", "cat", "red")
    train = [TextExample(text, label=tuple(name for name in names if name in text)) for text in texts(120)]
    task = MultiLabelClassification.of_examples(train, {})
    model, head = fitted(sentence_encoder, task, train)
    vectors = model.embed([one.text for one in train], normalize=True)
    ours = np.array([list(one.probabilities.values()) for one in model.predict(train)])
    for index, has in enumerate(task.targets(train).T):
        theirs = LogisticRegression(C=head.inverse_penalty, tol=1e-8, max_iter=5_000).fit(vectors, has)
        assert np.abs(ours[:, index] - theirs.predict_proba(vectors)[:, 1]).max() < 1e-3


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("on_long, max_length", [("window", None), ("window", 8), ("truncate", 12)])
def test_tags_are_fitted_to_first_pieces(sentence_encoder: Path, on_long: Any, max_length: int | None) -> None:
    train = [TokenClassification.example(text.split(), [label_of(word) for word in text.split()]) for text in texts(60)]
    task = TokenClassification.of_examples(train, {})
    model, head = fitted(sentence_encoder, task, train, on_long=on_long, max_length=max_length)
    data = task.labeled(train, task.encode(model.tokenizer, train, model.trained.layout))
    with torch.no_grad():
        states = model.encoder(collate(data.encodings)).last_hidden_state.double().numpy()[data.labels >= 0]
    length, labels = np.sqrt((states**2).sum(axis=1).mean()), data.labels[data.labels >= 0]
    theirs = LogisticRegression(C=head.inverse_penalty, tol=1e-8, max_iter=5_000).fit(states / length, labels)
    layer: Any = model.network.heads["token_classification"]
    with torch.no_grad():
        ours = layer.classifier(torch.from_numpy(states).float()).softmax(-1).numpy()
    assert np.abs(ours - theirs.predict_proba(states / length)).max() < 1e-3


def test_multiple_choice_learns_similarity(sentence_encoder: Path) -> None:
    draw = np.random.default_rng(3)

    def questions(number: int) -> list[ChoiceQuestion]:
        results = []
        for _ in range(number):
            words = draw.choice(WORDS, 3, replace=False).tolist()
            right = int(draw.integers(3))
            results.append(ChoiceQuestion(f"{words[right]} {words[right]}", tuple(words), right))
        return results

    train, dev = questions(80), questions(40)
    model, head = fitted(sentence_encoder, MultipleChoice(), train)
    assert model.trained.task.num_vectors == 2 and head.metrics["accuracy"] > 0.8
    assert model.evaluate(dev)["accuracy"] > 0.8


# ---- which head


def test_head_reads_the_pooling_that_was_trained(sentence_encoder: Path, tmp_path: Path) -> None:
    task, one = SequenceClassification(("a", "b")), TextExample("a cat")
    our_model("pretraining", 3).save(tmp_path / "with-pooler")
    our_model("masked_lm", 3).save(tmp_path / "without")
    expected = {
        (sentence_encoder, "fitted"): ("vector_classification", "mean of the tokens"),
        (sentence_encoder, "published"): ("sequence_classification", "[CLS] and pooler"),
        (tmp_path / "with-pooler", "fitted"): ("sequence_classification", "[CLS] and pooler"),
        (tmp_path / "without", "fitted"): ("vector_classification", "mean of the tokens"),
    }
    for (folder, head), (name, reads) in expected.items():
        model = model_to_train(str(folder), task, SETTINGS.changed(head=head), print, one)
        assert (model.trained.task.head, what_head_reads(model)) == (name, reads)
    model = model_to_train(str(tmp_path / "with-pooler"), task, SETTINGS, print, TextExample("a cat", "a dog"))
    assert model.trained.task.num_vectors == 0  # both texts in one sequence, as in pre-training


@pytest.mark.full
@pytest.mark.parametrize("head", ["published", "fitted"])
def test_folders_are_opened_by_others(sentence_encoder: Path, tmp_path: Path, head: Any) -> None:
    train, lines, out = labeled(40), [], tmp_path / "out"
    run = Finetuning(
        out, sentence_encoder, "sequence-classification", SETTINGS.changed(head=head), log_line=lines.append
    )
    outcome = run.start(train, labeled(20, seed=2))
    assert first_note(lines).startswith("frozen features: ") and "20 dev examples" in first_note(lines)
    card, model = (out / "README.md").read_text(), load(out)
    assert f"accuracy on dev, frozen features | {outcome.baselines['frozen features']:.6g}" in card
    assert first_note(lines).startswith(f"frozen features: {100 * outcome.baselines['frozen features']:.1f} % accuracy")
    assert ("accuracy on dev, frozen features, default head | " in card) == (head == "published")
    if head == "published":
        theirs = transformers.BertForSequenceClassification.from_pretrained(out).eval()
        ids = torch.from_numpy(model.tokenizer.encode("the cat sat").input_ids.astype(np.int64))[None]
        shares = theirs(ids).logits.softmax(-1)[0].tolist()
        assert list(model.predict(["the cat sat"])[0].probabilities.values()) == pytest.approx(shares, abs=1e-5)
    else:
        kinds = [module["type"].rpartition(".")[2] for module in json.loads((out / "modules.json").read_text())]
        assert kinds == ["Transformer", "Pooling", "Normalize"]
        assert np.linalg.norm(model.embed("the cat sat")) == pytest.approx(1, abs=1e-5)


@pytest.mark.full
def test_models_of_pairs_are_saved_and_evaluated(sentence_encoder: Path, tmp_path: Path) -> None:
    both = [replace(one, label="near" if one.label else "far") for one in pairs(60)]
    out = tmp_path / "out"
    Finetuning(out, sentence_encoder, "sequence-classification", SETTINGS, log_line=print).start(both)
    model = load(out)
    predictions = model.predict(both)
    assert model.trained.task.num_vectors == 2 and len(predictions) == 60
    assert model.predict(both[7:8]) == predictions[7:8]  # alone as among others
    evidence = gather_evidence(model, both)
    assert evidence.lengths.num_in_windows == 0 and evidence.num_examples == 60
    with pytest.raises(DataError, match="has one text, but this model was trained with pairs"):
        model.predict(["a cat"])
    windowed = model_to_train(
        str(sentence_encoder), model.trained.task.over_vectors(both[0]), SETTINGS.changed(on_long="window"), print,
        both[0],
    )  # fmt: skip
    assert windowed.trained.layout.on_long == "window"


# ---- training from there


@pytest.mark.full
@pytest.mark.cpu_only
def test_nothing_worse_than_frozen_features_is_kept(sentence_encoder: Path, tmp_path: Path) -> None:
    train, dev = labeled(60), labeled(30, seed=2)
    settings = SETTINGS.changed(learning_rate=5.0, warmup=0.0)  # which destroys the encoder
    run = Finetuning(tmp_path / "out", sentence_encoder, "sequence-classification", settings, log_line=print)
    outcome = run.start(train, dev)
    assert outcome.best_step == 0 and outcome.metrics["accuracy"] == outcome.baselines["frozen features"]
    frozen, _ = fitted(sentence_encoder, SequenceClassification.of_examples(train, {}), train)
    assert load(tmp_path / "out").predict(dev) == frozen.predict(dev)


@pytest.mark.slow
def test_stopped_run_ends_with_the_same_bits(sentence_encoder: Path, tmp_path: Path) -> None:
    train, dev = labeled(40), labeled(20, seed=2)
    for stop_after in (0, 1, 7):
        whole, stopped = (
            Finetuning(tmp_path / f"{name}-{stop_after}", sentence_encoder, "sequence-classification", SETTINGS,
                       log_line=lambda line: None)
            for name in ("whole", "stopped")
        )  # fmt: skip
        expected, steps = whole.start(train, dev), []
        assert (
            stopped.start(
                train, dev, should_stop=lambda steps=steps, last=stop_after: steps.append(1) or len(steps) > last
            ).reason
            == "stopped"
        )
        assert stopped.start(train, dev, resume=True) == expected
        ours, theirs = (dict(load(run.out).network.named_parameters()) for run in (stopped, whole))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.full
@pytest.mark.parametrize("grid", [{"max_length": [5, 20]}, {"head": ["fitted", "published"]}])
def test_every_run_of_a_sweep_begins_with_its_own_head(sentence_encoder: Path, tmp_path: Path, grid: dict) -> None:
    train, dev = labeled(60), labeled(40, seed=2)

    def run_of(name: str, **settings: Any) -> Finetuning:
        settings = SETTINGS.changed(num_epochs=1, **settings)
        return Finetuning(
            tmp_path / name, sentence_encoder, "sequence-classification", settings, log_line=lambda line: None
        )

    sweep(run_of("sweep"), grid, train, dev)
    (name, values), results = next(iter(grid.items())), json.loads((tmp_path / "sweep/run/sweep.json").read_text())
    for value in values:
        assert results[f"{name}={value}"]["metrics"] == run_of(str(value), **{name: value}).start(train, dev).metrics


@pytest.mark.full
def test_copies_of_a_run_fit_their_own_heads(sentence_encoder: Path, tmp_path: Path) -> None:
    first, second, dev = labeled(60), labeled(60, seed=3), labeled(40, seed=2)
    run, alone = (
        Finetuning(tmp_path / name, sentence_encoder, "sequence-classification", SETTINGS, log_line=lambda line: None)
        for name in ("first", "alone")
    )
    run.start(first, dev)
    assert replace(run, out=tmp_path / "second").start(second, dev) == alone.start(second, dev)


@pytest.mark.full
@pytest.mark.cpu_only
def test_rate_of_the_head_is_its_own(sentence_encoder: Path, tmp_path: Path) -> None:
    settings = SETTINGS.changed(head_learning_rate=0.0)
    run = Finetuning(tmp_path / "out", sentence_encoder, "sequence-classification", settings, log_line=print)
    run.start(labeled(40))
    frozen, _ = fitted(sentence_encoder, SequenceClassification.of_examples(labeled(40), {}), labeled(40))
    ours, theirs = (dict(model.network.named_parameters()) for model in (load(tmp_path / "out"), frozen))
    changed = {name for name in theirs if not torch.equal(ours[name], theirs[name])}
    assert changed and not any(name.startswith("heads.") for name in changed)


@pytest.mark.full
@pytest.mark.parametrize("task", ["question-answering", "ordinal-regression", "few-shot-classification"])
def test_other_tasks_start_with_fitted_heads(sentence_encoder: Path, tmp_path: Path, task: str) -> None:
    options: dict[str, Any] = {}
    if task == "question-answering":
        train: list[Any] = [Question("cat", f"{text} cat", ((len(text) + 1, len(text) + 4),)) for text in texts(30)]
    elif task == "ordinal-regression":
        options = {"levels": ["bad", "good"]}
        train = [TextExample(text, label="good" if "cat" in text else "bad") for text in texts(30)]
    else:
        train = labeled(30)
    lines: list[str] = []
    run = Finetuning(tmp_path / "out", sentence_encoder, task, SETTINGS, options, log_line=lines.append)
    outcome = run.start(train, train)
    assert first_note(lines).startswith("frozen features: ")
    assert not math.isnan(outcome.baselines["frozen features"])


# ---- refused


def test_bad_input_has_a_clear_sentence(sentence_encoder: Path, tmp_path: Path) -> None:
    def start(train: list[TextExample], dev: list[TextExample] | None = None, **settings: Any) -> None:
        run = Finetuning(
            tmp_path / "out", sentence_encoder, "sequence-classification", SETTINGS.changed(**settings),
            log_line=lambda line: None,
        )  # fmt: skip
        run.start(train, dev or [])

    same = [TextExample("the cat sat", label=label) for label in ("a", "b") * 8]
    with pytest.raises(DataError, match="all 16 training examples the same features"):
        start(same)
    with pytest.raises(DataError, match="every example has the label 'a'"):
        start([replace(one, label="a") for one in labeled(9)])
    with pytest.raises(DataError, match="no other example has the label 'b'"):
        start([*(replace(one, label="a") for one in labeled(9)), TextExample("b", label="b")])
    with pytest.raises(DataError, match=r"9 examples have 9 different labels.*regression"):
        start([replace(one, label=str(index)) for index, one in enumerate(labeled(9))])
    with pytest.raises(DataError, match="all 6 dev examples have the label 'cat'"):
        start(labeled(40), [TextExample("a cat", label="cat")] * 6)
    for wrong in ({"head": "bald"}, {"head_learning_rate": -1.0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            SETTINGS.changed(**wrong)


@pytest.mark.full
def test_estimators_take_the_same_settings(sentence_encoder: Path) -> None:
    X, y = [one.text for one in labeled(40)], [one.label for one in labeled(40)]
    for head, name in (("fitted", "vector_classification"), ("drawn", "sequence_classification")):
        estimator = SequenceClassifier(sentence_encoder, head=head, num_epochs=1).fit(X, y)
        assert list(estimator.model_.network.heads) == [name] and estimator.predict(X).shape == (40,)
    assert task_kind("sequence-classification").head == "sequence_classification"
