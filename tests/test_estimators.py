"""Compatibility of estimators with scikit-learn: search, cross-validation, pipelines, clones, pickles."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from random_models import our_model
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import bertkit
from bertkit import (
    MultipleChoiceClassifier,
    QuestionAnswerer,
    SentenceEncoder,
    SequenceClassifier,
    SequenceRegressor,
    TokenClassifier,
)
from bertkit.errors import CheckpointError, DataError, UsageError

WORDS = "the of and sat un run walk talk blue red green one two three four".split()
FAST = {"num_epochs": 5, "batch_size": 4, "learning_rate": 1e-2, "warmup": 0.0}

pytestmark = pytest.mark.usefixtures("one_thread")


def data(number: int = 80, seed: int = 1) -> tuple[list[str], np.ndarray]:
    """Texts labeled by whether they contain the word cat."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, 3)) + (" cat" if index % 2 else " dog") for index in range(number)]
    return texts, np.array(["cat" in text.split() for text in texts])


@pytest.fixture(scope="module")
def fitted(encoder: Path) -> SequenceClassifier:
    return SequenceClassifier(encoder, **FAST).fit(*data())


@pytest.mark.full
def test_classes_keep_their_type_and_probabilities_their_order(encoder: Path) -> None:
    texts, has = data()
    for classes in (np.array(["yes", "no"]), np.array([7, -2]), np.array([False, True]), np.array([2.0, 1.0])):
        y = classes[has.astype(int)]
        results = SequenceClassifier(encoder, **FAST).fit(texts, y)
        assert results.classes_.tolist() == np.unique(y).tolist()
        predicted, probabilities = results.predict(texts), results.predict_proba(texts)
        assert predicted.dtype == y.dtype and (predicted == y).mean() > 0.9
        assert probabilities.shape == (80, 2) and np.allclose(probabilities.sum(axis=1), 1)
        assert (results.classes_[probabilities.argmax(axis=1)] == predicted).all()
        assert results.score(texts, y) == pytest.approx((predicted == y).mean())


