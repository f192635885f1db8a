"""Evidence on classifiers and taggers: scikit-learn's scores under any draw, plain references, planted errors."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from page_reader import check_geometry, read
from random_models import our_model
from scipy import stats
from scipy.optimize import minimize_scalar
from sklearn import metrics as sklearn_metrics
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from bertkit import Model, gather_evidence, write_evidence_report
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import DataError, DependencyError, UsageError
from bertkit.evidence import baseline as baselines
from bertkit.evidence.baseline import predict_baseline
from bertkit.evidence.calibration import (
    NUM_BINS,
    calibration_of,
    expected_calibration_error,
    fitted_temperature,
    mean_loss,
)
from bertkit.evidence.intervals import (
    Measured,
    bootstrap_difference,
    bootstrap_f1,
    bootstrap_interval,
    bootstrap_scores,
    wilson_interval,
)
from bertkit.evidence.label_errors import confident_labels, label_errors_of
from bertkit.evidence.leakage import shared_words
from bertkit.evidence.outcomes import Outcomes, excerpt
from bertkit.evidence.scores import measured_scores
from bertkit.evidence.thresholds import thresholds_of
from bertkit.finetuning import simple_baselines
from bertkit.pages import format_number
from bertkit.tasks import (
    Answer,
    AnswerPrediction,
    ChoicePrediction,
    ChoiceQuestion,
    MultiLabelClassification,
    MultipleChoice,
    OrdinalRegression,
    Question,
    QuestionAnswering,
    Regression,
    SequenceClassification,
    TextExample,
    TokenClassification,
)
from bertkit.tasks.same_texts import normalized_words
from bertkit.tasks.scoring import Scores
from bertkit.tokenizer.layout import Layout

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ("blue", "green", "red")
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
WORDS = "the of and sat un run walk talk cat dog mat one two three four blue green red".split()
SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 1,
    "max_position_embeddings": 24, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip
TASKS = {
    "one": SequenceClassification(NAMES),
    "two": SequenceClassification(NAMES[:2]),
    "several": MultiLabelClassification(NAMES, thresholds=(0.5, 0.3, 0.6)),
    "levels": OrdinalRegression(levels=("low", "middle", "high")),
    "number": Regression(),
    "entities": TokenClassification(TAGS, scheme="BIO", words="spaces"),
    "words": TokenClassification(("ADJ", "NOUN", "VERB"), scheme="plain", words="spaces"),
}


def model_of(kind: str, seed: int = 3, **layout) -> Model:
    task, tagger = TASKS[kind], kind in ("entities", "words")
    model = our_model(
        "token_classification" if tagger else "sequence_classification", seed, len(task.label_names), **SHAPE
    )
    model.checkpoint.label_names = task.label_names
    on_long = "window" if tagger else "truncate"
    model.checkpoint.trained = TrainedTask(task, Layout(**{"max_length": 24, "on_long": on_long} | layout))
    return model


def random_text(draw: np.random.Generator, longest: int = 30) -> str:
    return " ".join(draw.choice(WORDS, int(draw.integers(1, longest))))


def examples_of(kind: str, number: int, seed: int = 1) -> list:
    """Examples with labels that are independent of the texts."""
    draw, task, results = np.random.default_rng(seed), TASKS[kind], []
    for line in range(number):
        text, index = random_text(draw), f"test.csv, line {line + 2}"
        if kind == "entities":
            tags = [TAGS[i] for i in draw.choice([0, 0, 1, 3], len(text.split()))]
            results.append(task.example(text.split(), tags, index))
        elif kind == "words":
            results.append(task.example(text.split(), draw.choice(task.label_names, len(text.split())).tolist(), index))
        elif kind == "several":
            results.append(TextExample(text, None, tuple(name for name in NAMES if draw.random() < 0.4), index))
        elif kind == "number":
            results.append(TextExample(text, None, float(draw.normal()), index))
        else:
            results.append(TextExample(text, None, str(draw.choice(task.known_labels)), index))
    return results


def outcomes_of_arrays(kind: str, number: int, seed: int = 1) -> Outcomes:
    """Synthetic predictions that are mostly correct."""
    draw, task, examples = np.random.default_rng(seed), TASKS[kind], examples_of(kind, number, seed)
    targets = task.targets(examples)
    probabilities, counts = None, np.ones(number, np.int64)
    if kind == "several":
        targets = targets > 0
        probabilities = np.clip(np.where(targets, 0.6, 0.35) + draw.normal(0, 0.2, targets.shape), 0.001, 0.999)
        predicted = probabilities >= 0.5
    elif kind in ("levels", "number"):
        predicted = targets + draw.normal(0, 0.7, number)
    else:
        logits = 2 * draw.normal(size=(len(targets), len(task.label_names)))
        logits[np.arange(len(targets)), targets] += 2
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        predicted = probabilities.argmax(axis=1)
    read_words = np.ones(len(targets), np.bool_) if kind in ("entities", "words") else None
    return Outcomes(task, examples, targets, predicted, probabilities, counts, counts * 0, counts, read_words)


def rows_of(outcomes: Outcomes) -> np.ndarray:
    return outcomes.rows


def drawn(outcomes: Outcomes, numbers: np.ndarray) -> dict[str, float]:
    """Scores of examples, repeated as often as drawn, by scikit-learn, scipy and the task's scorer."""
    task = outcomes.task
    indices = np.concatenate([np.flatnonzero(outcomes.example_of == number) for number in numbers])
    targets, predicted = outcomes.targets[indices], outcomes.predicted[indices]
    if isinstance(task, MultiLabelClassification):
        return {
            "accuracy": sklearn_metrics.accuracy_score(targets, predicted),
            "micro_f1": sklearn_metrics.f1_score(targets, predicted, average="micro"),
            "macro_f1": sklearn_metrics.f1_score(targets, predicted, average="macro", zero_division=0),
        }
    of_numbers = {}
    if isinstance(task, Regression | OrdinalRegression):
        of_numbers = {
            "pearson": stats.pearsonr(targets, predicted).statistic,
            "spearman": stats.spearmanr(targets, predicted).statistic,
            "mean_squared_error": sklearn_metrics.mean_squared_error(targets, predicted),
            "mean_absolute_error": sklearn_metrics.mean_absolute_error(targets, predicted),
        }
        if isinstance(task, Regression):
            return of_numbers
        predicted = np.clip(np.rint(predicted), 0, 2).astype(int)
    if isinstance(task, TokenClassification) and task.scheme == "BIO":
        scores, lengths = Scores(task.scoring), [np.sum(outcomes.example_of == one) for one in numbers]
        text_of = np.repeat(np.arange(len(lengths)), lengths)
        scores.add(targets, predicted, text_of)  # equal to seqeval's in test_metrics
        return scores.results()
    scores = {
        "accuracy": sklearn_metrics.accuracy_score(targets, predicted),
        "macro_f1": sklearn_metrics.f1_score(targets, predicted, average="macro"),
        "matthews": sklearn_metrics.matthews_corrcoef(targets, predicted),
    }
    if len(task.known_labels) == 2:
        scores["f1"] = sklearn_metrics.f1_score(targets, predicted)
    return scores | of_numbers


