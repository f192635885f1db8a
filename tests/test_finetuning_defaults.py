"""Defaults by width and number of steps, and what is reached without fine-tuning: against scikit-learn's own."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples_of_tasks import TASKS, WORDS, call, examples, write
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score

from bertkit import SequenceClassifier, load
from bertkit.batch import collate
from bertkit.errors import UsageError
from bertkit.finetuning import (
    PAPER,
    Finetuning,
    FinetuningSettings,
    baselines_of,
    comparison,
    default_settings,
    sweep,
)
from bertkit.finetuning.baselines import FROZEN
from bertkit.finetuning.settings import FEWEST_STEPS, LEARNING_RATES, MOST_EPOCHS
from bertkit.tasks import (
    MultiLabelClassification,
    Question,
    QuestionAnswering,
    Regression,
    SequenceClassification,
    TaggedText,
    TextExample,
    TokenClassification,
    read_examples,
    task_kind,
)
from bertkit.tokenizer.layout import Layout

THEIRS = LogisticRegression(C=20, max_iter=1_000)  # of two labels, a row of weights each at C=10
NARROW, WIDE = LEARNING_RATES[0][1], LEARNING_RATES[-1][1]

pytestmark = pytest.mark.usefixtures("one_thread")


def texts(number: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, int(draw.integers(2, 9)))) for _ in range(number)]


def labeled(number: int, seed: int = 1) -> list[TextExample]:
    return [TextExample(text, label="cat" if "cat" in text else "other") for text in texts(number, seed)]


def baselines(encoder: Path, task: Any, train: list, dev: list, metric: str = "", layout: Layout | None = None) -> dict:
    return baselines_of(
        task, layout or Layout(24, task.on_long), train, dev, metric or task.best_by,
        frozen=partial(load, encoder, heads=()), tokenizer=load(encoder).tokenizer,
    )  # fmt: skip


# ---- learning rate and epochs


@pytest.mark.parametrize(
    ("width", "num_batches", "rate", "num_epochs"),
    [
        (384, 47, NARROW, -(-FEWEST_STEPS // 47)), (512, 10**6, NARROW, 3), (128, 1, NARROW, MOST_EPOCHS),
        (513, 0, WIDE, MOST_EPOCHS), (768, 10**6, WIDE, 3), (1_024, 1, WIDE, MOST_EPOCHS), (4_096, 10**6, WIDE, 3),
    ],
)  # fmt: skip
def test_rate_goes_by_width_and_epochs_by_steps(width: int, num_batches: int, rate: float, num_epochs: int) -> None:
    assert default_settings(width, num_batches) == {"learning_rate": rate, "num_epochs": num_epochs}


def test_what_is_asked_for_stays() -> None:
    assert FinetuningSettings(num_epochs=5).completed(PAPER) == FinetuningSettings(num_epochs=5, learning_rate=2e-5)
    whole = FinetuningSettings(**PAPER)
    assert whole.completed({"learning_rate": 1.0, "num_epochs": 9}) is whole
    for wrong in ({"learning_rate": 0.0}, {"num_epochs": 0}, {"warmup": 2.0}, {"batch_size": 0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            FinetuningSettings(**wrong)


@pytest.mark.parametrize(
    ("task", "given", "expected"),
    [
        ("sequence-classification", {}, (NARROW, MOST_EPOCHS)),
        ("sequence-classification", {"num_epochs": 1}, (NARROW, 1)),
        ("sequence-classification", {"learning_rate": 1e-3, "num_epochs": 1}, (1e-3, 1)),
        ("few-shot-classification", {}, (2e-5, 3)),
    ],
)
def test_run_reports_its_resources(
    encoder: Path, tmp_path: Path, task: str, given: dict[str, Any], expected: tuple[float, int]
) -> None:
    out = tmp_path / "out"
    run = Finetuning(out, encoder, task, FinetuningSettings(**given), log_line=lambda line: None)
    outcome = run.start(labeled(40), should_stop=lambda: True)
    assert outcome.reason == "stopped" and run.settings == FinetuningSettings(**given)
    assert run.start(labeled(40), resume=True).reason == "finished"
    log = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    recorded = json.loads((out / "run" / "settings.json").read_text())["settings"]
    for settings in (recorded, log[0]["settings"]):
        assert (settings["learning_rate"], settings["num_epochs"]) == expected
    card = (out / "README.md").read_text()
    assert f"| learning_rate | {expected[0]:.6g} |" in card and f"| num_epochs | {expected[1]} |" in card


def test_the_papers_values_by_name(encoder: Path, tmp_path: Path, capsys) -> None:
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


def test_frozen_features_of_texts_are_those_of_scikit_learn(encoder: Path) -> None:
    train, dev = labeled(200), labeled(150, seed=2)
    task, model = SequenceClassification.of_examples(train, {}), load(encoder)
    results = baselines(encoder, task, train, dev)
    vectors, others = (model.embed([one.text for one in part], normalize=True) for part in (train, dev))
    true = [one.label for one in dev]
    theirs = THEIRS.fit(vectors, [one.label for one in train]).predict(others)
    assert results[FROZEN] == pytest.approx(accuracy_score(true, theirs), abs=2 / len(dev))
    assert results["most frequent label"] == true.count("other") / len(dev) < results[FROZEN]


def test_pairs_are_read_apart(encoder: Path) -> None:
    pairs = list(zip(texts(90, 3), texts(90, 4), strict=True))
    train = [TextExample(a, b, len(set(a.split()) & set(b.split())) / 10) for a, b in pairs]
    results = baselines(encoder, Regression(), train, train, "mean_squared_error")
    model = load(encoder)
    first, second = (model.embed(list(part), normalize=True) for part in zip(*pairs, strict=True))
    features, targets = np.hstack([np.abs(first - second), first * second]), np.array([one.label for one in train])
    theirs = Ridge().fit(features, targets).predict(features)
    assert results[FROZEN] == pytest.approx(((theirs - targets) ** 2).mean(), rel=1e-4)
    assert results["mean"] == pytest.approx(targets.var(), rel=1e-4) and results[FROZEN] < results["mean"]
    assert baselines(encoder, Regression(), train, train, "spearman")["mean"] == 0.0  # of a constant


@pytest.mark.parametrize("layout", [Layout(24, "window"), Layout(8, "window", 3)])
def test_frozen_features_of_words_are_those_of_first_pieces(encoder: Path, layout: Layout) -> None:
    def tagged(number: int, seed: int) -> list[TaggedText]:
        results = []
        for text in texts(number, seed):
            words = text.split()
            results.append(TokenClassification.example(words, ["LONG" if len(word) > 3 else "SHORT" for word in words]))
        return results

    train, dev = tagged(60, 5), tagged(50, 6)
    task = TokenClassification.of_examples(train, {})
    results = baselines(encoder, task, train, dev, layout=layout)
    model = load(encoder)

    def of_words(part: list[TaggedText]) -> tuple[np.ndarray, np.ndarray]:
        data = task.labeled(part, task.encode(model.tokenizer, part, layout))
        with torch.no_grad():
            vectors = model.encoder(collate(data.encodings)).last_hidden_state.numpy()
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors[data.labels >= 0], data.labels[data.labels >= 0]

    vectors, targets = of_words(train)
    others, true = of_words(dev)
    theirs = THEIRS.fit(vectors, targets).predict(others)
    assert len(true) == sum(len(one.tags) for one in dev)
    assert results[FROZEN] == pytest.approx(accuracy_score(true, theirs), abs=2 / len(true))
    assert results["most frequent label"] == np.bincount(true).max() / len(true)


def test_several_labels_have_their_thresholds_set(encoder: Path) -> None:
    names = ("blue", "cat", "red")

    def of_names(number: int, seed: int) -> list[TextExample]:
        return [TextExample(text, label=tuple(name for name in names if name in text)) for text in texts(number, seed)]

    train, dev = of_names(200, 7), of_names(100, 8)
    task, model = MultiLabelClassification.of_examples(train, {}), load(encoder)
    results = baselines(encoder, task, train, dev)
    vectors, others = (model.embed([one.text for one in part], normalize=True) for part in (train, dev))
    theirs = [THEIRS.fit(vectors, targets).predict(others) for targets in task.targets(train).T]
    plain = f1_score(task.targets(dev), np.stack(theirs, axis=1), average="micro")
    assert plain < results[FROZEN] <= 1  # by thresholds of 0.5
    everything = np.ones((len(dev), 3))
    assert results["most frequent label"] == pytest.approx(f1_score(task.targets(dev), everything, average="micro"))


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_baseline(encoder: Path, tmp_path: Path, name: str) -> None:
    results = list(read_examples(name, Path(write(tmp_path / "examples.jsonl", examples(name)))))
    task = TASKS[name] if name.endswith("regression") else task_kind(name).of_examples(results, {})
    named = {"question-answering": ["whole context"], "multiple-choice": ["most frequent place"]}
    constant = "mean" if name.endswith("regression") else "most frequent label"
    result = baselines(encoder, task, results, results)
    assert list(result) == named.get(name, [constant, FROZEN]) and all(0 <= value <= 1 for value in result.values())
    if name == "multiple-choice":
        counts = np.bincount([one.label for one in results])
        assert result["most frequent place"] == counts.max() / len(results)


def test_answers_are_compared_with_the_whole_context_or_none(encoder: Path) -> None:
    answered = Question("who", "one two three four", ((0, 7),))
    assert baselines(encoder, QuestionAnswering(), [answered], [answered]) == {"whole context": pytest.approx(2 / 3)}
    silent = Question("who", "one two", ())
    task = QuestionAnswering(no_answer=True)
    assert baselines(encoder, task, [answered], [answered, silent, silent])["whole context"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("metric", "value", "others", "end"),
    [
        ("f1", 0.5, {"a": 0.25, "b": 0.375}, "a 0.250, b 0.375: fine-tuning is better by 0.125"),
        ("f1", 0.25, {"a": 0.125, "b": 0.375}, "a 0.125, b 0.375: fine-tuning is worse by 0.125"),
        ("loss", 0.5, {"a": 0.75, "b": 1.0}, "a 0.750, b 1.000: fine-tuning is better by 0.250"),
        ("mean_absolute_error", 0.5, {"a": 0.25, "b": 1.0}, "a 0.250, b 1.000: fine-tuning is worse by 0.250"),
    ],
)
def test_the_comparison_says_which_is_better(metric: str, value: float, others: dict[str, float], end: str) -> None:
    assert comparison(metric, {metric: value}, others) == f"{metric} on dev {value:.3f}; {end}"


def test_a_run_ends_with_the_comparison_and_keeps_it(encoder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    train, dev = labeled(60), labeled(40, seed=2)
    run = Finetuning(
        tmp_path / "out", encoder, "sequence-classification", FinetuningSettings(num_epochs=1), log_line=lines.append
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


def test_a_sweep_compares_once_and_knows_the_metric_of_tags(encoder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    tagged = [TokenClassification.example(text.split(), ["B-X", *["O"] * text.count(" ")]) for text in texts(30, 9)]
    run = Finetuning(
        tmp_path / "out", encoder, "token-classification", FinetuningSettings(num_epochs=1), log_line=lines.append
    )
    outcome = sweep(run, {"learning_rate": (1e-3, 1e-2)}, tagged, tagged)
    assert [line for line in lines if "fine-tuning is" in line] == [
        comparison("f1", outcome.metrics, outcome.baselines)
    ]
    assert outcome.baselines["most frequent label"] == 0.0
    assert sweep(run, {"learning_rate": (1e-3, 1e-2)}, tagged, tagged, resume=True) == outcome


def test_estimators_have_the_figures_and_print_nothing(encoder: Path, capsys) -> None:
    train, dev = labeled(60), labeled(40, seed=2)
    (X, y), held_out = (([one.text for one in part], [one.label for one in part]) for part in (train, dev))
    results = SequenceClassifier(encoder, num_epochs=1).fit(X, y, dev=held_out)
    assert results.outcome_.baselines == baselines(encoder, SequenceClassification.of_examples(train, {}), train, dev)
    assert results.outcome_.metrics == results.model_.trained.metrics
    assert SequenceClassifier(encoder, num_epochs=1).fit(X, y).outcome_.baselines == {}
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
