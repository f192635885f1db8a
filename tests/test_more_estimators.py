"""Compatibility with scikit-learn of estimators for words, answers and choices."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from bertkit import (
    MultipleChoiceClassifier,
    QuestionAnswerer,
    SequenceClassifier,
    TokenClassifier,
)
from bertkit.errors import CheckpointError, DataError, UsageError
from bertkit.tasks.answers import answer_f1

WORDS = "the of and sat un run walk talk blue red green one two three four".split()
FAST: dict[str, Any] = {"num_epochs": 4, "batch_size": 4, "learning_rate": 1e-2, "warmup": 0.0}

pytestmark = pytest.mark.usefixtures("one_thread")


def sentences(number: int = 60, seed: int = 1) -> list[list[str]]:
    """Some words, of different number, with one animal among them."""
    draw = np.random.default_rng(seed)
    results = [[str(word) for word in draw.choice(WORDS, int(draw.integers(3, 7)))] for _ in range(number)]
    for words in results:
        words[int(draw.integers(len(words)))] = str(draw.choice(["cat", "dog"]))
    return results


def data(kind: type, seed: int = 1, number: int = 60) -> tuple[list[Any], list[Any]]:
    words = sentences(number, seed)
    animals = [next(word for word in one if word in ("cat", "dog")) for one in words]
    if kind is TokenClassifier:
        return words, [["B-ANIMAL" if word in ("cat", "dog") else "O" for word in one] for one in words]
    if kind is QuestionAnswerer:
        return [("un", " ".join(one)) for one in words], animals
    right = np.random.default_rng(seed + 1).integers(0, 3, len(words)).tolist()
    choices = [["cat" if index == number else "red" for index in range(3)] for number in right]
    return list(zip([" ".join(one) for one in words], choices, strict=True)), right


KINDS = (TokenClassifier, QuestionAnswerer, MultipleChoiceClassifier)


@pytest.fixture(scope="module")
def fitted(encoder: Path) -> dict[type, Any]:
    return {kind: kind(encoder, **FAST).fit(*data(kind)) for kind in KINDS}


def plain(values: Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) else values


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_estimators_score_clone_pickle_and_save(fitted, kind, tmp_path: Path) -> None:
    estimator, (X, y) = fitted[kind], data(kind, seed=5)
    expected = plain(estimator.predict(X))
    assert estimator.score(X, y) > 0.8
    copied = clone(estimator)
    assert copied.get_params() == estimator.get_params() and not hasattr(copied, "model_")
    for method in (lambda: copied.predict(X), lambda: copied.score(X, y)):
        with pytest.raises(NotFittedError):
            method()
    assert plain(pickle.loads(pickle.dumps(estimator)).predict(X)) == expected
    estimator.save(tmp_path / "saved")
    loaded = kind.load(tmp_path / "saved")
    assert plain(loaded.predict(X)) == expected and loaded.score(X, y) == pytest.approx(estimator.score(X, y))
    assert loaded.get_params() | {"model": 0} == estimator.get_params() | {"model": 0}
    with pytest.raises(CheckpointError, match=f"holds a {kind.__name__}"):
        SequenceClassifier.load(tmp_path / "saved")
    (tmp_path / "saved" / "estimator.json").unlink()
    assert plain(kind.load(tmp_path / "saved").predict(X)) == expected
    other = KINDS[KINDS.index(kind) - 1]
    with pytest.raises(CheckpointError, match=f"holds a model for .*: {other.__name__} is for"):
        other.load(tmp_path / "saved")


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_search_validation_and_pipelines(encoder: Path, kind) -> None:
    X, y = data(kind, number=32)
    scores = cross_val_score(kind(encoder, **FAST), X, y, cv=2)
    assert scores.shape == (2,) and np.isfinite(scores).all()
    pipeline = Pipeline([("same", FunctionTransformer()), ("last", kind(encoder, head="drawn", **FAST))])
    search = GridSearchCV(pipeline, {"last__learning_rate": [1e-7, 1e-2]}, cv=2).fit(X, y)
    assert search.best_params_ == {"last__learning_rate": 1e-2}
    assert len(search.predict(X[:3])) == 3


@pytest.mark.full
def test_tags_of_words_and_entities_of_texts(fitted, encoder: Path) -> None:
    words, tags = data(TokenClassifier, seed=5)
    tagger, texts = fitted[TokenClassifier], [" ".join(one) for one in words]
    results = tagger.predict(words)
    assert all(type(one) is list and len(one) == len(of_text) for one, of_text in zip(results, words, strict=True))
    probabilities = tagger.predict_proba(words)
    assert tagger.classes_.tolist() == ["O", "B-ANIMAL", "I-ANIMAL"]
    for of_text, one, chosen in zip(words, probabilities, results, strict=True):
        assert one.shape == (len(of_text), 3) and np.allclose(one.sum(axis=1), 1)
        if "I-ANIMAL" not in tagger.classes_[one.argmax(axis=1)]:  # the likeliest of each may spell no entity
            assert tagger.classes_[one.argmax(axis=1)].tolist() == chosen
    assert tagger.predict_proba([]) == []
    spans = [
        [(text.index(word), text.index(word) + 3, "ANIMAL") for word in one if word in ("cat", "dog")]
        for text, one in zip(texts, words, strict=True)
    ]
    of_texts = TokenClassifier(encoder, **FAST, class_weights="balanced", label_smoothing=0.1).fit(texts, spans)
    assert of_texts.model_.trained.task.class_weights[0] < 1 < of_texts.model_.trained.task.class_weights[1]
    assert np.mean([one == right for one, right in zip(of_texts.predict(texts), spans, strict=True)]) > 0.7
    assert of_texts.score(texts, spans) > 0.7
    speech = TokenClassifier(encoder, **FAST).fit(
        words, [["X" if tag == "O" else "NOUN" for tag in of_text] for of_text in tags]
    )
    assert speech.predict(["a cat"]) == [[(0, 1, "X"), (2, 5, "NOUN")]]
    # unseen tags count as wrong predictions; `evaluate` raises
    assert tagger.score([["cat", "sat"]] * 2, [["B-ANIMAL", "B-VERB"]] * 2) == pytest.approx(2 / 3)
    with pytest.raises(DataError, match="text 1: has 2 words and 1 tags"):
        tagger.fit([["a", "b"], ["a", "b"]], [["O", "B-x"], ["O"]])


@pytest.mark.full
def test_answers_and_unanswerable_questions(fitted, encoder: Path) -> None:
    X, y = data(QuestionAnswerer, seed=5)
    results = fitted[QuestionAnswerer].predict(X)
    assert results.dtype == object and results.shape == (60,)
    expected = np.mean([answer_f1(one, right) for one, right in zip(results, y, strict=True)])
    assert fitted[QuestionAnswerer].score(X, y) == pytest.approx(expected)
    without = [(question, context.replace("dog", "run")) for question, context in X]
    answers = [
        (answer, context.index("cat")) if answer == "cat" else "" for answer, (_, context) in zip(y, X, strict=True)
    ]
    some = QuestionAnswerer(encoder, **FAST | {"num_epochs": 8}, max_answer_length=2).fit(without, answers)
    assert some.model_.trained.task.no_answer and some.model_.trained.task.max_answer_length == 2
    assert set(some.predict(without)) == {"cat", ""} and some.score(without, answers) > 0.8
    for X, y, message in (
        ([("un", "a cat")], [("cat", 1)], "'cat' is not at 1"), ([("un", "a cat")], ["dog"], "is not in its context"),
        (["a cat"], ["cat"], "expected a question and its context"), ([("un", "a cat")], [None], "has no answers"),
    ):  # fmt: skip
        with pytest.raises((DataError, UsageError), match=message):
            some.fit(X, y)


@pytest.mark.full
def test_choices_and_their_probabilities(fitted) -> None:
    chooser, (X, y) = fitted[MultipleChoiceClassifier], data(MultipleChoiceClassifier, seed=5)
    results = chooser.predict_proba(X)
    assert results.shape == (60, 3) and np.allclose(results.sum(axis=1), 1)
    assert (results.argmax(axis=1) == chooser.predict(X)).all()
    assert chooser.score(X, y) == pytest.approx((chooser.predict(X) == np.array(y)).mean())
    table = np.empty((2, 2), object)
    table[:] = [["a", ["cat", "red"]], ["b", ["red", "red", "cat"]]]
    assert chooser.predict_proba(table).shape == (2, 3) and chooser.predict_proba(table)[0, 2] == 0
    assert chooser.predict_proba([]).shape == (0, 0)
    with pytest.raises(DataError, match="the right choice is 3"):
        chooser.score(X[:1], [3])
    assert chooser.score(X, np.array(y, np.float64)) == chooser.score(X, y)


@pytest.mark.parametrize("kind, item, bad", [
    (MultipleChoiceClassifier, ("a", ["cat", "red"]), {
        "nan": float("nan"), "inf": float("inf"), "1.7": 1.7, "'1'": "1", "None": None}),
    (QuestionAnswerer, ("un", "a cat"), {
        "nan": float("nan"), "0": 0, r"\(2, nan\)": (2, float("nan")), r"\[2, 3, 5\]": [2, 3, 5],
        r"\('cat', nan\)": ("cat", float("nan"))}),
    (TokenClassifier, ["a", "cat"], {"nan": float("nan"), "'OO'": "OO", r"\['O', None\]": ["O", None]}),
])  # fmt: skip
def test_rejects_invalid_labels(encoder: Path, kind, item, bad) -> None:
    good = {MultipleChoiceClassifier: 1, QuestionAnswerer: "cat", TokenClassifier: ["O", "B-x"]}[kind]
    for shown, label in bad.items():
        with pytest.raises(
            DataError, match=f"text 1: (the right choice is|the answer is|its tags are) {shown}: expected"
        ):
            kind(encoder, **FAST).fit([item, item], [good, label])


@pytest.mark.full
def test_choices_may_be_an_array(fitted) -> None:
    estimator = fitted[MultipleChoiceClassifier]
    choices = ["red", "cat"]
    for given in (np.array(choices), np.array(choices, object)):
        assert plain(estimator.predict([("the sky", given)])) == plain(estimator.predict([("the sky", choices)]))