@pytest.mark.full
def test_search_validation_and_pipelines(encoder: Path) -> None:
    texts, has = data()
    scores = cross_val_score(SequenceClassifier(encoder, **FAST), texts, has, cv=3)
    assert scores.shape == (3,) and scores.mean() > 0.7
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = Pipeline([("lower", lower), ("classifier", SequenceClassifier(encoder, head="drawn", **FAST))])
    grid = {"classifier__learning_rate": [1e-6, 1e-2], "classifier__class_weights": [None, "balanced"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(np.array(texts), has)
    assert search.best_params_["classifier__learning_rate"] == 1e-2
    assert search.predict(np.array(texts[:3])).shape == (3,)


@pytest.mark.full
def test_numbers_of_numpy_are_parameters(encoder: Path, tmp_path: Path) -> None:
    texts, has = data(16)
    grid = {"learning_rate": np.logspace(-5, -3, 2), "num_epochs": np.arange(1, 2)}
    GridSearchCV(SequenceClassifier(encoder), grid, cv=2).fit(texts, has)
    given: dict[str, Any] = {
        "num_epochs": np.int64(1), "batch_size": np.int64(8), "learning_rate": np.float32(1e-4),
        "lora_rank": np.int64(2), "max_length": np.int64(16), "label_smoothing": np.float64(0.1),
    }  # fmt: skip
    plain = {name: value.tolist() for name, value in given.items()}
    results, expected = (SequenceClassifier(encoder, **each).fit(texts, has) for each in (given, plain))
    assert np.array_equal(results.predict_proba(texts), expected.predict_proba(texts))
    results.save(tmp_path / "saved")
    loaded = SequenceClassifier.load(tmp_path / "saved")
    assert loaded.get_params() | {"model": 0} == expected.get_params() | {"model": 0}
    SequenceClassifier(encoder, num_epochs=1, frozen_layers=np.int64(0)).fit(texts, has)
    weights = dict(zip(np.unique(has.astype(int)), np.float32([0.5, 2]), strict=True))  # keys of numpy, too
    weighted = SequenceClassifier(encoder, num_epochs=1, class_weights=weights).fit(texts, has.astype(int))
    weighted.save(tmp_path / "weighted")
    again = SequenceClassifier.load(tmp_path / "weighted")
    assert again.class_weights == {"0": 0.5, "1": 2.0}
    assert np.array_equal(again.predict_proba(texts), weighted.predict_proba(texts))


@pytest.mark.full
def test_clones_and_parameters(fitted: SequenceClassifier, encoder: Path) -> None:
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params() and not hasattr(copied, "model_")
    assert copied.get_params()["batch_size"] == 4 and copied.get_params()["label_smoothing"] == 0.0
    assert copied.set_params(batch_size=16).batch_size == 16
    with pytest.raises(NotFittedError):
        copied.predict(["a"])
    with pytest.raises(ValueError, match="no_such"):
        copied.set_params(no_such=1)
    with pytest.raises(UsageError, match="no parameter 'no_such'"):
        SequenceClassifier(encoder, no_such=1)
    with pytest.raises(UsageError, match="class_weights"):
        SequenceRegressor(encoder, class_weights="balanced")
    assert "learning_rate=0.01" in repr(fitted)


@pytest.mark.full
def test_pickled_and_saved_it_predicts_the_same(fitted: SequenceClassifier, tmp_path: Path) -> None:
    texts, _ = data(seed=5)
    expected = fitted.predict_proba(texts)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.allclose(again.predict_proba(texts), expected, atol=1e-6)
    fitted.save(tmp_path / "saved")
    with pytest.raises(UsageError, match="not empty"):
        fitted.save(tmp_path / "saved")
    loaded = SequenceClassifier.load(tmp_path / "saved")
    assert np.allclose(loaded.predict_proba(texts), expected, atol=1e-6)
    assert loaded.predict(texts).dtype == bool and loaded.get_params() | {"model": 0} == fitted.get_params() | {
        "model": 0
    }
    assert bertkit.load(tmp_path / "saved").predict(texts[:1])[0].label in ("True", "False")
    assert pickle.loads(pickle.dumps(SequenceClassifier("anything"))).model == "anything"
    (tmp_path / "saved" / "estimator.json").unlink()
    plain = SequenceClassifier.load(tmp_path / "saved")
    assert plain.classes_.tolist() == ["False", "True"] and np.allclose(plain.predict_proba(texts), expected, atol=1e-6)
    with pytest.raises(CheckpointError, match="SequenceRegressor is for regression"):
        SequenceRegressor.load(tmp_path / "saved")


def test_other_directories_raise(fitted: SequenceClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "saved")
    path = tmp_path / "saved" / "estimator.json"
    record = json.loads(path.read_text())
    for change, message in (
        ({"estimator": "TokenClassifier"}, "holds a TokenClassifier"),
        ({"classes": ["a", "b"]}, "differ from those of the model"),
        ({"parameters": {"depth": 3}}, "no parameter 'depth'"),
    ):
        path.write_text(json.dumps(record | change))
        with pytest.raises(CheckpointError, match=message):
            SequenceClassifier.load(tmp_path / "saved")
    our_model("masked_lm", 3).save(tmp_path / "other")
    with pytest.raises(CheckpointError, match="not trained for a task"):
        SequenceClassifier.load(tmp_path / "other")


@pytest.mark.full
def test_several_classes_for_a_text(encoder: Path, tmp_path: Path) -> None:
    texts, _ = data(80)
    y = np.array([[word in text.split() for word in ("cat", "dog", "the")] for text in texts]).astype(int)
    results = SequenceClassifier(encoder, **FAST | {"num_epochs": 8}).fit(texts, y)
    assert results.predict(texts).shape == (80, 3) == results.predict_proba(texts).shape
    assert (results.predict(texts)[:, :2] == y[:, :2]).mean() > 0.9
    assert results.predict([]).shape == (0, 3)
    with pytest.raises(UsageError, match="no text has the class 3"):
        SequenceClassifier(tmp_path / "never opened").fit(texts, np.hstack([y, np.zeros((80, 1), int)]))


@pytest.mark.full
def test_pairs_and_weights(encoder: Path) -> None:
    texts, has = data()
    pairs = list(zip(texts, reversed(texts), strict=True))
    as_list = SequenceClassifier(encoder, **FAST, class_weights={True: 2.0, False: 1.0}).fit(pairs, has)
    as_array = SequenceClassifier(encoder, **FAST, class_weights={True: 2.0, False: 1.0}).fit(np.array(pairs), has)
    assert np.allclose(as_list.predict_proba(pairs), as_array.predict_proba(np.array(pairs)), atol=1e-5)
    assert as_list.model_.trained.task.class_weights == (1.0, 2.0)


@pytest.mark.full
def test_regression_in_any_unit(encoder: Path, tmp_path: Path) -> None:
    texts, has = data()
    y = 5_000.0 + 700.0 * has
    results = SequenceRegressor(encoder, **FAST | {"num_epochs": 8}).fit(texts, y, dev=(texts, y))
    assert results.score(texts, y) > 0.7
    assert results.predict(texts).dtype == np.float64 and abs(results.predict(texts).mean() - y.mean()) < 200
    results.save(tmp_path / "saved")
    assert np.allclose(SequenceRegressor.load(tmp_path / "saved").predict(texts), results.predict(texts), rtol=1e-5)


def test_bad_input(encoder: Path) -> None:
    classifier, regressor = SequenceClassifier(encoder, **FAST), SequenceRegressor(encoder, **FAST)
    for X, y, message in (
        ("a text", [1], "got a str"), (["a", "b"], [1], "2 texts and 1 labels"), ([], [], "0 texts"),
        (np.zeros((2, 3)), [1, 2], r"shape \(2, 3\)"), ([3, 4], [0, 1], "expected a str"), 
        (["a"], "b", "expected a list"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            classifier.fit(X, y)
    with pytest.raises(DataError, match=r"text 1: its score is nan"):
        regressor.fit(["a", "b"], [1.0, float("nan")])
    with pytest.raises(DataError, match=r"no other example has the label .* in cross-validation stratify"):
        classifier.fit(["a", "b", "c"], [1, 1, 2])
    with pytest.raises(DataError, match="text 1: the label 'c' is not one"):
        classifier.fit(["a", "b", "c", "d"], list("abab"), dev=(["x", "y"], ["a", "c"]))


def test_texts_that_are_no_list_are_refused(fitted: SequenceClassifier) -> None:
    for X, message in (
        (np.array("a text"), r"shape \(\)"), ({"a": 1}, "texts are dict"), (5, "texts are int"), (None, "NoneType"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            fitted.predict(X)


def test_failed_fit_keeps_the_classes_of_the_model(fitted: SequenceClassifier) -> None:
    copy, texts = pickle.loads(pickle.dumps(fitted)), ["the cat", "un dog"]
    with pytest.raises(DataError):
        copy.fit(texts, ["other", "other"])
    assert copy.predict(texts).tolist() == fitted.predict(texts).tolist()
    with pytest.raises(DataError):
        copy.fit(texts, np.array([[1, 0, 0], [0, 1, 2]]))
    assert copy.predict_proba(texts).tolist() == fitted.predict_proba(texts).tolist()


def test_rejects_invalid_labels(encoder: Path) -> None:
    texts, nan, classifier = ["a", "b", "c", "d"], float("nan"), SequenceClassifier(encoder, **FAST)
    for y, message in (
        (["a", nan, "a", nan], "text 1: its label is nan"), (["a", "b", None, "a"], "text 2: its label is None"),
        (np.array([1.0, 2.0, 1.0, nan]), "text 3: its label is nan"), (["a", ["b"], "a", "b"], "text 1: its label is"),
        (np.array(["a", object(), "a", "b"], object), "text 1: its label is <object"),
        ([["sport", "uk"], ["art", "us"], ["art", "uk"], ["art", "us"]], r"text 0: its labels are \['sport', 'uk'\]"),
        ([[0, 1], [1, nan], [1, 0], [0, 1]], r"text 1: its labels are \[1, nan\]: expected 2 numbers"),
        (np.array([[0, 1], [1, 1], [1, 0.3], [0, 1]]), r"text 2: its labels are \[1.0, 0.3\]"),
        ([[0, 1], [1, 1], [1], [0, 1]], r"text 2: its labels are \[1\]"),
        ([[0, 1], 1, [1, 0], [0, 1]], "text 1: its labels are 1:"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            classifier.fit(texts, y)
    with pytest.raises(DataError, match="text 1: its label is nan"):
        classifier.fit(texts, ["a", "b", "a", "b"], dev=(["x", "y"], ["a", nan]))
    several = SequenceClassifier(encoder, **FAST)
    with pytest.raises(DataError, match=r"text 1: its labels are \[1\]: expected 2"):
        several.fit(texts, np.array([[0, 1], [1, 0]] * 2), dev=(["x", "y"], [[0, 1], [1]]))
    regressor = SequenceRegressor(encoder, **FAST)
    for y, message in (
        ([1.0, None, 2.0, 3.0], "text 1: its score is None"), ([[1.0, 2.0]] * 4, r"text 0: its score is \[1.0, 2.0\]"),
        ([1.0, 2.0, object(), 3.0], "text 2: its score is <object"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            regressor.fit(texts, y)


@pytest.mark.full
def test_regression_targets_accept_columns(encoder: Path) -> None:
    texts, has = data(20)
    fit = [SequenceRegressor(encoder, **FAST).fit(texts, y) for y in (has.astype(float), has[:, None].astype(float))]
    assert np.allclose(fit[0].predict(texts), fit[1].predict(texts), atol=1e-6)


def test_classes_accept_columns(encoder: Path) -> None:
    texts, has = data(20)
    y = np.where(has, "yes", "no")
    column = SequenceClassifier(encoder, **FAST).fit(texts, y[:, None], dev=(texts, y[:, None]))
    expected = SequenceClassifier(encoder, **FAST).fit(texts, y, dev=(texts, y))
    assert np.array_equal(column.predict(texts), expected.predict(texts)) and column.classes_.tolist() == ["no", "yes"]
    assert column.score(texts, y[:, None]) == expected.score(texts, y)


def test_labels_are_cleaned_as_those_of_files(encoder: Path) -> None:
    texts, has = data(20)
    plain, spaced = np.where(has, "pos", "neg"), np.where(has, " pos", "neg ")
    classifier = SequenceClassifier(encoder, **FAST).fit(texts, spaced)
    assert classifier.classes_.tolist() == ["neg", "pos"]
    assert classifier.score(texts, spaced) == classifier.score(texts, plain)
    for labels, message in (
        (["", "a", "b"], "text 0: its label is '', which means no label"),
        (["a", " ", "b"], "text 1: its label is '', which means no label"),
        ([0, 1, -100], "text 2: its label is -100, which means no label"),
        ([2, 0, 1, -1], "text 3: its label is -1, which means no label"),
        (["a", "-1", "b"], "text 1: its label is '-1', which means no label"),
        (["-", "a", "b"], "text 0: its label is '-', which means no label"),
    ):
        with pytest.raises(DataError, match=message):
            SequenceClassifier(encoder).fit([f"text {number}" for number in range(len(labels))], labels)
    for labels in ([1, -1], ["+", "-"], [-2, -1, 0], [1, 0, -1]):
        fitted = SequenceClassifier(encoder, num_epochs=1, batch_size=4).fit(texts[: 2 * len(labels)], labels * 2)
        assert fitted.classes_.tolist() == sorted(labels)


def test_columns_of_several_labels_name_the_classes(encoder: Path, tmp_path: Path) -> None:
    texts, has = data(20)
    table = pd.DataFrame({"toxic": has.astype(int), "rude": (~has).astype(float)})
    classifier = SequenceClassifier(encoder, **FAST).fit(texts, table)
    assert classifier.classes_.tolist() == ["toxic", "rude"] and classifier.predict(texts).shape == (20, 2)
    classifier.save(tmp_path / "saved")
    assert bertkit.load(tmp_path / "saved").trained.task.label_names == ("rude", "toxic")
    loaded = SequenceClassifier.load(tmp_path / "saved")
    assert np.array_equal(loaded.predict_proba(texts), classifier.predict_proba(texts))


def test_inputs_of_fit_that_cannot_be_used_are_named(encoder: Path) -> None:
    with pytest.raises(DataError, match="the labels mix float and int: convert them to one type"):
        SequenceClassifier(encoder).fit(["a", "b", "c"], [0, 1.5, 0])
    with pytest.raises(UsageError, match="no rows: expected at least one"):
        SentenceEncoder(encoder).fit([])
    for name in ("learning_rate", "weight_decay"):
        with pytest.raises(UsageError, match=f"{name}='x': expected a finite number"):
            SequenceClassifier(encoder, **{name: "x"}).fit(*data(8))


def test_texts_that_cannot_be_used_are_skipped_if_asked(encoder: Path, tmp_path: Path) -> None:
    texts, labels = ["a cat", "the dog", "a mat ran", "one two", "a " * 40, "four"], ["x", "y", "x", "y", "x", "rare"]
    with pytest.raises(DataError, match="text 5: no other example has the label 'rare'"):
        SequenceClassifier(encoder, num_epochs=1).fit(texts, labels)
    estimator = SequenceClassifier(encoder, num_epochs=1, max_length=8, on_long="error", skip_bad=True)
    with pytest.warns(
        UserWarning, match=r"3 rows were skipped:   text 5: no other.* text 4: .*tokens.*  text 2: the label 'new'"
    ):
        estimator.fit(texts, labels, dev=(["a cat", "the dog", "a dog"], ["x", "y", "new"]))
    assert estimator.classes_.tolist() == ["x", "y"] and estimator.predict_proba(["a cat"]).shape == (1, 2)
    assert estimator.get_params()["skip_bad"] and clone(estimator).skip_bad
    assert "3 rows could not be used" in estimator.model_.trained.card


@pytest.mark.parametrize(
    ("estimator", "texts", "labels"),
    [
        (SequenceClassifier, ["the cat", "the dog", None], ["a", "b", "a"]),
        (TokenClassifier, [["cat"], ["dog"], ["cat", ""]], [["O"], ["X"], ["O", "X"]]),
        (QuestionAnswerer, [("who", "the cat")] * 2 + [("who", None)], ["cat"] * 3),
        (MultipleChoiceClassifier, [("who", ["a", "b"])] * 2 + [(None, ["a", "b"])], [0, 1, 0]),
        (SentenceEncoder, ["the cat", "the dog", None], None),
    ],
)
def test_an_input_of_another_type_is_named_by_its_index(encoder, estimator, texts, labels):
    made = estimator(encoder, **FAST)
    with pytest.raises(UsageError, match=r"^(text|row) 2: an example is "):
        made.fit(texts) if labels is None else made.fit(texts, labels)
    with pytest.raises(UsageError, match=r"^input 2: a text is NoneType"):
        bertkit.load(encoder).embed(["the cat", "the dog", None])
