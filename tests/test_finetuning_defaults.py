"""Defaults by width and number of steps, and scores without fine-tuning, compared with scikit-learn."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples_of_tasks import TASKS, WORDS, call, examples, write
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score
from sklearn.svm import LinearSVC

from bertkit import SequenceClassifier, load
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import UsageError
from bertkit.finetuning import (
    PAPER,
    Finetuning,
    FinetuningSettings,
    comparison,
    default_settings,
    simple_baselines,
    sweep,
)
from bertkit.finetuning.baselines import FROZEN
from bertkit.finetuning.network import model_to_train
from bertkit.finetuning.settings import FROM_DRAWN, FROM_FITTED, FROM_FITTED_NARROWEST
from bertkit.tasks import (
    METRICS,
    Question,
    QuestionAnswering,
    Regression,
    SequenceClassification,
    TextExample,
    TextTask,
    TokenClassification,
    metric_of,
    read_examples,
    task_kind,
    tasks_of,
)
from bertkit.tokenizer.layout import Layout
from bertkit.training import read_outcome
from bertkit.training.settings import FEWEST_STEPS, MOST_EPOCHS

NARROW, WIDE = FROM_DRAWN["learning_rate"], PAPER["learning_rate"]

pytestmark = pytest.mark.usefixtures("one_thread")


def texts(number: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, int(draw.integers(2, 9)))) for _ in range(number)]


def labeled(number: int, seed: int = 1) -> list[TextExample]:
    return [TextExample(text, label="cat" if "cat" in text else "other") for text in texts(number, seed)]


def baselines(encoder: Path, task: Any, train: list, dev: list, metric: str = "") -> dict:
    settings = FinetuningSettings.of(best_by=metric or None)
    options = {"levels": list(task.levels)} if task.name == "ordinal-regression" else {}
    run = Finetuning(Path("nowhere"), encoder, task.name, settings, options, log_line=lambda line: None)
    model = model_to_train(str(encoder), task, settings, print, train[0])
    return run.baselines(model, run.frozen(train, dev), train, dev)


# ---- learning rate and epochs


@pytest.mark.parametrize(
    ("width", "num_batches", "rate", "num_epochs"),
    [
        (257, 47, NARROW, -(-FEWEST_STEPS // 47)), (256, 47, NARROW, -(-FEWEST_STEPS // 47)),
        (512, 10**6, NARROW, 3), (128, 1, NARROW, MOST_EPOCHS),
        (513, 0, WIDE, MOST_EPOCHS), (768, 10**6, WIDE, 3), (1_024, 1, WIDE, MOST_EPOCHS), (4_096, 10**6, WIDE, 3),
    ],
)  # fmt: skip
def test_default_rate_depends_on_width_and_epochs_on_steps(
    width: int, num_batches: int, rate: float, num_epochs: int
) -> None:
    expected = {"learning_rate": rate, "num_epochs": num_epochs}
    assert default_settings(width, num_batches, "drawn") == expected
    fitted = FROM_FITTED_NARROWEST if width <= 256 else FROM_FITTED
    for head in ("fitted", "published"):
        assert default_settings(width, num_batches, head) == dict(fitted if rate == NARROW else PAPER)


def test_explicit_settings_are_kept() -> None:
    assert FinetuningSettings.of(num_epochs=5).completed(PAPER) == FinetuningSettings.of(
        num_epochs=5, learning_rate=2e-5
    )
    whole = FinetuningSettings.of(**PAPER)
    assert whole.completed({"learning_rate": 1.0, "num_epochs": 9}) is whole
    for wrong in ({"learning_rate": 0.0}, {"num_epochs": 0}, {"warmup": 2.0}, {"batch_size": 0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            FinetuningSettings.of(**wrong)


@pytest.mark.full
@pytest.mark.parametrize(
    ("task", "given", "expected"),
    [
        ("sequence-classification", {}, tuple(FROM_FITTED_NARROWEST.values())),
        ("sequence-classification", {"head": "drawn"}, (NARROW, MOST_EPOCHS)),
        ("sequence-classification", {"num_epochs": 1}, (FROM_FITTED_NARROWEST["learning_rate"], 1)),
        ("sequence-classification", {"learning_rate": 1e-3, "num_epochs": 1}, (1e-3, 1)),
        ("few-shot-classification", {}, (2e-5, 3)),
    ],
)
def test_run_reports_its_resources(
    encoder: Path, tmp_path: Path, task: str, given: dict[str, Any], expected: tuple[float, int]
) -> None:
    out = tmp_path / "out"
    run = Finetuning(out, encoder, task, FinetuningSettings.of(**given), log_line=lambda line: None)
    outcome = run.start(labeled(40), should_stop=lambda: True)
    assert outcome.reason == "stopped" and run.settings == FinetuningSettings.of(**given)
    assert run.start(labeled(40), resume=True).reason == "finished"
    log = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    recorded = json.loads((out / "run" / "settings.json").read_text())["settings"]
    for settings in (recorded, log[0]["settings"]):
        assert (settings["learning_rate"], settings["num_epochs"]) == expected
    card = (out / "README.md").read_text()
    assert f"| learning_rate | {expected[0]:.6g} |" in card and f"| num_epochs | {expected[1]} |" in card


@pytest.mark.full
def test_papers_values_by_name(encoder: Path, tmp_path: Path, capsys) -> None:
    rows = [f"{one.text},{one.label}\n" for one in labeled(40)]
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(rows))
    given = ["--model", str(encoder), "--train", str(tmp_path / "train.csv"), "--defaults", "paper"]
    for name, more, expected in (("paper", [], (2e-5, 3)), ("mixed", ["--num-epochs", "1"], (2e-5, 1))):
        code, _, error = call(
            capsys, "finetune", "sequence-classification", "--out", str(tmp_path / name), *given, *more
        )
        settings = json.loads((tmp_path / name / "run" / "settings.json").read_text())["settings"]
        assert code == 0 and (settings["learning_rate"], settings["num_epochs"]) == expected
        assert error.splitlines()[-1].startswith("without dev examples the quality of the model")


# ---- without fine-tuning


@pytest.mark.full
def test_word_baselines(encoder: Path) -> None:
    train, dev = labeled(90), labeled(70, seed=2)
    results = baselines(encoder, SequenceClassification.of_examples(train, {}), train, dev)
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit([one.text for one in train])
    theirs = LinearSVC().fit(vectors.transform([one.text for one in train]), [one.label for one in train])
    true = [one.label for one in dev]
    assert results["most frequent label"] == true.count("other") / len(dev)
    assert results["TF-IDF"] == accuracy_score(true, theirs.predict(vectors.transform([one.text for one in dev])))
    pairs = zip(texts(90, 3), texts(90, 4), strict=True)
    scored = [TextExample(a, b, len(set(a.split()) & set(b.split())) / 10) for a, b in pairs]
    targets = np.array([one.label for one in scored])
    task = Regression()
    results = baselines(encoder, task, scored, scored, "mean_squared_error")
    assert results["mean"] == pytest.approx(targets.var(), rel=1e-4) and results[FROZEN] < results["mean"]
    assert baselines(encoder, task, scored, scored, "spearman")["mean"] == 0.0  # of a constant


@pytest.mark.full(sample=2)
@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_baseline(encoder: Path, tmp_path: Path, name: str) -> None:
    results = list(read_examples(name, Path(write(tmp_path / "examples.jsonl", examples(name)))))
    if name == "multiple-choice":
        results = [replace(one, choices=one.choices[:3]) for one in results]
    task = TASKS[name] if name.endswith("regression") else task_kind(name).of_examples(results, {})
    named = {
        "question-answering": ["whole context"], "multiple-choice": ["most frequent index"],
        "token-classification": ["most frequent label", "most frequent tag of each word"],
    }  # fmt: skip
    constant = ["mean" if name.endswith("regression") else "most frequent label", "TF-IDF"]
    result = baselines(encoder, task, results, results)
    assert list(result) == [*named.get(name, constant), FROZEN] and all(0 <= value <= 1 for value in result.values())
    if name == "multiple-choice":
        counts = np.bincount([one.label for one in results])
        assert result["most frequent index"] == counts.max() / len(results)


def test_answers_are_compared_with_the_whole_context_or_none(encoder: Path) -> None:
    answered = Question("who", "one two three four", ((0, 7),))
    model = load(encoder, heads=["question_answering"], new=["question_answering"])

    def whole_context(task: QuestionAnswering, dev: list[Question]) -> dict[str, float]:
        model.checkpoint.trained = TrainedTask(task, Layout(24, "window"))
        return simple_baselines(model, [answered], dev, task.best_by)

    assert whole_context(QuestionAnswering(), [answered]) == {"whole context": pytest.approx(2 / 3)}
    silent = Question("who", "one two", ())
    results = whole_context(QuestionAnswering(no_answer=True), [answered, silent, silent])
    assert results == {"whole context": pytest.approx(2 / 3)}


def test_no_more_training_is_advised_where_frozen_features_are_kept(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertkit.finetuning.advice.still_falling", lambda losses: "more epochs may help")
    for name, rate, kept in (("kept", 1e-12, True), ("trained", 1e-2, False)):
        lines: list[str] = []
        settings = FinetuningSettings.of(learning_rate=rate, num_epochs=12, batch_size=4)
        run = Finetuning(tmp_path / name, encoder, "sequence-classification", settings, log_line=lines.append)
        outcome = run.start(labeled(40), labeled(40))  # which it learns by heart, if anything
        assert (outcome.best_step == 0) == kept
        assert any("fine-tuning gained nothing" in line for line in lines) == kept
        assert any("more epochs may help" in line for line in lines) != kept


@pytest.mark.parametrize("name", tasks_of(TextTask))
def test_metrics_of_every_task_are_known(name: str) -> None:
    """Their direction is data, also of those of two classes and of questions without answers."""
    kind: Any = task_kind(name)
    tasks = [kind()] if name != "ordinal-regression" else [kind(levels=("low", "high"))]
    if name in ("sequence-classification", "siamese-classification", "few-shot-classification"):
        tasks = [kind(("a", "b")), kind(("a", "b", "c"))]
    elif name in ("multi-label-classification", "token-classification"):
        tasks = [kind(("O", "B-A", "I-A"))]
    elif name == "question-answering":
        tasks = [kind(), kind(no_answer=True)]
    elif name in ("similarity", "cross-encoder"):
        kinds = ("pairs", "scores", "binary") if name == "similarity" else ("lists", "scores", "binary")
        tasks = [kind(kind=which) for which in kinds]
    for task in tasks:
        results = task.scorer().results().keys() - {"threshold", "best_f1_threshold"}
        assert {task.best_by} <= results <= METRICS.keys()
    lower = {metric for metric in METRICS if not metric_of(metric).higher_is_better}
    assert lower == {
        "loss", "mean_squared_error", "mean_absolute_error", "vector_error",
        "perplexity", "masked_lm_loss", "masked_lm_perplexity", "next_sentence_loss",
    }  # fmt: skip


def test_metric_without_a_direction_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"metric 'surprise': expected one of .*; add others to bertkit\.tasks\.METRICS"
    ):
        comparison("surprise", {"surprise": 1.0}, {"other": 2.0})


@pytest.mark.parametrize(
    ("metric", "value", "others", "end"),
    [
        ("f1", 0.5, {"a": 0.25, "b": 0.375}, "a 0.250, b 0.375: the saved model is better by 0.125"),
        ("f1", 0.25, {"a": 0.125, "b": 0.375}, "a 0.125, b 0.375: the saved model is worse by 0.125"),
        ("f1", 0.25, {"a": 0.125, "b": 0.25}, "a 0.125, b 0.250: the saved model is no better"),
        ("loss", 0.5, {"a": 0.75, "b": 1.0}, "a 0.750, b 1.000: the saved model is better by 0.250"),
        ("mean_absolute_error", 0.5, {"a": 0.25, "b": 1.0}, "a 0.250, b 1.000: the saved model is worse by 0.250"),
    ],
)
def test_comparison_says_which_is_better(metric: str, value: float, others: dict[str, float], end: str) -> None:
    assert comparison(metric, {metric: value}, others) == f"{metric} on dev {value:.3f}; {end}"


@pytest.mark.full
def test_run_ends_with_the_comparison_and_keeps_it(encoder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    train, dev = labeled(60), labeled(40, seed=2)
    run = Finetuning(
        tmp_path / "out", encoder, "sequence-classification", FinetuningSettings.of(num_epochs=1), log_line=lines.append
    )
    outcome = run.start(train, dev)
    task = SequenceClassification.of_examples(train, {})
    assert outcome.baselines == baselines(encoder, task, train, dev)
    assert lines[-1] == comparison("accuracy", outcome.metrics, outcome.baselines)
    assert run.start(train, dev, resume=True) == outcome
    assert (
        run.compare
        and Finetuning(
            tmp_path / "other", encoder, "sequence-classification", run.settings, log_line=lines.append, compare=False
        )
        .start(train, dev)
        .baselines
        == {}
    )


@pytest.mark.full
def test_sweep_compares_once_by_the_metric_of_tags(encoder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    tagged = [TokenClassification.example(text.split(), ["B-X", *["O"] * text.count(" ")]) for text in texts(30, 9)]
    run = Finetuning(
        tmp_path / "out", encoder, "token-classification", FinetuningSettings.of(num_epochs=1), log_line=lines.append
    )
    outcome = sweep(run, {"learning_rate": (1e-3, 1e-2)}, tagged, tagged)
    assert [line for line in lines if "the saved model is" in line] == [
        comparison("f1", outcome.metrics, outcome.baselines)
    ]
    assert outcome.baselines["most frequent label"] == 0.0
    assert read_outcome(run.out) == outcome
    card = (run.out / "README.md").read_text()
    assert "## Comparison" in card and all(f"| {name} |" in card for name in outcome.baselines)
    assert sweep(run, {"learning_rate": (1e-3, 1e-2)}, tagged, tagged, resume=True) == outcome


@pytest.mark.full
def test_estimators_store_outcomes_and_print_nothing(encoder: Path, capsys) -> None:
    train, dev = labeled(60), labeled(40, seed=2)
    (X, y), held_out = (([one.text for one in part], [one.label for one in part]) for part in (train, dev))
    results = SequenceClassifier(encoder, num_epochs=1).fit(X, y, dev=held_out)
    assert results.outcome_.baselines == baselines(encoder, SequenceClassification.of_examples(train, {}), train, dev)
    assert results.outcome_.metrics == results.model_.trained.metrics
    assert SequenceClassifier(encoder, num_epochs=1).fit(X, y).outcome_.baselines == {}
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
