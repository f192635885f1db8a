"""The best model within a number of minutes: candidates, selection, kept model, and time."""

import json
import math
import re
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from examples_of_tasks import first_note
from test_fitted_head import SETTINGS, labeled, pairs, sentence_encoder

from bertkit import SequenceClassifier, load
from bertkit.errors import DataError, UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings, Outcome, start_run, sweep
from bertkit.finetuning.advice import not_above_baselines, on_rows, still_falling
from bertkit.finetuning.held_out import held_out
from bertkit.finetuning.within import Candidate, _Within
from bertkit.tasks import (
    ChoiceQuestion,
    MultiLabelClassification,
    SequenceClassification,
    TextExample,
    TextSet,
    TokenClassification,
)
from bertkit.training import Ranks

assert sentence_encoder  # a fixture

WITHIN = SETTINGS.changed(num_epochs=None, learning_rate=None, minutes=0.5)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of these tests are written in less time than real ones."""
    monkeypatch.setattr("bertkit.finetuning.within._SECONDS_OF_A_RUN", 0.05)


def run_of(out: Path, encoder: Path, lines: list[str], settings: FinetuningSettings = WITHIN) -> Finetuning:
    return Finetuning(out, encoder, "sequence-classification", settings, log_line=lines.append)


@pytest.mark.full
def test_several_runs_are_tried_and_the_best_is_kept(sentence_encoder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    train, dev = labeled(60), labeled(40, seed=2)
    outcome = start_run(run_of(tmp_path / "out", sentence_encoder, lines), train, dev)
    assert first_note(lines).startswith("frozen features: ") and outcome.reason in ("finished", "stopped early")
    names = [row["name"] for row in outcome.tried]
    assert names[0] == "frozen features" and len(names) >= 2, names
    best = max(row["score"] for row in outcome.tried)
    assert outcome.metrics["accuracy"] == best == load(tmp_path / "out").evaluate(dev)["accuracy"]
    assert all(row["low"] <= row["score"] <= row["high"] for row in outcome.tried)
    assert any(line.startswith("tried") for line in lines) and "frozen" in lines[-1]
    record = json.loads((tmp_path / "out" / "run" / "minutes.json").read_text())
    assert record["tried"] == outcome.tried and not (tmp_path / "out" / "run" / "runs").exists()
    again = start_run(run_of(tmp_path / "out", sentence_encoder, lines), train, dev, resume=True)
    assert again == outcome
    with pytest.raises(UsageError, match="contains a search within minutes: pass --minutes and --resume"):
        Finetuning(tmp_path / "out", sentence_encoder, "sequence-classification", SETTINGS).start(train, dev)


@pytest.mark.slow
def test_search_ends_in_time(sentence_encoder: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    start_run(run_of(tmp_path / "out", sentence_encoder, []), labeled(60), labeled(40, seed=2))
    assert time.monotonic() - began < 1.1 * 60 * WITHIN.minutes


@pytest.mark.full
def test_without_dev_examples_training_rows_choose(sentence_encoder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    settings = WITHIN.changed(minutes=0.1)
    start_run(run_of(tmp_path / "out", sentence_encoder, lines, settings), labeled(150))
    assert first_note(lines) == (
        "no dev examples: 30 of the 150 training rows, chosen at random, are held out to compare runs"
    )
    assert len(load(tmp_path / "out").predict(["the cat"])) == 1
    lines.clear()
    outcome = start_run(run_of(tmp_path / "few", sentence_encoder, lines), labeled(40))
    assert "too few to hold some out" in first_note(lines) and [row["name"] for row in outcome.tried] == [
        "frozen features"
    ]


@pytest.mark.parametrize("seconds", [20.0, 45.0, 130.0, 1_000.0])
@pytest.mark.parametrize("num_dev", [0, 40])
def test_a_plan_leaves_time_to_train_the_best_on_all_rows(
    sentence_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, num_dev: int
) -> None:
    within = _Within(run_of(tmp_path, sentence_encoder, []), labeled(200), labeled(num_dev, seed=2), lambda: False)
    within.seconds_to_evaluate, within.state = 1.0, {"tried": [{"name": "frozen features"}]}
    monkeypatch.setattr(within, "_left", lambda: seconds)
    monkeypatch.setattr(within, "_seconds_per_step", lambda: 0.5)
    plan = within._plan()
    again = 0 if num_dev else 200 / 160 * max(one.seconds for one in plan)
    assert plan and sum(one.seconds + 2 for one in plan) + again <= 1.001 * seconds
    most = max(one.seconds for one in plan) * (1 if num_dev else 2.25)
    assert seconds > 100 or most > 0.7 * seconds  # the first run has what is left
    left = seconds - within._overhead * (1 if num_dev else 2)
    assert within._available() == pytest.approx(left / (1 if num_dev else 2.25))


def test_held_out_rows_reject_fine_tuning_by_a_standard_error_only(sentence_encoder: Path, tmp_path: Path) -> None:
    def best(num_dev: int, *scores: float) -> str:
        dev = labeled(num_dev, seed=2)
        within = _Within(run_of(tmp_path, sentence_encoder, []), labeled(200), dev, lambda: False)
        rows = [{"name": f"run {number}", "score": score, "low": score - 0.06, "high": score + 0.06}
                for number, score in enumerate(scores)]  # fmt: skip
        within.state = {"tried": rows}
        return within._best()["name"]

    assert best(0, 0.8) == "run 0" and best(0, 0.8, 0.78, 0.79) == "run 2" and best(0, 0.8, 0.75, 0.76) == "run 0"
    assert best(40, 0.8, 0.79) == best(40, 0.8, 0.8) == "run 0" and best(40, 0.8, 0.81, 0.81) == "run 1"


@pytest.mark.full
def test_stopped_time_limited_search_resumes(sentence_encoder: Path, tmp_path: Path) -> None:
    train, dev, steps = labeled(60), labeled(40, seed=2), []

    def should_stop() -> bool:
        steps.append(1)
        return len(steps) > 3

    lines: list[str] = []
    run = run_of(tmp_path / "out", sentence_encoder, lines)
    stopped = start_run(run, train, dev, should_stop=should_stop)
    assert stopped.reason == "stopped" and [row["name"] for row in stopped.tried] == ["frozen features"]
    with pytest.raises(UsageError, match="resume=True"):
        start_run(run, train, dev)
    outcome = start_run(run, train, dev, resume=True)
    assert outcome.tried[0] == stopped.tried[0] and outcome.metrics["accuracy"] > 0.5


@pytest.mark.full
def test_too_little_time_leaves_frozen_features(sentence_encoder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    run = run_of(tmp_path / "out", sentence_encoder, lines, WITHIN.changed(minutes=0.001))
    outcome = start_run(run, labeled(60), labeled(40, seed=2))
    assert [row["name"] for row in outcome.tried] == ["frozen features"]
    assert any("only frozen features fit in 0.001 minutes" in line for line in lines)
    parameters, before = (
        dict(load(folder).network.encoder.named_parameters()) for folder in (run.out, sentence_encoder)
    )
    assert all(torch.equal(parameters[name], before[name]) for name in parameters)


@pytest.mark.full
@pytest.mark.usefixtures("one_candidate")
def test_a_search_ends_with_the_gain_and_its_interval(sentence_encoder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    rows = [ChoiceQuestion(one.text, ("cat", "dog"), index % 2) for index, one in enumerate(labeled(60))]
    start_run(replace(run_of(tmp_path / "out", sentence_encoder, lines), task="multiple-choice"), rows, rows[:40])
    frozen, tuned = json.loads((tmp_path / "out" / "run" / "minutes.json").read_text())["tried"]
    for row in (frozen, tuned):
        assert row["low"] < row["score"] < row["high"]
    assert re.match(r"frozen features  \d\.\d{3}  \d\.\d{3} to \d\.\d{3}  \d", lines[-3]), lines
    gain = re.match(r"over frozen features, fine-tuning gained (-?\d\.\d{3}) accuracy \(95 % interval ", lines[-1])
    assert gain and float(gain[1]) == pytest.approx(tuned["score"] - frozen["score"], abs=6e-4)


def test_held_out_rows_leave_two_of_each_label() -> None:
    rows = [TextExample(f"text {index}", label=f"label {index % 45}") for index in range(200)]
    kept, chosen = held_out(rows)
    assert len(chosen) > 20 and len(kept) + len(chosen) == 200 and not set(kept) & set(chosen)
    assert min(Counter(one.label for one in kept).values()) >= 2
    assert held_out(pairs(90)) == (pairs(90), [])
    kept, chosen = held_out(pairs(110))
    assert (len(kept), len(chosen)) == (88, 22)


def test_held_out_rows_leave_the_rows_of_rare_names() -> None:
    """Held-out rows that have a rare label among others, or a rare tag, are trained on too."""
    _, drawn = held_out(pairs(150))
    first, second, *_ = (pairs(150).index(one) for one in drawn)
    other = next(index for index in range(150) if index not in (first, second))
    rare = {first: ("a",), second: ("a", "y"), other: ("a", "x")}
    rows = [TextExample(f"text {index}", label=rare.get(index, ("x", "y"))) for index in range(150)]
    kept, chosen = held_out(rows)
    assert MultiLabelClassification.of_examples(kept, {}).label_names == ("a", "x", "y") and len(chosen) == 28
    tagged = [TokenClassification.example(["one"], ["B-LOC" if index == first else "B-PER"]) for index in range(150)]
    kept, chosen = held_out(tagged)
    assert "B-LOC" in TokenClassification.of_examples(kept, {}).label_names and len(chosen) == 29


@pytest.fixture
def one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that try one short fine-tuning run after frozen features, and keep it."""
    settings = {"learning_rate": 3e-3, "num_epochs": 1}
    monkeypatch.setattr(_Within, "_plan", lambda self: [Candidate("fine-tuning", self.run.task, settings, 1.0)])
    monkeypatch.setattr(_Within, "_best", lambda self: self.state["tried"][-1])