# ---- scores and their intervals


@pytest.mark.parametrize("kind", TASKS)
def test_scores_of_any_draw_of_the_examples(kind):
    outcomes = outcomes_of_arrays(kind, 41)
    scoring, rows, draw = outcomes.task.scoring, rows_of(outcomes), np.random.default_rng(5)
    draws = [np.arange(41), *draw.integers(41, size=(4, 41))]
    results = scoring.results(rows, np.stack([np.bincount(numbers, minlength=41) for numbers in draws]).astype(float))
    for index, numbers in enumerate(draws):
        assert {name: value[index] for name, value in results.items()} == pytest.approx(drawn(outcomes, numbers))
    assert {name: one.value for name, one in bootstrap_scores(scoring, rows).items()} == pytest.approx(
        drawn(outcomes, np.arange(41))
    )


@pytest.mark.full
@pytest.mark.parametrize("kind", ["one", "several", "number", "entities"])
def test_intervals_of_a_plain_loop(kind):
    outcomes, random = outcomes_of_arrays(kind, 60), np.random.default_rng(8)
    results = bootstrap_scores(outcomes.task.scoring, rows_of(outcomes))
    plain = [drawn(outcomes, random.integers(60, size=60)) for _ in range(300)]
    for name, one in results.items():
        low, high = np.percentile([scores[name] for scores in plain], [2.5, 97.5])
        slack = 0.25 * (high - low) + 1e-9
        assert (one.low, one.high) == (pytest.approx(low, abs=slack), pytest.approx(high, abs=slack))
        assert one.low < one.value < one.high


def test_differences_are_paired():
    outcomes = outcomes_of_arrays("one", 200)
    scoring, rows = outcomes.task.scoring, rows_of(outcomes)
    none = bootstrap_difference(scoring, rows, rows)
    assert {(one.value, one.low, one.high) for one in none.values()} == {(0.0, 0.0, 0.0)}
    worse = rows.copy()
    worse[:20, 1] = (worse[:20, 0] + 1) % 3
    results = bootstrap_difference(scoring, rows, worse)["accuracy"]
    each = (rows[:, 0] == rows[:, 1]).astype(float) - (worse[:, 0] == worse[:, 1])
    assert results.value == pytest.approx(each.mean())
    assert (results.low, results.high) == pytest.approx(bootstrap_interval(each), abs=0.01)


