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
from scipy import stats
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

import bertkit
from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.evidence.conformal import (
    CONFIDENCE,
    Answers,
    answers_needed,
    answers_threshold,
    binomial_tail,
    recall_threshold,
)
from bertkit.evidence.promises import promise_error
from bertkit.extraction import open_extractor
from bertkit.serving.task_api import labels_as_json
from bertkit.tasks import Regression, SequenceClassification, TokenClassification


@pytest.mark.parametrize(("error", "num_rows"), [(0.05, 1000), (0.1, 400), (0.2, 60)])
def test_the_promised_error_of_answers_holds_on_other_rows(error, num_rows):
    draw, shares = np.random.default_rng(3), []
    for _ in range(400):
        confidence = draw.beta(6, 1, num_rows + 4000)
        is_wrong = draw.random(len(confidence)) > confidence  # a seventh is wrong
        answers = Answers(confidence, is_wrong, np.arange(len(confidence)))
        parts = np.split(np.arange(len(confidence)), [num_rows // 4, num_rows])
        first, second, others = map(answers.of_rows, parts)
        threshold = answers_threshold(first, second, error)
        if threshold is not None:
            shares.append(others.is_wrong[others.confidence > threshold].mean())
    assert len(shares) > 250
    assert np.sum(np.array(shares) > error) <= 400 * (1 - CONFIDENCE), "of all draws"
    assert np.sum(np.array(shares) > error + 0.02) <= 400 * 0.02
    assert np.mean(shares) > 0.45 * error, "not needlessly cautious"


def test_the_promised_precision_holds_where_answers_of_a_row_are_alike():
    draw, shares = np.random.default_rng(8), []
    for _ in range(400):
        row_of = np.repeat(np.arange(1300), draw.integers(0, 8, 1300))
        ease = draw.normal(0, 1, 1300)[row_of]
        confidence = 1 / (1 + np.exp(-1 - ease - draw.normal(0, 0.7, len(row_of))))
        is_wrong = draw.random(1300)[row_of] > confidence  # all of a row are wrong, or most are right
        answers = Answers(confidence, is_wrong, row_of)
        first, second, others = (answers.of_rows(np.arange(*each)) for each in ((0, 75), (75, 300), (300, 1300)))
        threshold = answers_threshold(first, second, 0.1)
        if threshold is not None:
            shares.append(others.is_wrong[others.confidence > threshold].mean())
    assert len(shares) > 100
    assert np.sum(np.array(shares) > 0.1) <= 400 * (1 - CONFIDENCE)


def test_the_tail_of_the_binomial_distribution():
    for most, number, share in ((0, 45, 0.05), (3, 200, 0.02), (40, 300, 0.1), (299, 300, 0.9), (5, 4, 0.5)):
        assert binomial_tail(most, number, share) == pytest.approx(stats.binom.cdf(most, number, share), rel=1e-9)


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
    scores = np.arange(1, 20) / 20
    assert recall_threshold(scores, np.arange(19), 19, 0.95) == 0
    assert recall_threshold(scores, np.arange(19), 19, 0.9) == pytest.approx(0.05)
    confidence = np.repeat([0.2, 0.5, 0.9], 100)
    answers = Answers(confidence, confidence == 0.5, np.arange(300))
    assert answers_threshold(answers, answers, 0.05) == 0.5, "only the hundred with a confidence of 0.9 are right"
    unsure = answers._replace(is_wrong=confidence == 0.2)
    assert answers_threshold(unsure, unsure, 0.4) == 0, "a third of all is wrong"
    assert answers_threshold(answers, answers._replace(is_wrong=confidence > 0.2), 0.05) is None


def test_too_few_rows_are_refused():
    with pytest.raises(DataError, match="needs at least 76"):
        recall_threshold(np.ones(75), np.arange(75) // 4, 19, 0.95)
    with pytest.raises(DataError, match=r"misses 2 of 19 items at any threshold: a recall of 0\.9 allows 1"):
        recall_threshold(np.array([-1, -1, *np.ones(17)]), np.arange(19), 19, 0.9)
    assert answers_needed(0.05) == 45


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
    draw, rows = np.random.default_rng(1), rows_of(120)
    predictions = before.predict([text for text, _ in rows])
    middle = np.median([max(each.probabilities.values()) for each in predictions])
    for index, each in enumerate(predictions):  # right where it is sure, and as good as chance elsewhere
        is_sure = max(each.probabilities.values()) > middle
        rows[index] = (rows[index][0], each.label if is_sure else str(draw.choice(COLOURS)))
    assert run(["calibrate", write(tmp_path / "rows.csv", rows), "--model", str(classifier), "--error", "0.2"]) == 0
    promise = json.loads(capsys.readouterr().out)
    model = bertkit.load(classifier)
    task = model.trained.task
    assert (task.temperature, task.threshold) == (promise["temperature"], promise["threshold"])
    assert task.temperature != 1
    assert task.threshold > 0
    assert promise["share_wrong"] <= 0.2 and 0 < promise["share_answered"] < 1
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
        "needs at least 45 others": rows_of(58),
        "every row has the label 'red'": rows_of(90, ("red",)),
        "purple": rows_of(90, ("red", "purple")),
        "no ": [],
    }
    for message, rows in given.items():
        assert run(["calibrate", write(tmp_path / "rows.csv", rows), "--model", str(classifier)]) == 2
        assert message in capsys.readouterr().err
    path = write(tmp_path / "rows.csv", rows_of(120))
    for options, message in (
        (["--recall", "0.9"], "can promise error, and no recall"),
        (["--recall", "0.9", "--error", "0.1"], "error and recall are asked for: a threshold keeps one promise"),
        (["--error", "0.05"], "no threshold keeps the share of wrong answers up to 0.05"),
    ):
        assert run(["calibrate", path, "--model", str(classifier), *options]) == 2
        assert message in capsys.readouterr().err
    assert run(["calibrate", path, "--model", str(tmp_path / "none")]) == 2
    assert (classifier / "bertkit.json").read_bytes() == stored
    with pytest.raises(UsageError, match="trained for regression, which can promise nothing, and no error"):
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
    read = extractor.extract(texts, LABELS[:1], threshold=0.01)
    middle = np.median([each.score for found in read for each in found])  # unlikely entities are wrong
    for text, found in zip(texts, read, strict=True):
        likely = [each for each in found if each.score > middle]
        spans = [{"start": each.start, "end": each.end, "label": each.label} for each in likely]
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
    assert share == pytest.approx(promise["recall"])
    assert share >= 0.8
    assert run(["calibrate", str(data), "--model", str(folder), "--entity-precision", "0.5"]) == 0
    assert json.loads(capsys.readouterr().out)["precision"] > 0.5


@pytest.mark.parametrize(
    ("kind", "option", "share"), [("precision", "--entity-precision", 0.8), ("recall", "--recall", 0.9)]
)
def test_a_tagger_stores_and_uses_its_threshold(tmp_path, capsys, kind, option, share):
    folder, draw = tmp_path / "model", np.random.default_rng(5)
    model_of(TokenClassification(("O", "B-PER", "I-PER"))).save(folder)
    before = bertkit.load(folder)
    texts = [" ".join(draw.choice(WORDS, 8)) for _ in range(300)]
    predictions = before.predict(texts)
    middle, rows = np.median([each.probability for one in predictions for each in one.entities]), list[dict]()
    for text, one in zip(texts, predictions, strict=True):  # unlikely entities are wrong
        unlikely = [(each.start, each.end) for each in one.entities if each.probability <= middle]
        outside = [any(first <= start < end for first, end in unlikely) for start, _ in one.words]
        tags = ["O" if is_outside else tag for is_outside, tag in zip(outside, one.labels, strict=True)]
        rows.append({"words": [text[start:end] for start, end in one.words], "tags": tags})
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["calibrate", str(data), "--model", str(folder), option, str(share)]) == 0
    promise, model = json.loads(capsys.readouterr().out), bertkit.load(folder)
    task = model.trained.task
    assert (task.temperature, task.threshold) == (promise["temperature"], promise["threshold"])
    assert (promise["kind"], promise["share"], promise["labels"]) == (kind, share, ["PER"])
    assert promise[kind] >= share and task.temperature != 1
    after = model.predict(texts)
    kept, dropped = 0, 0
    for one, plain in zip(after, predictions, strict=True):
        assert one.labels == plain.labels, "thresholds are for entities"
        spans = {(each.start, each.end) for each in one.entities}
        assert all(each.probability > task.threshold for each in one.entities)
        assert spans <= {(each.start, each.end) for each in plain.entities}
        kept, dropped = kept + len(spans), dropped + len(plain.entities) - len(spans)
    assert kept and dropped
    model.save(tmp_path / "saved")
    assert bertkit.load(tmp_path / "saved").trained.task == task
    assert run(["calibrate", str(data), "--model", str(folder), "--error", "0.1"]) == 2
    assert "can promise recall or precision, and no error" in capsys.readouterr().err


def test_the_promised_error_holds_on_tweets_over_many_splits(shared_data):
    with open(shared_data / "tweet_sentiment_extraction/train.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["text"]][:5000]
    texts, labels = [row["text"] for row in rows], np.array([row["sentiment"] for row in rows])
    features = HashingVectorizer(n_features=4096).transform(texts)
    fitted = LogisticRegression(C=5).fit(features[:2000], labels[:2000])
    probabilities = fitted.predict_proba(features[2000:])
    confidence, is_wrong = probabilities.max(axis=1), fitted.predict(features[2000:]) != labels[2000:]
    assert is_wrong.mean() > 0.2
    answers, draw, shares = Answers(confidence, is_wrong, np.arange(len(confidence))), np.random.default_rng(6), []
    for _ in range(200):
        first, second, others = np.split(draw.permutation(len(confidence)), [250, 1000])
        threshold = answers_threshold(answers.of_rows(first), answers.of_rows(second), 0.2)
        if threshold is not None:
            shares.append(is_wrong[others][confidence[others] > threshold].mean())
    assert len(shares) > 120
    assert 0.1 < np.mean(shares) < 0.2
    assert np.mean(np.array(shares) > 0.2) <= 0.15
    assert max(shares) < 0.25


def test_the_server_says_that_a_classifier_abstains():
    model = model_of(SequenceClassification(COLOURS, threshold=1.0))
    verb = SimpleNamespace(served=SimpleNamespace(task=model.trained.task), as_logits=False)
    rows = labels_as_json(verb, model.predict(["the cat sat", "dog"]))
    assert [row[0].pop("abstains") for row in rows] == [True, True]
    assert rows[0] == sorted(rows[0], key=lambda each: -each["score"])
    plain = model_of(SequenceClassification(COLOURS))
    assert labels_as_json(verb, plain.predict(["the cat sat", "dog"])) == rows