def several(number: int, seed: int = 1) -> list[TextExample]:
    """Texts with some of the labels cat and dog, mostly left out where they apply: thresholds below 0.5 are best."""
    return [
        replace(one, label=tuple(name for name in ("cat", "dog") if name in one.text and index % 3 == 0))
        for index, one in enumerate(labeled(number, seed))
    ]


@pytest.mark.full
def test_frozen_features_kept_have_the_thresholds_of_held_out_rows(sentence_encoder: Path, tmp_path: Path) -> None:
    rows, task = several(150), "multi-label-classification"
    run = replace(run_of(tmp_path / "out", sentence_encoder, [], WITHIN.changed(minutes=0.001)), task=task)
    assert [row["name"] for row in start_run(run, rows).tried] == ["frozen features"]
    candidate = replace(run, out=tmp_path / "candidate", settings=SETTINGS, trains=False, compare=False)
    candidate.start(*held_out(rows))
    thresholds = load(candidate.out).trained.task.thresholds
    assert load(run.out).trained.task.thresholds == thresholds and min(thresholds) < 0.5


@pytest.mark.full
@pytest.mark.usefixtures("one_candidate")
def test_a_model_of_all_rows_has_the_thresholds_of_held_out_rows(sentence_encoder: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "out", sentence_encoder, [], WITHIN.changed(lora_rank=2))
    assert len(start_run(replace(run, task="multi-label-classification"), several(150)).tried) == 2
    thresholds = load(run.out).trained.task.thresholds
    record = json.loads((run.out / "adapter" / "bertkit.json").read_text())
    assert min(thresholds) < 0.5 and record["task"]["settings"]["thresholds"] == list(thresholds)


