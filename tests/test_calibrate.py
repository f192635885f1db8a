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
from bertkit.evidence.conformal import Answers, answers_needed, answers_threshold, recall_threshold
from bertkit.evidence.promises import promise_error
from bertkit.extraction import open_extractor
from bertkit.serving.task_api import labels_as_json
from bertkit.tasks import Regression, SequenceClassification, TokenClassification


def shares_of_new_rows(draw: np.random.Generator, rows: int, here: int, answers: Answers, risk: float) -> np.ndarray:
    """Wrong and all answers to other rows, for a threshold chosen on random rows; two zeros if there is none."""
    order = draw.permutation(rows)
    threshold = answers_threshold(answers.of_rows(order[:here]), risk)
    others = answers.of_rows(order[here:])
    given = others.confidence > (1.0 if threshold is None else threshold)
    return np.array([others.is_wrong[given].sum(), given.sum()])


def assert_within_two_points(counts: list[np.ndarray], risk: float) -> None:
    """The mean share, and that of all answers to all new rows, are within two points of the promised one."""
    wrong, given = np.array(counts).T
    assert np.mean(given > 0) > 0.9
    assert np.mean(wrong[given > 0] / given[given > 0]) == pytest.approx(risk, abs=0.02)
    assert wrong.sum() / given.sum() == pytest.approx(risk, abs=0.02)


@pytest.mark.parametrize(("error", "num_rows"), [(0.03, 1000), (0.05, 300), (0.1, 300), (0.1, 60)])
def test_the_promised_error_of_answers_holds_on_other_rows(error, num_rows):
    draw, counts = np.random.default_rng(3), []
    for _ in range(400):
        confidence = draw.beta(6, 1, num_rows + 4000)
        is_wrong = draw.random(len(confidence)) > confidence  # a seventh is wrong
        answers = Answers(confidence, is_wrong, np.arange(len(confidence)))
        counts.append(shares_of_new_rows(draw, len(confidence), num_rows, answers, error))
    assert_within_two_points(counts, error)


@pytest.mark.parametrize("precision", [0.8, 0.85, 0.9])
def test_the_promised_precision_holds_where_answers_of_a_row_are_alike(precision):
    draw, counts = np.random.default_rng(8), []
    for _ in range(400):
        row_of = np.repeat(np.arange(1300), draw.integers(0, 8, 1300))
        ease = draw.normal(0, 1, 1300)[row_of]
        confidence = 1 / (1 + np.exp(-1 - ease - draw.normal(0, 0.7, len(row_of))))
        is_wrong = draw.random(1300)[row_of] > confidence  # all of a row are wrong, or most are right
        counts.append(shares_of_new_rows(draw, 1300, 500, Answers(confidence, is_wrong, row_of), 1 - precision))
    assert_within_two_points(counts, 1 - precision)


def test_a_share_that_no_threshold_reaches_is_mostly_refused():
    draw, counts = np.random.default_rng(9), []
    for _ in range(400):
        answers = Answers(draw.random(2300), draw.random(2300) < 0.15, np.arange(2300))  # confidence says nothing
        counts.append(shares_of_new_rows(draw, 2300, 300, answers, 0.05))
    wrong, given = np.array(counts).T
    assert np.mean(given > 0) < 0.1
    assert np.mean(wrong - 0.05 * given) / 2000 < 0.002, "wrong answers too many, for each new row"


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
    assert answers_threshold(answers, 0.05) == 0.5, "only the hundred with a confidence of 0.9 are right"
    assert answers_threshold(answers._replace(is_wrong=confidence == 0.2), 0.4) == 0, "a third of all is wrong"
    assert answers_threshold(answers._replace(is_wrong=confidence > 0.2), 0.05) is None
    assert answers_threshold(Answers(*(values[:0] for values in answers)), 0.05) is None
    assert answers_threshold(answers._replace(row_of=np.zeros(300, int)), 0.4) is None, "of a single row"
    right = Answers(np.ones(19), np.zeros(19, bool), np.arange(19))
    assert answers_threshold(right, 0.05) == 0 and answers_threshold(right.of_rows(np.arange(18)), 0.05) is None


def test_too_few_rows_are_refused():
    with pytest.raises(DataError, match="needs at least 76"):
        recall_threshold(np.ones(75), np.arange(75) // 4, 19, 0.95)
    with pytest.raises(DataError, match=r"misses 2 of 19 items at any threshold: a recall of 0\.9 allows 1"):
        recall_threshold(np.array([-1, -1, *np.ones(17)]), np.arange(19), 19, 0.9)
    assert answers_needed(0.05) == 19


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
    assert promise["low"] < promise["share_wrong"] < promise["high"] and promise["share_wrong"] <= 0.2
    assert 0 < promise["share_answered"] < 1
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


@pytest.mark.parametrize(("num_rows", "are_right"), [(76, False), (120, True)])
def test_a_temperature_that_the_rows_do_not_show_stays_1(classifier, tmp_path, num_rows, are_right):
    model, rows = bertkit.load(classifier), rows_of(num_rows)
    model.change_task(temperature=2.0)
    if are_right:
        texts = [text for text, _ in rows]
        rows = [(text, each.label) for text, each in zip(texts, model.predict(texts), strict=True)]
        last = np.random.default_rng(0).permutation(num_rows)[-1]  # not in the quarter for the temperature
        rows[last] = (texts[last], next(name for name in COLOURS if name != rows[last][1]))
    assert promise_error(model, rows, 0.9).temperature == model.trained.task.temperature == 1


def test_invalid_rows_are_refused_and_nothing_is_stored(classifier, tmp_path, capsys):
    stored = (classifier / "bertkit.json").read_bytes()
    given = {
        "needs at least 19 others": rows_of(24),
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


def test_folders_that_cannot_be_written_are_refused_before_the_rows_are_read(classifier, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("os.access", lambda folder, mode: folder != classifier)
    missing = str(tmp_path / "missing.csv")
    for arguments in (["calibrate", missing], ["evaluate", "--data", missing, "--card"]):
        assert run([*arguments, "--model", str(classifier)]) == 2
        assert f"{classifier} is not writable; choose another path" in capsys.readouterr().err


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
    fitted = LogisticRegression(C=5, solver="newton-cg").fit(features[:2000], labels[:2000])
    probabilities = fitted.predict_proba(features[2000:])
    confidence, is_wrong = probabilities.max(axis=1), fitted.predict(features[2000:]) != labels[2000:]
    assert is_wrong.mean() > 0.4
    answers = Answers(confidence, is_wrong, np.arange(len(confidence)))
    for error in (0.1, 0.15, 0.2, 0.25, 0.3):
        draw, counts = np.random.default_rng(6), []
        for _ in range(200):
            counts.append(shares_of_new_rows(draw, len(confidence), 750, answers, error))
        assert_within_two_points(counts, error)


def test_the_server_says_that_a_classifier_abstains():
    model = model_of(SequenceClassification(COLOURS, threshold=1.0))
    served = SimpleNamespace(task=model.trained.task)
    rows = labels_as_json(served, model.predict(["the cat sat", "dog"]), as_logits=False)
    assert [row[0].pop("abstains") for row in rows] == [True, True]
    assert rows[0] == sorted(rows[0], key=lambda each: -each["score"])
    plain = model_of(SequenceClassification(COLOURS))
    assert labels_as_json(served, plain.predict(["the cat sat", "dog"]), as_logits=False) == rows