def test_intervals_of_answers_and_choices():
    """Each score is a mean over questions; that of two models differs by the mean of paired differences."""
    draw = np.random.default_rng(5)
    questions = [Question("who", "Ada met Bo", ((0, 3),) if index % 3 else ()) for index in range(60)]

    def answered(threshold: float) -> tuple[QuestionAnswering, list[AnswerPrediction]]:
        task, predictions = QuestionAnswering(no_answer=True, no_answer_threshold=threshold), []
        for margin, start in zip(draw.normal(size=60).tolist(), draw.integers(2, size=60).tolist(), strict=True):
            best = Answer(4 * start, 4 * start + 3, "Ada met Bo"[4 * start : 4 * start + 3], 0.5)
            predictions.append(AnswerPrediction(None if margin > threshold else best, (best,), 0.2, margin))
        return task, predictions

    choices = [ChoiceQuestion("who", ("Ada", "Bo"), index % 2) for index in range(60)]
    shares = draw.random((2, 60)).tolist()
    chosen = [[ChoicePrediction(int(p < 0.5), "", (p, 1 - p)) for p in of_model] for of_model in shares]
    for examples, (task, ours), (other_task, others) in (
        (questions, answered(0.3), answered(-0.4)),
        (choices, (MultipleChoice(), chosen[0]), (MultipleChoice(), chosen[1])),
    ):
        of_models = []
        for given, predictions in ((task, ours), (other_task, others)):
            scorer = given.scorer()
            scorer.add(examples, predictions)
            of_models.append({name: value for name, value in scorer.results().items() if name != "best_f1_threshold"})
        measured = measured_scores(task, examples, ours)
        assert {name: score.value for name, score in measured.items()} == pytest.approx(of_models[0])
        assert all(score.low < score.value < score.high for score in measured.values())
        gained = measured_scores(task, examples, ours, others, other_task)
        expected = {name: value - of_models[1][name] for name, value in of_models[0].items()}
        assert {name: score.value for name, score in gained.items()} == pytest.approx(expected)
        assert measured_scores(task, examples, ours, ours)[task.best_by] == Measured(0.0, 0.0, 0.0)


def test_intervals_of_each_label():
    outcomes = outcomes_of_arrays("one", 90)
    low, high = bootstrap_f1(outcomes.task.scoring, rows_of(outcomes))
    f1 = sklearn_metrics.f1_score(outcomes.targets, outcomes.predicted, average=None)
    assert (low < f1).all() and (f1 < high).all() and (high - low < 0.4).all()


def test_bootstrap_of_many_examples_is_drawn_in_portions(monkeypatch):
    from bertkit.evidence import intervals

    values = np.random.default_rng(3).normal(size=400)
    at_once = bootstrap_interval(values)
    monkeypatch.setattr(intervals, "_DRAWS_AT_ONCE", 1000)
    assert bootstrap_interval(values) == pytest.approx(at_once, abs=1e-12)
    assert at_once == pytest.approx(values.mean() + 1.96 * np.array([-1, 1]) * values.std() / 20, abs=0.005)


def test_levels_are_the_nearest_ones():
    outcomes = outcomes_of_arrays("levels", 9)
    assert outcomes.levels(np.array([-0.7, 0.4, 0.6, 1.6, 7.0])).tolist() == [0, 0, 1, 2, 2]


def test_excerpts_mark_what_they_leave_out():
    text = "".join(chr(ord("a") + index % 26) for index in range(301))
    assert excerpt(text[:300]) == excerpt(text[:300], 299) == text[:300]
    assert excerpt(text) == text[:300] + " …" and excerpt(text, 300) == "… " + text[1:]
    assert excerpt("b" + text * 3, 500) == "… " + (text * 3)[349:649] + " …"


# ---- calibration and thresholds


def test_calibration_error_and_temperature_of_plain_loops():
    random = np.random.default_rng(4)
    logits = 3 * random.normal(size=(500, 4))
    targets = np.array([random.choice(4, p=np.exp(row / 2) / np.exp(row / 2).sum()) for row in logits])
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == targets
    expected = 0.0
    for index in range(NUM_BINS):
        inside = (confidence >= index / NUM_BINS) & (confidence < (index + 1) / NUM_BINS)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert expected_calibration_error(confidence, right) == pytest.approx(expected)
    assert mean_loss(logits, targets) == pytest.approx(sklearn_metrics.log_loss(targets, probabilities))
    best = minimize_scalar(
        lambda t: torch.nn.functional.cross_entropy(torch.from_numpy(logits / t), torch.from_numpy(targets)).item(),
        bounds=(0.1, 10), method="bounded", options={"xatol": 1e-6},
    )  # fmt: skip
    assert fitted_temperature(logits, targets) == pytest.approx(best.x, rel=1e-3)
    assert best.x == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("kind", ["one", "several", "words"])
