"""The life that every run of training has: more steps for a finished run, ranks with other data, ranges of settings."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_finetuning import SETTINGS, encoder, events, examples, run_of
from test_pretraining import pretraining, write_corpus
from test_sequence_training import QUIET, reversed_digits, small_model

from bertkit import load
from bertkit.errors import UsageError
from bertkit.files.whole_files import only_writer
from bertkit.finetuning import FinetuningSettings
from bertkit.sequence_training import SequenceSettings, SequenceTraining
from bertkit.tasks import TextSet
from bertkit.tokenizer import Tokenizer
from bertkit.training import Ranks, TrainingSettings
from bertkit.training.distillation import DistillationSettings
from bertkit.words.contrastive import StaticTraining
from bertkit.words.opening import open_words
from bertkit.words.settings import PairTraining, WordTraining

assert encoder  # a fixture

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("sequence-classification", {}),
        ("regression", {"batch_size": 16}),
        ("sequence-classification", {"lora_rank": 2}),
    ],
)
def test_epochs_are_added_to_a_finished_run(tmp_path: Path, encoder: Path, task: str, changes: dict[str, Any]) -> None:
    rows = examples() + examples(20, seed=2)
    if task == "regression":
        rows = [replace(row, label=1_000.0 + 300.0 * row.text.split().count("cat")) for row in rows]
    train, dev, lines = rows[:37], rows[37:], list[str]()
    settings = SETTINGS.changed(num_epochs=2, **changes)
    short = run_of(tmp_path / "out", encoder, settings, task=task, log_line=lines.append).start(train, dev)
    kept = short.step if short.best_step is None else short.best_step
    longer = run_of(tmp_path / "out", encoder, settings.changed(num_epochs=4), task=task, log_line=lines.append)
    with pytest.raises(UsageError, match="already contains a run"):
        longer.start(train, dev)
    outcome = longer.start(train, dev, resume=True)
    (said,) = [line for line in lines if "is a finished run" in line]
    assert f"continues with num_epochs=4 instead of 2, from the weights that were kept (step {kept})" in said
    assert outcome.reason == "finished" and outcome.step == 2 * short.step
    assert [event["step"] for event in events(tmp_path / "out", "start")] == [0, kept]
    losses = {event["step"]: event["loss"] for event in events(tmp_path / "out", "step")}
    assert losses[kept + 1] < 1.5 * losses[1]  # the head is scaled as in training
    best_by = "spearman" if task == "regression" else "accuracy"
    assert outcome.metrics[best_by] >= short.metrics[best_by] - 1e-6  # the kept weights are compared with the new ones
    assert json.loads((tmp_path / "out" / "run" / "settings.json").read_text())["settings"]["num_epochs"] == 4
    assert longer.start(train, dev, resume=True) == outcome  # finished already


def test_two_processes_do_not_train_one_run(tmp_path: Path, encoder: Path) -> None:
    run = run_of(tmp_path / "out", encoder, SETTINGS.changed(num_epochs=1))
    assert run.start(examples(), should_stop=lambda: True).reason == "stopped"
    with only_writer(tmp_path / "out" / "run"), pytest.raises(UsageError, match="is being written by another process"):
        run.start(examples(), resume=True)
    assert run.start(examples(), resume=True).reason == "finished"


@pytest.mark.full
def test_continued_run_that_is_stopped_resumes_with_the_same_bits(tmp_path: Path, encoder: Path) -> None:
    weights = []
    for name, stops in (("whole", []), ("parts", [3])):
        run_of(tmp_path / name, encoder, SETTINGS.changed(num_epochs=1)).start(examples())
        longer = run_of(tmp_path / name, encoder, SETTINGS.changed(num_epochs=3))
        for number in stops:
            answers = iter([False] * number + [True] * 9)
            assert longer.start(examples(), resume=True, should_stop=answers.__next__).reason == "stopped"
            assert load(tmp_path / name).predict(["the cat"])  # the model of the finished run is there until the end
        assert longer.start(examples(), resume=True).step == 15
        weights.append(load(tmp_path / name).network.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_only_the_length_of_a_finished_run_may_grow(tmp_path: Path, encoder: Path) -> None:
    settings = SETTINGS.changed(num_epochs=2)
    run_of(tmp_path / "out", encoder, settings).start(examples())
    for changes, message in (
        ({"num_epochs": 1}, "settings.num_epochs=2, now 1"),
        ({"num_epochs": 3, "batch_size": 4}, "settings.batch_size=8, now 4"),
        ({"num_epochs": None, "num_steps": 90}, "settings.num_epochs=2, now None"),
    ):
        with pytest.raises(UsageError, match=f"was started with other settings .*{message}"):
            run_of(tmp_path / "out", encoder, settings.changed(**changes)).start(examples(), resume=True)


def test_a_resumed_run_may_be_recorded_otherwise(tmp_path: Path, encoder: Path) -> None:
    """The record is that of runs from before these were settings, too."""
    settings = SETTINGS.changed(num_epochs=1)
    answers = iter([False] * 2 + [True] * 9)
    run_of(tmp_path / "out", encoder, settings).start(examples(), should_stop=answers.__next__)
    stored = json.loads((tmp_path / "out" / "run" / "settings.json").read_text())["settings"]
    assert not stored.keys() & {"save_every", "log_every", "keep_last"} and stored["seed"] == settings.training.seed
    others = settings.changed(save_every=2, log_every=1, keep_last=3)
    outcome = run_of(tmp_path / "out", encoder, others).start(examples(), resume=True)
    assert outcome.reason == "finished" and outcome.step > 2


@pytest.mark.full
def test_steps_are_added_to_generative_and_pretrained_models(tmp_path: Path) -> None:
    model, train, dev = small_model(tmp_path / "start"), reversed_digits(64, 1), reversed_digits(20, 2)
    settings = SequenceSettings.of(num_epochs=1, batch_size=16)
    first = SequenceTraining(tmp_path / "seq", "seq2seq", str(model), settings, **QUIET).start(train, dev)
    longer = SequenceTraining(tmp_path / "seq", "seq2seq", str(model), settings.changed(num_epochs=3), **QUIET)
    outcome = longer.start(train, dev, resume=True)
    assert (first.step, outcome.step) == (4, 12) and outcome.metrics["loss"] <= first.metrics["loss"]

    corpus = write_corpus(tmp_path / "corpus.txt")
    assert pretraining(corpus, tmp_path / "run", "training.num_steps=4").start(resume=False).step == 4
    longer = pretraining(corpus, tmp_path / "run", "training.num_steps=8")
    assert longer.start(resume=True).step == 8
    assert any("is a finished run: training continues with num_steps=8 instead of 4" in line for line in longer.lines)


def test_patience_and_the_selecting_metric_of_every_recipe(tmp_path: Path) -> None:
    train, dev = reversed_digits(64, 1), reversed_digits(20, 2)
    model, settings = str(small_model(tmp_path / "start")), SequenceSettings.of(num_steps=40, batch_size=16, patience=2)
    with pytest.raises(UsageError, match="patience=2 requires dev examples"):
        SequenceTraining(tmp_path / "out", "seq2seq", model, settings, **QUIET).start(train)
    with pytest.raises(UsageError, match="best_by='token_f1': expected one of loss, perplexity, token_accuracy"):
        unknown = settings.changed(best_by="token_f1")
        SequenceTraining(tmp_path / "out", "seq2seq", model, unknown, **QUIET).start(train, dev)
    assert not (tmp_path / "out").exists()


class DifferingRank(Ranks):
    """One of two ranks, of which the other has other data."""

    def __init__(self) -> None:
        super().__init__(0, 2)

    def add(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers + torch.tensor([0, 7])

    def wait(self) -> None:
        pass


def test_ranks_with_other_files_are_refused(tmp_path: Path, encoder: Path) -> None:
    with pytest.raises(UsageError, match="the settings and data differ between the ranks"):
        run_of(tmp_path / "out", encoder, SETTINGS, ranks=DifferingRank()).start(examples())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "setting", "value", "expected"),
    [
        (FinetuningSettings, "num_epochs", 0, "an integer of at least 1"),
        (FinetuningSettings, "learning_rate", 0.0, "a number above 0"),
        (FinetuningSettings, "layer_decay", 0.0, "a share above 0, at most 1"),
        (FinetuningSettings, "frozen_layers", -1, "an integer of at least 0"),
        (FinetuningSettings, "seed", -1, "an integer from 0 to below"),
        (SequenceSettings, "label_smoothing", 1.0, "a share from 0 to below 1"),
        (SequenceSettings, "patience", 0, "an integer of at least 1"),
        (TrainingSettings, "weight_decay", -0.1, "a number of at least 0"),
        (TrainingSettings, "betas", (0.9, 1.0), "two numbers from 0 to below 1"),
        (DistillationSettings, "soft_temperature", 0.0, "a number above 0"),
        (WordTraining, "window", 0, "an integer of at least 1"),
        (PairTraining, "temperature", 0.0, "a number above 0"),
    ],
)
def test_ranges_of_settings_are_named(kind: type, setting: str, value: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=rf"^{setting}=.*: expected .*{expected}"):
        getattr(kind, "of", kind)(**{setting: value})


def test_static_training_resumes_with_the_same_bits(tmp_path: Path) -> None:
    words = "bread cheese soup apple rice hammer saw drill nail screw".split()
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    rows = [TextSet(words[number], (words[(number + 3) % 10],)) for number in range(10)]
    settings = PairTraining(dimensions=8, nested=(4,), batch_size=4, num_epochs=3)
    whole, parts = (StaticTraining(tmp_path / name, tokenizer, settings, log_line=print) for name in ("one", "two"))
    outcome = whole.start(rows)
    answers = iter([False] * 4 + [True])
    stopped = parts.start(rows, should_stop=answers.__next__)
    assert (stopped.reason, stopped.step) == ("stopped", 4)
    with pytest.raises(UsageError, match=r"was started with other settings .*content of the training data"):
        parts.start(rows[1:], resume=True)
    assert parts.start(rows, resume=True) == parts.start(rows, resume=True) == outcome
    assert (outcome.reason, outcome.step) == ("finished", 9) and not math.isnan(outcome.metrics["last_loss"])
    vectors = [open_words(tmp_path / name).vectors for name in ("one", "two")]
    np.testing.assert_array_equal(*vectors)
    assert not (tmp_path / "two/run/state.safetensors").exists()