@pytest.mark.full
@pytest.mark.parametrize("settings", [{"lora_rank": 2}, {"patience": 2}])
def test_settings_that_frozen_features_do_not_use(sentence_encoder: Path, tmp_path: Path, settings: dict) -> None:
    run = run_of(tmp_path / "out", sentence_encoder, [], WITHIN.changed(minutes=0.001, **settings))
    outcome = start_run(run, labeled(60), labeled(40, seed=2))
    assert [row["name"] for row in outcome.tried] == ["frozen features"] and not (run.out / "adapter").exists()
    assert outcome.baselines == {"frozen features": outcome.metrics["accuracy"]}
    assert "| method | accuracy on dev |" in (run.out / "README.md").read_text()
    assert load(run.out).evaluate(labeled(40, seed=2)) == outcome.metrics


@pytest.mark.full
@pytest.mark.usefixtures("one_candidate")
def test_a_search_stopped_while_it_trains_on_all_rows_resumes(sentence_encoder: Path, tmp_path: Path) -> None:
    run, rows = run_of(tmp_path / "out", sentence_encoder, []), labeled(150)
    again = run.out / "run" / "runs" / "all-rows"
    assert start_run(run, rows, should_stop=again.exists).reason == "stopped"
    outcome = start_run(run, rows, resume=True)
    assert outcome.reason == "finished" and outcome.step > 0 and len(outcome.tried) == 2