def test_temperature_is_evaluated_on_the_other_half(kind):
    outcomes = outcomes_of_arrays(kind, 100)
    results = calibration_of(outcomes)
    first = outcomes.in_first_half
    assert first.sum() == 50
    halves, unchanged = [first, ~first], np.log(outcomes.probabilities)
    if kind == "several":
        halves, targets = [np.repeat(half, 3) for half in halves], outcomes.targets.ravel().astype(int)
        known = outcomes.probabilities.ravel()
        unchanged, said = np.log(np.stack([1 - known, known], axis=1)), np.ones(300, int)
    else:
        targets, said = outcomes.targets, outcomes.predicted
        halves = [half[outcomes.example_of] for half in halves]
    temperatures = [fitted_temperature(unchanged[half], targets[half]) for half in halves]
    scaled = unchanged.copy()
    for half, other in zip(halves, temperatures[::-1], strict=True):
        scaled[half] /= other
    expected = np.exp(scaled) / np.exp(scaled).sum(axis=1, keepdims=True)
    confidence = expected[np.arange(len(said)), said]
    assert results.num_judgments == len(targets) == sum(one.num_judgments for one in results.bins)
    assert results.scaled.of_halves == pytest.approx(temperatures)
    assert results.scaled.loss == pytest.approx(sklearn_metrics.log_loss(targets, expected), rel=1e-6)
    assert results.scaled.expected_calibration_error == pytest.approx(
        expected_calibration_error(confidence, targets == said)
    )
    assert min(temperatures) <= results.scaled.temperature <= max(temperatures)
    expected = np.exp(unchanged)
    confidence, right = expected[np.arange(len(said)), said], targets == said
    assert results.loss == pytest.approx(sklearn_metrics.log_loss(targets, expected), rel=1e-6)
    assert results.expected_calibration_error == pytest.approx(expected_calibration_error(confidence, right))
    numbers = (confidence * NUM_BINS).astype(int)
    inside = [numbers == number for number in np.unique(numbers)]
    for one, some in zip(results.bins, inside, strict=True):
        assert (one.confidence, one.accuracy) == pytest.approx((confidence[some].mean(), right[some].mean()))
        assert (one.low, one.high, one.num_judgments) == (*wilson_interval(right[some].sum(), some.sum()), some.sum())


def test_unencoded_words_are_not_scored():
    outcomes = outcomes_of_arrays("words", 40)
    unread = np.zeros(len(outcomes.targets), np.bool_)
    unread[::7] = True
    results = replace(outcomes, was_read=~unread)
    assert calibration_of(results).num_judgments == label_errors_of(results).num_judged == (~unread).sum()
    assert calibration_of(replace(outcomes, was_read=unread & False)) is None


def f1_at(threshold: float, has: np.ndarray, probability: np.ndarray) -> float:
    decided = probability >= threshold
    return 2 * (has & decided).sum() / (has.sum() + decided.sum())


@pytest.mark.parametrize("kind", ["two", "several"])
def test_thresholds_are_measured_where_they_were_not_chosen(kind):
    outcomes = outcomes_of_arrays(kind, 80)
    has = outcomes.targets.reshape(80, -1) > 0
    known = outcomes.probabilities[:, 1:] if kind == "two" else outcomes.probabilities
    results = thresholds_of(outcomes)
    assert [one.label for one in results] == (["green"] if kind == "two" else list(NAMES))
    for label, one in enumerate(results):
        decided = np.empty(80, bool)
        assert one.f1_in_use == pytest.approx(f1_at(one.in_use, has[:, label], known[:, label]))
        best = max(f1_at(threshold, has[:, label], known[:, label]) for threshold in known[:, label])
        assert f1_at(one.best, has[:, label], known[:, label]) == pytest.approx(best)
        for half in (outcomes.in_first_half, ~outcomes.in_first_half):
            of_others = {t: f1_at(t, has[~half, label], known[~half, label]) for t in np.linspace(0, 1, 2001).tolist()}
            chosen = [t for t, f1 in of_others.items() if f1 == pytest.approx(max(of_others.values()))]
            decided[half] = known[half, label] >= min(chosen, key=lambda t: abs(t - 0.5))
        assert one.f1_held_out == pytest.approx(f1_at(0.5, has[:, label], decided), abs=0.06)
        assert one.f1_held_out <= best + 1e-12
    for other in ("one", "levels", "number", "entities", "words"):
        assert thresholds_of(outcomes_of_arrays(other, 10)) is None
    assert thresholds_of(replace(outcomes_of_arrays("two", 10), was_read=np.ones(10, bool))) is None  # of words


def test_a_probability_at_the_threshold_is_above_it():
    given = outcomes_of_arrays("two", 8)
    targets, known = np.array([0, 1, 0, 1, 0, 1, 0, 1]), np.array([0.25, 0.5, 0.25, 0.5, 0.25, 0.75, 0.25, 0.75])
    outcomes = replace(given, targets=targets, probabilities=np.stack([1 - known, known], axis=1))
    assert thresholds_of(outcomes)[0].f1_in_use == 1.0


def test_no_threshold_is_measured_if_a_half_lacks_the_label():
    given = outcomes_of_arrays("two", 8)
    results = [thresholds_of(replace(given, targets=half.astype(int)))[0]
               for half in (given.in_first_half, ~given.in_first_half)]  # fmt: skip
    assert [one.f1_held_out for one in results] == [None, None]


# ---- label errors


