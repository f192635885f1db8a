"""Thresholds with a promise: they hold on other rows over many splits, and models use what is stored."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from examples_of_tasks import COLOURS, WORDS, model_of
from gliner_reference import LABELS, STORED, write_model
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

import bertkit
from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.evidence.conformal import error_threshold, recall_threshold, rows_needed
from bertkit.evidence.promises import promise_error
from bertkit.extraction import open_extractor
from bertkit.serving.task_api import labels_as_json
from bertkit.tasks import Regression, SequenceClassification


@pytest.mark.parametrize(("error", "num_rows"), [(0.05, 200), (0.1, 60), (0.02, 49)])
def test_the_promised_error_holds_on_other_rows(error, num_rows):
    draw, shares = np.random.default_rng(3), []
    for _ in range(2000):
        confidence = draw.beta(4, 2, num_rows + 50)
        is_wrong = draw.random(len(confidence)) > confidence  # a third is wrong
        threshold = error_threshold(confidence[:num_rows], is_wrong[:num_rows], error)
        shares.append((is_wrong & (confidence > threshold))[num_rows:].mean())
    assert error - 0.02 < np.mean(shares) <= error + 0.002


@pytest.mark.parametrize("recall", [0.9, 0.8])
def test_the_promised_recall_holds_on_other_rows(recall):
    draw, found, total = np.random.default_rng(4), 0, 0
    for _ in range(1000):
        counts = draw.integers(0, 5, 260)
        row_of = np.repeat(np.arange(260), counts)
        ease = draw.normal(0, 1, 260)[row_of] - 0.2 * counts[row_of]  # entities of a text are alike
        scores = 1 / (1 + np.exp(-ease - draw.normal(1, 1, len(row_of))))
        here = row_of < 200
        threshold = recall_threshold(scores[here], row_of[here], 200, recall)
        found, total = found + (scores[~here] > threshold).sum(), total + (~here).sum()
    assert recall - 0.002 <= found / total < recall + 0.02


def test_thresholds_of_a_few_scores():
    confidence, is_wrong = np.linspace(0.1, 0.9, 9), np.arange(9) % 2 == 1  # wrong: .2 .4 .6 .8
    assert error_threshold(confidence, is_wrong, 0.1) == pytest.approx(0.8)  # no wrong answer is allowed
    assert error_threshold(confidence, is_wrong, 0.2) == pytest.approx(0.6)
    assert error_threshold(confidence, is_wrong, 0.5) == 0
    scores = np.arange(1, 20) / 20
    assert recall_threshold(scores, np.arange(19), 19, 0.95) == 0
    assert recall_threshold(scores, np.arange(19), 19, 0.9) == pytest.approx(0.05)


def test_too_few_rows_are_refused():
    with pytest.raises(DataError, match=r"18 rows: a promise of 0\.05 needs at least 19"):
        error_threshold(np.ones(18), np.zeros(18, bool), 0.05)
    with pytest.raises(DataError, match="needs at least 76"):
        recall_threshold(np.ones(75), np.arange(75) // 4, 19, 0.95)
    with pytest.raises(DataError, match=r"misses 2 of 19 items at any threshold: a recall of 0\.9 allows 1"):
        recall_threshold(np.array([-1, -1, *np.ones(17)]), np.arange(19), 19, 0.9)
    assert rows_needed(0.05) == 19


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "model"
    model_of(SequenceClassification(COLOURS)).save(folder)
    return folder


def rows_of(number: int, labels: tuple[str, ...] = COLOURS) -> list[tuple[str, str]]:
    draw = np.random.default_rng(number)
    return [(" ".join(draw.choice(WORDS, 6)), str(draw.choice(labels))) for _ in range(number)]


def write(path: Path, rows: list[tuple[str, str]]) -> str:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return str(path)


def test_a_classifier_stores_and_uses_what_was_chosen(classifier, tmp_path, capsys):
    before = bertkit.load(classifier)
    rows = rows_of(120)
    assert run(["calibrate", write(tmp_path / "rows.csv", rows), "--model", str(classifier), "--error", "0.1"]) == 0
    promise = json.loads(capsys.readouterr().out)
    model = bertkit.load(classifier)
    task = model.trained.task
    assert (task.temperature, task.threshold) == (promise["temperature"], promise["threshold"])
    assert task.temperature != 1
    assert task.threshold > 0
    assert promise["share_wrong"] <= 0.1 > promise["share_answered"] - 0.9
    texts = [text for text, _ in rows]
    predictions = model.predict(texts)
    assert any(each.label is None for each in predictions)
    for one, plain in zip(predictions, before.predict(texts), strict=True):
        logits = np.log(list(plain.probabilities.values())) / task.temperature
        expected = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(list(one.probabilities.values()), expected, rtol=1e-4)
        assert one.likeliest == plain.label
        assert one.label == (plain.label if max(one.probabilities.values()) > task.threshold else None)
    assert model.evaluate(rows)["accuracy"] == before.evaluate(rows)["accuracy"]
    model.save(tmp_path / "saved")
    assert bertkit.load(tmp_path / "saved").trained.task == task


def test_invalid_rows_are_refused_and_nothing_is_stored(classifier, tmp_path, capsys):
    stored = (classifier / "bertkit.json").read_bytes()
    given = {
        "needs at least 38": rows_of(37),
        "every row has the label 'red'": rows_of(60, ("red",)),
        "purple": rows_of(60, ("red", "purple")),
        "no ": [],
    }
    for message, rows in given.items():
        assert run(["calibrate", write(tmp_path / "rows.csv", rows), "--model", str(classifier)]) == 2
        assert message in capsys.readouterr().err
    path = write(tmp_path / "rows.csv", rows_of(60))
    assert run(["calibrate", path, "--model", str(classifier), "--recall", "0.9"]) == 2
    assert run(["calibrate", path, "--model", str(tmp_path / "none")]) == 2
    assert (classifier / "bertkit.json").read_bytes() == stored
    with pytest.raises(UsageError, match="trained for regression"):
        promise_error(model_of(Regression()), [], 0.1)
    with pytest.raises(UsageError, match="error=1"):
        promise_error(model_of(SequenceClassification(COLOURS)), rows_of(60), 1.0)
    with pytest.raises(UsageError, match="temperature"):
        replace(SequenceClassification(COLOURS), temperature=0.0)


def test_an_extractor_stores_and_uses_its_threshold(tmp_path, capsys):
    folder = write_model(next(iter(json.loads(STORED.read_text()).values())), tmp_path / "model")
    extractor, rows = open_extractor(folder), []
    assert extractor.threshold == 0.5
    draw = np.random.default_rng(5)
    texts = [" ".join(draw.choice(WORDS, 8)) for _ in range(60)]
    for text, found in zip(texts, extractor.extract(texts, LABELS[:1], threshold=0.01), strict=True):
        spans = [{"start": each.start, "end": each.end, "label": each.label} for each in found[:2]]
        rows.append({"text": text, "spans": spans})
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["calibrate", str(data), "--model", str(folder), "--recall", "0.8"]) == 0
    promise = json.loads(capsys.readouterr().out)
    opened = open_extractor(folder)
    assert 0.001 < opened.threshold == promise["threshold"] != 0.5
    results = opened.extract(texts, promise["labels"])
    found = [{(each.start, each.end, each.label) for each in some} for some in results]
    named = [(index, tuple(span.values())) for index, row in enumerate(rows) for span in row["spans"]]
    share = np.mean([span in found[index] for index, span in named])
    assert share == pytest.approx(promise["share_found"])
    assert share >= 0.8


def test_the_promised_error_holds_on_tweets_over_many_splits(shared_data):
    with open(shared_data / "tweet_sentiment_extraction/train.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["text"]][:5000]
    texts, labels = [row["text"] for row in rows], np.array([row["sentiment"] for row in rows])
    features = HashingVectorizer(n_features=4096).transform(texts)
    fitted = LogisticRegression(C=5).fit(features[:2000], labels[:2000])
    probabilities = fitted.predict_proba(features[2000:])
    confidence, is_wrong = probabilities.max(axis=1), fitted.predict(features[2000:]) != labels[2000:]
    assert is_wrong.mean() > 0.2
    draw, shares = np.random.default_rng(6), []
    for _ in range(300):
        order = draw.permutation(len(confidence))
        threshold = error_threshold(confidence[order[:500]], is_wrong[order[:500]], 0.05)
        shares.append((is_wrong & (confidence > threshold))[order[500:]].mean())
    assert 0.03 < np.mean(shares) < 0.052


def test_the_server_says_that_a_classifier_abstains():
    model = model_of(SequenceClassification(COLOURS, threshold=1.0))
    verb = SimpleNamespace(served=SimpleNamespace(task=model.trained.task), as_logits=False)
    rows = labels_as_json(verb, model.predict(["the cat sat", "dog"]))
    assert [row[0].pop("abstains") for row in rows] == [True, True]
    assert rows[0] == sorted(rows[0], key=lambda each: -each["score"])
    plain = model_of(SequenceClassification(COLOURS))
    assert labels_as_json(verb, plain.predict(["the cat sat", "dog"])) == rows