@pytest.mark.full
def test_a_search_killed_while_it_fits_all_rows_resumes(
    sentence_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, rows = run_of(tmp_path / "out", sentence_encoder, [], WITHIN.changed(minutes=0.001)), labeled(150)
    start = Finetuning.start

    def killed_on_all_rows(self: Finetuning, train: list, *others, **options) -> None:
        if len(train) == len(rows):
            raise KeyboardInterrupt
        return start(self, train, *others, **options)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Finetuning, "start", killed_on_all_rows)
        start_run(run, rows)
    assert [row["name"] for row in start_run(run, rows, resume=True).tried] == ["frozen features"]


@pytest.mark.full
def test_a_stopped_run_keeps_its_time_when_it_resumes(
    sentence_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes, start, waited = [], Finetuning.start, [0.0]

    def stopped_after_ten_seconds(self: Finetuning, *examples, **options) -> Outcome:
        if not self.trains:
            return start(self, *examples, **options)
        minutes.append(self.clock_minutes)
        waited[0] += 10
        return Outcome("stopped", 1, None, {})

    monkeypatch.setattr(Finetuning, "start", stopped_after_ten_seconds)
    monkeypatch.setattr(_Within, "_seconds_per_step", lambda self: 30.0)
    clock, moment = SimpleNamespace(monotonic=lambda: moment() + waited[0]), time.monotonic
    monkeypatch.setattr("bertkit.finetuning.within.time", clock)
    run = run_of(tmp_path / "out", sentence_encoder, [], WITHIN.changed(minutes=2.0))
    for resume in (False, True):
        assert start_run(run, labeled(60), labeled(40, seed=2), resume=resume).reason == "stopped"
    assert 60 * minutes[1] > 60 * minutes[0] - 5


def test_contrast_needs_batches_of_two(sentence_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Within, "_seconds_per_step", lambda self: 0.01)
    for batch_size in (1, 2):
        run = run_of(tmp_path, sentence_encoder, [], WITHIN.changed(batch_size=batch_size))
        within = _Within(run, labeled(24), labeled(20, seed=2), lambda: False)
        within.state = {"under_way": 0.0}
        names = [one.name for one in within._plan()]
        assert names and ("contrast" in names) == (batch_size == 2)


def test_estimators_support_minutes(sentence_encoder: Path) -> None:
    X, y = [one.text for one in labeled(60)], [one.label for one in labeled(60)]
    estimator = SequenceClassifier(sentence_encoder, minutes=0.02).fit(X, y)
    assert estimator.outcome_.tried[0]["name"] == "frozen features" and estimator.score(X, y) > 0.5


def test_bad_input(sentence_encoder: Path, tmp_path: Path) -> None:
    for minutes in (0, -1.0, math.inf):
        with pytest.raises(UsageError, match="minutes="):
            WITHIN.changed(minutes=minutes)
    with pytest.raises(UsageError, match="patience=2 requires dev examples"):
        start_run(run_of(tmp_path / "out", sentence_encoder, [], WITHIN.changed(patience=2)), labeled(40))
    for run in (
        run_of(tmp_path / "out", sentence_encoder, [], WITHIN.changed(head="drawn")),
        replace(run_of(tmp_path / "out", sentence_encoder, []), task="cross-encoder"),
    ):
        rows = labeled(40) if run.task != "cross-encoder" else [TextSet("cat", ("a cat",), ("a dog",))] * 40
        with pytest.raises(UsageError, match=f"the head of {run.task} is neither trained nor fitted"):
            start_run(run, rows)
    run = run_of(tmp_path / "out", sentence_encoder, [])
    for start, work in ((run.start, r"Finetuning\.start"), (partial(sweep, run, {"seed": [0]}), "a sweep")):
        with pytest.raises(UsageError, match=rf"minutes=0\.5 does not limit {work}: omit it, or "):
            start(labeled(40), labeled(20))
    assert not (tmp_path / "out").exists()
    run = replace(run_of(tmp_path / "out", sentence_encoder, []), ranks=Ranks(0, 2))
    with pytest.raises(UsageError, match="without torchrun"):
        start_run(run, labeled(40))


@pytest.mark.full
@pytest.mark.parametrize("num_dev", [0, 20])
def test_frozen_features_without_a_metric_are_refused(sentence_encoder: Path, tmp_path: Path, num_dev: int) -> None:
    def scored(rows: list[TextExample]) -> list[TextExample]:
        return [replace(one, label=5.0 if index < 2 else 1.0) for index, one in enumerate(rows)]

    lines: list[str] = []
    run = replace(run_of(tmp_path / "out", sentence_encoder, lines), task="regression")
    named = f"{num_dev} dev examples" if num_dev else "30 held-out rows"
    with pytest.raises(DataError, match=f"spearman of the {named} is not a number"):
        start_run(run, scored(labeled(150)), [replace(one, label=1.0) for one in labeled(num_dev, seed=2)])
    assert not any((tmp_path / "out").iterdir()) and any(f"on {named}" in line for line in lines)


def test_a_run_without_a_metric_is_never_the_best(sentence_encoder: Path, tmp_path: Path) -> None:
    within = _Within(run_of(tmp_path, sentence_encoder, []), labeled(200), [], lambda: False)
    lost = {"name": "lost", "score": math.nan, "low": math.nan, "high": math.nan}
    within.state = {"tried": [{"name": "frozen features", "score": 0.1, "low": 0.0, "high": 0.2}, lost, lost, lost]}
    assert within._best()["name"] == "frozen features" and within._gains_nothing()


def test_a_resumed_run_reads_a_metric_that_was_not_a_number(
    sentence_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = _Within(run_of(tmp_path / "out", sentence_encoder, []), labeled(200), [], lambda: False)
    monkeypatch.setattr(within, "_search", lambda: None)
    within.start(resume=False)
    within.state["tried"] = [{"name": "frozen features", "score": math.nan, "steps": 0}]
    within._save()
    within.start(resume=True)
    assert within.state["tried"] == [
        pytest.approx({"name": "frozen features", "score": math.nan, "steps": 0}, nan_ok=True)
    ]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["run", "minutes", "sweep"])
def test_a_refused_run_leaves_its_folder_to_the_corrected_one(
    sentence_encoder: Path, tmp_path: Path, kind: str
) -> None:
    train, dev = labeled(40), labeled(20, seed=2)
    settings = SETTINGS.changed(minutes=0.001) if kind == "minutes" else SETTINGS.changed(num_epochs=1)
    start = partial(sweep, grid={"seed": [0]}) if kind == "sweep" else start_run

    def run(**wrong: Any) -> Outcome:
        run = run_of(tmp_path / "out", sentence_encoder, [], settings.changed(**wrong))
        return start(run, train=train, dev=dev)

    for wrong, message in (
        ({"best_by": "nope"}, "best_by='nope'"), ({"on_long": "error", "max_length": 4}, "more than max_length 4"),
        ({"frozen_layers": 3}, "frozen_layers=3: this model has 2 layers"),
    ):  # fmt: skip
        with pytest.raises((DataError, UsageError), match=message):
            run(**wrong)
    assert run().reason == "finished"


def test_advice() -> None:
    task = SequenceClassification(("cat", "dog", "other"))
    rows = [TextExample("a", label=name) for name in ["cat"] * 4 + ["dog"] * 5 + ["other"] * 2]
    _, sentence = on_rows(task, rows, [])
    assert sentence.startswith("2 of 3 labels have fewer than 5 rows (other 2, cat 4)")
    assert list(on_rows(task, rows * 10, [])) == []
    assert ["100 is the smallest" in sentence for sentence in on_rows(task, rows * 3, [])] == [True]
    assert still_falling([1.0] * 9) is None and still_falling([2.0, 1.0]) is None
    sentences = list(
        not_above_baselines("accuracy", 0.5, {"most frequent label": 0.5, "TF-IDF": 0.4, "frozen features": 1})
    )
    assert len(sentences) == 1 and "nothing was learned" in sentences[0]
    assert len(list(not_above_baselines("mean_squared_error", 0.5, {"mean": 0.4}))) == 1