def test_confident_labels_as_defined():
    outcomes = outcomes_of_arrays("one", 150)
    probabilities, given = outcomes.probabilities, outcomes.targets
    results = confident_labels(probabilities, given)
    thresholds = [
        np.mean([row[j] for row, label in zip(probabilities, given, strict=True) if label == j]) for j in range(3)
    ]
    for row, label in zip(probabilities, results, strict=True):
        above = [j for j in range(3) if row[j] >= thresholds[j]]
        assert label == (max(above, key=lambda j: row[j]) if above else -1)
    assert {-1, 0, 1, 2} == set(results.tolist())
    assert set(confident_labels(probabilities, given * 0).tolist()) <= {-1, 0}  # labels that nobody gives


def test_probability_equal_to_the_threshold_of_a_label_reaches_it():
    probabilities = np.array([[0.75, 0.25], [0.25, 0.75]])  # each is the only one of its label
    assert confident_labels(probabilities, np.array([0, 1])).tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["one", "several", "words"])
def test_planted_label_errors_come_first(kind):
    outcomes = outcomes_of_arrays(kind, 120)
    probabilities, draw = outcomes.probabilities, np.random.default_rng(2)
    said = probabilities > 0.5 if kind == "several" else probabilities.argmax(axis=1)
    sure = (
        np.argwhere(np.abs(probabilities - 0.5) > 0.3)
        if kind == "several"
        else np.argwhere(probabilities.max(axis=1) > 0.8)
    )
    sure = draw.permutation(sure)
    _, first = np.unique(outcomes.example_of[sure[:, 0]], return_index=True)  # one in a text
    planted = [tuple(index) for index in sure[np.sort(first)][:8].tolist()]
    for index in planted:
        said[index] = not said[index] if kind == "several" else (said[index] + 1) % 3
    results = label_errors_of(replace(outcomes, targets=said))
    assert results.num_likely >= 8 and results.num_judged == said.size
    names = outcomes.task.label_names
    for index in planted:
        number = int(outcomes.example_of[index[0]])
        given = names[said[index]] if kind != "several" else ("" if said[index] else "not ") + names[index[1]]
        (one,) = [error for error in results.shown[:10] if error.number == number and error.given == given][:1]
        example = outcomes.examples[number]
        assert (one.location, one.text) == (example.location, example.text)
        assert one.given_probability < one.likely_probability
        if kind == "words":
            words = example.text.split()
            assert one.word == words[index[0] - int(np.flatnonzero(outcomes.example_of == number)[0])]


# ---- training data


@pytest.mark.full
def test_planted_leaks_are_detected_and_excluded():
    model, test, draw = model_of("one"), examples_of("one", 40), np.random.default_rng(7)
    train = [replace(one, location="") for one in examples_of("one", 60, seed=9)]
    long = " ".join(WORDS)
    test[5] = replace(test[5], text=f"{long}!", label="red")
    train[17] = replace(train[17], text=f"  {long.upper()} ?", label="blue")  # word for word
    test[11] = replace(test[11], text=" ".join(draw.permutation(WORDS)), label="green")
    train[30] = replace(train[30], text=test[11].text.replace("cat", "dog"), label="green")  # nearly
    results = gather_evidence(model, test, train).leakage
    by_number = {one.number: one for one in results.shown}
    assert by_number[5].is_exact and not by_number[5].same_label and by_number[5].train_number == 17
    assert not by_number[11].is_exact and by_number[11].same_label and by_number[11].train_number == 30
    assert by_number[11].shared_words == pytest.approx(17 / 18) and by_number[11].cosine > 0.9
    assert results.num_exact + results.num_near == len(results.shown) < 25 and results.num_train == 60
    rest = [example for number, example in enumerate(test) if number not in by_number]
    expected = model.evaluate(rest)
    assert {name: one.value for name, one in results.scores_without.items()} == pytest.approx(
        {name: value for name, value in expected.items() if name != "loss"}
    )
    everything = gather_evidence(model, test[:9], test).leakage
    assert (everything.num_exact, everything.scores_without) == (9, None)
    apart = [replace(one, text="mat " * 20) for one in train[:1]]
    assert gather_evidence(model, [replace(test[0], text="walk talk")], apart).leakage.shown == []


def test_words_shared():
    assert shared_words(["a", "b", "b"], ["b", "b", "c"]) == pytest.approx(2 / 3)
    assert shared_words([], ["a"]) == 0.0
    assert normalized_words("Don\x00t\u200bstop\ud800now\x07") == ["don", "t", "stop", "now"]


@pytest.mark.full
def test_detects_leaks_without_words_or_spaces():
    test, train = examples_of("one", 12), examples_of("one", 30, seed=9)
    chinese = "今天的天气非常好我们去公园玩吧"
    test[2], train[8] = replace(test[2], text="😂 ❤️"), replace(train[8], text="😂❤️\n")
    test[4], train[9] = replace(test[4], text=chinese), replace(train[9], text=chinese.replace("好", "差") + "。")
    test[6], train[3] = replace(test[6], text="?!"), replace(train[3], text="...")  # not the same
    by_number = {one.number: one for one in gather_evidence(model_of("one"), test, train).leakage.shown}
    assert by_number[2].is_exact and by_number[2].train_number == 8
    assert not by_number[4].is_exact and by_number[4].train_number == 9
    assert by_number[4].shared_words == pytest.approx(14 / 15)
    assert 6 not in by_number


@pytest.mark.parametrize(
    ("text", "other", "least", "most"),
    [
        ("😂😂", "😂 😂 ", 1.0, 1.0),
        ("😂😂", "😭😭", 0.0, 0.0),
        ("❤️❤️", "☺️☺️", 0.0, 0.0),  # the marks that make them colorful are the same
        ("great ❤️!", "❤Great", 1.0, 1.0),
        ("❤️great", "❤ great", 1.0, 1.0),
        ("great 😂", "great 😭", 0.5, 0.5),
        ("great \U0001fae8", "great 😭", 0.5, 0.5),  # newer than the Unicode of Python 3.11
        ("I run C++", "I run C", 0.7, 0.8),
        ("5 < 6", "5 > 6", 0.6, 0.7),
        ("$5", "€5", 0.5, 0.5),
        ("हिन्दी", "हन्दी", 0.0, 0.0),  # the vowel signs are marks
        ("東京へ行きます", "東京に行きます", 0.8, 0.85),
        ("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน", "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกับ", 0.95, 0.99),
        ("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน", "วันนี้อากาศดีมากเราไปเที่ยวสวนสาธารณะกันเถอะ", 0.0, 0.4),
        ("人人生而自由在尊严和权利上一律平等", "今天的天气非常好我们去公园玩吧今天", 0.0, 0.1),
    ],
)
def test_texts_are_compared_in_every_script(text, other, least, most):
    assert least <= shared_words(normalized_words(text), normalized_words(other)) <= most


def test_words_of_ascii_texts_are_those_of_other_texts() -> None:
    for code in range(128):
        text = f"A{chr(code)}b 1"
        assert normalized_words(text) == normalized_words(f"{text} é")[:-1]


def test_pairs_are_the_same_only_on_both_sides_and_copies_may_have_any_label():
    test = [TextExample("one two", "cat", "red"), TextExample("three", "four five six", "red")]
    train = [TextExample("one", "two cat", "red"), *(TextExample("Three!", "four five six", one) for one in NAMES)]
    by_number = {one.number: one for one in gather_evidence(model_of("one"), test, train).leakage.shown}
    assert by_number[1].is_exact and by_number[1].train_number == 1 + NAMES.index("red") > 1
    assert by_number[1].same_label and not (0 in by_number and by_number[0].is_exact)


@pytest.mark.full
def test_baseline_is_scikit_learns():
    train, test = examples_of("one", 70, seed=2), examples_of("one", 30)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    vectors = vectorizer.fit_transform([one.text for one in train])
    plain = LinearSVC().fit(vectors, [one.label for one in train])
    expected = plain.predict(vectorizer.transform([one.text for one in test]))
    results = predict_baseline(TASKS["one"], train, test)
    assert [NAMES[label] for label in results] == expected.tolist()
    evidence = gather_evidence(model_of("one"), test, train)
    right = np.mean(expected == np.array([one.label for one in test]))
    assert evidence.baseline.scores["accuracy"].value == pytest.approx(right)
    assert evidence.baseline.difference["accuracy"].value == pytest.approx(evidence.scores["accuracy"].value - right)
    assert [point.num_train for point in evidence.baseline.by_size] == [4, 9, 18, 35, 70]
    assert evidence.baseline.by_size[-1].score == evidence.baseline.scores["accuracy"]


def test_one_baseline_in_training_and_in_reports(monkeypatch):
    model, train, test = model_of("one"), examples_of("one", 70, seed=2), examples_of("one", 30)
    value = gather_evidence(model, test, train).baseline.scores["accuracy"].value
    assert simple_baselines(model, train, test, "accuracy")["TF-IDF"] == pytest.approx(value)
    monkeypatch.setattr("bertkit.finetuning.baselines._MOST_ROWS", 20)
    assert list(simple_baselines(model, train, test, "accuracy"))[1] == "TF-IDF, 20 rows"


@pytest.mark.full
def test_baseline_of_texts_without_words():
    empty = [replace(one, text=" ") for one in examples_of("one", 16, seed=2)]
    test = examples_of("one", 8)
    assert len(set(predict_baseline(TASKS["one"], empty, test))) == 1
    train = empty + examples_of("one", 8)
    curve = gather_evidence(model_of("one"), test, train).baseline.by_size
    assert [point.num_train for point in curve] == [2, 3, 6, 12, 24]


def test_baseline_spells_entities():
    task = TASKS["entities"]
    train = [task.example(["the", "cat", "run"], ["B-PER", "I-PER", "O"])] * 3
    results = predict_baseline(task, train, [task.example(["cat", "run", "the", "cat"], ["O"] * 4)])
    assert [TAGS[label] for label in results[1:]] == ["O", "B-PER", "I-PER"] and TAGS[results[0]] != "I-PER"


def test_baseline_of_words():
    task = TASKS["words"]
    train = [task.example(*rows) for rows in ((["cat", "run", "run"], ["NOUN", "VERB", "NOUN"]), (["run"], ["VERB"]))]
    results = predict_baseline(task, train, [task.example(["run", "dog", "cat"], ["ADJ", "ADJ", "ADJ"])])
    assert [task.label_names[label] for label in results] == ["VERB", "NOUN", "NOUN"]  # of as frequent ones the first


@pytest.mark.parametrize("kind", ["one", "several", "levels", "number", "entities", "words"])
def test_baseline_learns_from_words(kind):
    def labeled(number, seed):
        results = []
        for one in examples_of(kind, number, seed):
            words, task = one.text.split(), TASKS[kind]
            if kind in ("entities", "words"):
                names = {"entities": ("O", "B-PER"), "words": ("NOUN", "VERB")}[kind]
                results.append(task.example(words, [names[word in ("run", "walk", "talk")] for word in words]))
                continue
            has = "cat" in words
            label = {"one": "red" if has else "blue", "several": ("red",) if has else ("green", "blue"),
                     "levels": "high" if has else "low", "number": 1.0 * has}[kind]  # fmt: skip
            results.append(replace(one, label=label))
        return results

    task, test = TASKS[kind], labeled(60, 5)
    predicted, targets = predict_baseline(task, labeled(300, 4), test), task.targets(test)
    if kind in ("levels", "number"):
        assert stats.pearsonr(targets, predicted).statistic > 0.7
    else:
        assert (targets == predicted).mean() > 0.85


def test_without_scikit_learn_the_rest_is_there(monkeypatch):
    def absent(*_):
        raise DependencyError("scikit-learn is not installed")

    monkeypatch.setattr(baselines, "tf_idf_vectors", absent)
    results = gather_evidence(model_of("one"), examples_of("one", 9), examples_of("one", 9, seed=2))
    assert results.baseline is None and "not installed" in results.missing["baseline"] and results.leakage is not None


# ---- all of it


@pytest.fixture(scope="module")
def gathered() -> dict:
    return {
        kind: gather_evidence(model_of(kind), examples_of(kind, 45), examples_of(kind, 40, seed=6)) for kind in TASKS
    }


@pytest.mark.full
@pytest.mark.parametrize("kind", TASKS)
def test_scores_equal_those_of_the_model(kind, gathered):
    results, expected = gathered[kind], model_of(kind).evaluate(examples_of(kind, 45))
    scores = {name: one.value for name, one in results.scores.items()}
    assert scores == pytest.approx({name: expected[name] for name in scores}, rel=1e-6, nan_ok=True)
    assert set(expected) - set(scores) <= {"loss"} and ("loss" in scores) == (kind in ("one", "two", "several"))
    assert results.metric in scores
    tokens = model_of(kind).tokenizer.encode_batch([one.text for one in examples_of(kind, 45)]).seqlens
    lengths, long = results.lengths, tokens > 24
    assert (lengths.num_tokens, lengths.longest) == (tokens.sum(), tokens.max()) and long.any()
    tagger = kind in ("entities", "words")
    assert lengths.num_cut == (0 if tagger else long.sum()) and lengths.num_in_windows == long.sum() * tagger
    assert lengths.num_tokens_cut == (0 if tagger else (tokens[long] - 24).sum())
    assert sum(one.num_examples for one in lengths.slices) == 2 * 45  # by length, and by what became of long ones
    assert sum(one.num_examples for one in lengths.slices[-2:]) == 45


@pytest.mark.full(sample=2)
@pytest.mark.parametrize("kind", TASKS)
def test_page_and_json_agree(kind, gathered, tmp_path: Path):
    results = replace(gathered[kind])
    write_evidence_report(results, tmp_path / "report.html", title="A model")
    content, report = (tmp_path / "report.html").read_text(), json.loads((tmp_path / "report.json").read_text())
    page = read(re.sub(r"<span>[^<]*</span><svg", "<svg", content))  # without the hidden labels that set a width
    assert report.pop("title") == "A model" and report == json.loads(json.dumps(results.as_json(), allow_nan=False))
    assert set(report) == set(asdict(results))
    known = {"95", "1", "2021"} | {"0", "5", "10"}  # of sentences; C of the baseline

    def gather(value):
        if isinstance(value, dict | list):
            known.add(f"{len(value):,}")
            for part in value.values() if isinstance(value, dict) else value:
                gather(part)
        elif isinstance(value, str):
            known.update(numbers_in(value))
        elif isinstance(value, int | float):
            known.update(format_number(value, digits) for digits in (3, 4, 5))

    gather(report)
    texts = [data for tag, data in page.texts if tag not in ("style", "script", "text", "title")]
    written = {number for data in texts for number in numbers_in(data)}
    assert len(written) > 40 and written <= known, written - known
    check_geometry(content)


def numbers_in(text: str) -> set[str]:
    return set(re.findall(r"−?\d+(?:,\d{3})*(?:\.\d+)?(?:×10)?[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*", text))


@pytest.mark.full
def test_data_is_escaped(tmp_path: Path):
    bad = '<script>alert("&")</script>'
    model = model_of("two")
    task = SequenceClassification(("<b>", bad))
    model.checkpoint.label_names = task.label_names
    model.checkpoint.trained = TrainedTask(task, Layout(24, "truncate"))
    draw = np.random.default_rng(2)
    test = [TextExample(f"{bad} {random_text(draw)}", bad, task.label_names[i % 2], f"<i>{i}") for i in range(30)]
    write_evidence_report(gather_evidence(model, test, test[:9]), tmp_path / "a.html", title=bad)
    content = (tmp_path / "a.html").read_text()
    page = read(content)
    assert bad not in content and content.count("<script") == 1
    assert {"b", "i"}.isdisjoint(tag for tag, _ in page.elements)
    assert any(bad in data for data in page.text_of("bdi"))


@pytest.mark.full
def test_unsupported_requests_are_reported(tmp_path: Path):
    for kind in TASKS:
        few = gather_evidence(model_of(kind), examples_of(kind, 3))
        assert {"leakage", "baseline", "seeds"} <= set(few.missing)
        assert few.leakage is few.baseline is few.seeds is None
        write_evidence_report(few, tmp_path / f"{kind}.html")
        assert "Not included" in (tmp_path / f"{kind}.html").read_text()
    assert few.calibration.scaled is None and "20 examples" in few.missing["temperature"]
    same = [replace(one, label="red") for one in examples_of("one", 30)]
    results = gather_evidence(model_of("one"), same, same[:1])
    assert "same label" in results.missing["other_labels"] and results.label_errors.num_likely == 0
    assert results.baseline.scores["accuracy"].value == 1.0 and results.leakage.num_exact >= 1
    write_evidence_report(results, tmp_path / "same.html")
    one = gather_evidence(model_of("one"), same[:1], [])
    assert one.scores["accuracy"].low in (0.0, 1.0) and "none given" in one.missing["baseline"]
    constant = gather_evidence(
        model_of("number"), [replace(example, label=2.0) for example in examples_of("number", 9)]
    )
    assert np.isnan(constant.scores["spearman"].value) and constant.as_json()["scores"]["spearman"]["low"] is None
    write_evidence_report(constant, tmp_path / "constant.html")


def test_rejects_invalid_input(tmp_path: Path):
    with pytest.raises(DataError, match="no examples"):
        gather_evidence(model_of("one"), [])
    with pytest.raises(DataError, match=r"test\.csv, line 2: the label 'pink'"):
        gather_evidence(model_of("one"), [replace(examples_of("one", 1)[0], label="pink")])
    with pytest.raises(DataError, match="line 2: the label 'pink'"):
        gather_evidence(model_of("one"), examples_of("one", 4), [replace(examples_of("one", 1)[0], label="pink")])
    model = model_of("one")
    model.checkpoint.trained = TrainedTask(MultipleChoice(), Layout(24, "truncate"))
    with pytest.raises(UsageError, match="evidence requires a task with classes"):
        gather_evidence(model, examples_of("one", 4))
    results = gather_evidence(model_of("one"), examples_of("one", 4))
    for path, message in (("report.json", r"expected \.html"), ("no/report.html", "does not exist")):
        with pytest.raises(UsageError, match=message):
            write_evidence_report(results, tmp_path / path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="one task"):
        gather_evidence(model_of("one"), examples_of("one", 4), seeds=[model_of("two")])
    for one in ("a-folder", model_of("one")):
        with pytest.raises(UsageError, match="expected a list of models, even for one"):
            gather_evidence(model_of("one"), examples_of("one", 4), seeds=one)


@pytest.mark.full
def test_seeds(tmp_path: Path):
    examples, models = examples_of("one", 30), [model_of("one", seed) for seed in (3, 4, 5)]
    models[2].save(tmp_path / "third")
    results = gather_evidence(
        models[0], examples, examples_of("one", 20, seed=2),
        seeds=[models[1], tmp_path / "third"],
    )  # fmt: skip
    accuracies = [model.evaluate(examples)["accuracy"] for model in models]
    assert results.seeds.names == ["this model", "model 2", str(tmp_path / "third")]
    assert results.seeds.scores["accuracy"] == pytest.approx(accuracies)
    spread = results.seeds.spread["accuracy"]
    assert (spread.mean, spread.standard_deviation) == pytest.approx((np.mean(accuracies), np.std(accuracies, ddof=1)))
    assert (spread.lowest, spread.highest) == pytest.approx((min(accuracies), max(accuracies)))
    write_evidence_report(results, tmp_path / "report.html")
    assert "seeds" not in results.missing
