"""Training of generative models: results, batches, loss, files, and resumed runs."""

import io
import json
import math
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from test_generation import gpt2, marian

from bertkit.architectures.encoder_decoder import EncoderDecoderConfig
from bertkit.checkpoint.encoder_decoder import new_encoder_decoder, save_encoder_decoder
from bertkit.cli import run
from bertkit.errors import BertkitError, DataError, DependencyError, UsageError
from bertkit.generation import load_generator
from bertkit.sequence_training import (
    SequenceData,
    SequenceLoss,
    SequenceSettings,
    SequenceTraining,
    sequence_metrics,
)
from bertkit.tasks import SequenceExample
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.reading.pairs import read_pairs
from bertkit.tokenizer.byte_level import train_byte_level
from bertkit.training import Outcome, Ranks, evaluate
from bertkit.training.optimizers import AdamWSettings
from bertkit.training.schedules import SCHEDULES
from bertkit.transformer import TransformerConfig

pytestmark = pytest.mark.usefixtures("one_thread")


def reversed_digits(number: int, seed: int) -> list[SequenceExample]:
    draw = random.Random(seed)
    sources = ["".join(draw.choice("012") for _ in range(draw.randint(1, 4))) for _ in range(number)]
    return [SequenceExample(source[::-1], source) for source in sources]


def small_model(folder: Path) -> Path:
    """A new encoder-decoder of one layer in each stack."""
    tokenizer = train_byte_level(["0123"] * 3, 261)
    size = len(tokenizer.vocabulary)
    encoder, decoder = (
        TransformerConfig(size, 48, 1, 4, 96, max_position_embeddings=16, hidden_dropout_prob=0.0, is_decoder=later)
        for later in (False, True)
    )
    ids = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
    config = EncoderDecoderConfig(encoder, decoder, *ids, shares_embeddings=True)
    save_encoder_decoder(new_encoder_decoder(config, tokenizer, 1), folder)
    return folder


QUIET: dict[str, Any] = {"device": "cpu", "log_line": lambda line: None}
FAST = SequenceSettings.of(num_steps=220, batch_size=48, learning_rate=5e-3, label_smoothing=0.0, schedule="linear")


@pytest.mark.full
def test_learns_to_reverse_and_is_opened_by_transformers(tmp_path: Path) -> None:
    model = small_model(tmp_path / "start")
    training = SequenceTraining(tmp_path / "out", "seq2seq", str(model), FAST, **QUIET)
    outcome = training.start(reversed_digits(2_000, 1), reversed_digits(200, 2))
    assert outcome.reason == "finished" and outcome.metrics["exact_match"] > 0.97
    assert outcome.metrics["loss"] < 0.05 and outcome.metrics["chrf"] > 90
    generator = load_generator(tmp_path / "out")
    assert [one.text for one in generator.generate(["0121", "221"])] == ["1210", "122"]
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "out").eval()
    (ids,) = generator.encode(["0121"])
    made = theirs.generate(torch.from_numpy(ids)[None], do_sample=False, max_new_tokens=9, num_beams=1)[0].tolist()
    assert generator.tokenizer.decode(made) == "1210"
    record = json.loads((tmp_path / "out" / "run" / "outcome.json").read_text())
    assert record["metrics"] == outcome.metrics


def test_dev_examples_that_are_trained_on_are_logged(tmp_path: Path) -> None:
    settings, lines = SequenceSettings.of(num_steps=1, batch_size=4), list[str]()
    train = [SequenceExample(text, text[::-1]) for text in ("01", "12", "20", "0")]
    dev = [train[0], SequenceExample(" 12", "21"), SequenceExample("01", "01")]
    model = str(small_model(tmp_path / "start"))
    SequenceTraining(tmp_path / "out", "seq2seq", model, settings, device="cpu", log_line=lines.append).start(
        train, dev
    )
    assert "2 of 3 dev examples have the text of a training row, so scores on dev are too high" in "\n".join(lines)


@pytest.mark.full
def test_metrics_are_those_of_the_weights_that_are_kept(tmp_path: Path) -> None:
    model, train = small_model(tmp_path / "start"), reversed_digits(300, 1)
    dev = [SequenceExample(one.source, one.source) for one in reversed_digits(50, 2)]  # worse with each step
    settings = SequenceSettings.of(num_steps=60, batch_size=16, learning_rate=3e-3, label_smoothing=0.0)
    training = SequenceTraining(
        tmp_path / "out", "seq2seq", str(model), settings, device="cpu", log_line=lambda line: None
    )
    outcome = training.start(train, dev)
    assert outcome.best_step < outcome.step
    kept = load_generator(tmp_path / "out")
    (part,) = training._encoded(kept, dev).take(np.arange(len(dev))).split(1)
    metrics = evaluate(kept.network, SequenceLoss(0.0), [part], dtype=torch.float32)
    assert outcome.metrics["loss"] == pytest.approx(metrics["loss"], rel=1e-5)


@pytest.mark.full
def test_stopped_run_resumes_with_the_same_bits(tmp_path: Path) -> None:
    model, train, dev = small_model(tmp_path / "start"), reversed_digits(300, 1), reversed_digits(40, 2)
    settings = SequenceSettings.of(num_steps=14, batch_size=16, learning_rate=1e-3)
    weights = []
    for name, stops_at in (("whole", None), ("parts", 5)):
        training = SequenceTraining(
            tmp_path / name, "seq2seq", str(model), settings, device="cpu", log_line=lambda line: None
        )
        if stops_at is not None:
            answers = iter([False] * stops_at + [True] * 9)
            stopped = training.start(train, dev, should_stop=answers.__next__)
            assert stopped.reason == "stopped" and not stopped.metrics
            with pytest.raises(UsageError, match="already contains a run"):
                training.start(train, dev)
            with pytest.raises(UsageError, match=r"other settings \(content of the training data\)"):
                training.start(train[::-1], dev, resume=True)
        outcome = training.start(train, dev, resume=stops_at is not None)
        assert outcome.reason == "finished" and "loss" in outcome.metrics
        assert training.start(train, dev, resume=True) == outcome
        weights.append(load_generator(tmp_path / name).checkpoint.network.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


class OneOfTwo(Ranks):
    """One of two ranks; the other sends zeros."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, 2)

    def check_same(self, digest: int, what: str) -> None:
        assert digest and what == "settings and data"

    def add(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers.double() if self.is_first else torch.tensor([0.0, 1.0, 1.0])[: numbers.numel()].double()

    def add_gradients(self, parameters: Sequence[torch.Tensor]) -> None:
        pass

    def wait(self) -> None:
        pass


def test_ranks_share_batches_and_only_the_first_one_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, out, shares = small_model(tmp_path / "start"), tmp_path / "out", []
    train, settings = reversed_digits(16, 1), SequenceSettings.of(num_steps=1, batch_size=16)

    def noting(*arguments: Any) -> LabeledFeed:
        shares.append(arguments[3:])
        return LabeledFeed(*arguments)

    monkeypatch.setattr("bertkit.sequence_training.run.LabeledFeed", noting)
    first, second = (
        SequenceTraining(out, "seq2seq", str(model), settings, **QUIET, ranks=OneOfTwo(rank)) for rank in (0, 1)
    )
    assert first.start(train, should_stop=lambda: True).reason == "stopped"
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert before and second.start(train) == Outcome("finished", 0, None)
    assert shares == [(0, 2), (1, 2)] and {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


@pytest.mark.slow
def test_two_processes_give_the_losses_of_one(tmp_path: Path) -> None:
    model = small_model(tmp_path / "start")
    rows = [f"{one.source}\t{one.target}" for one in reversed_digits(64, 1)]
    (tmp_path / "train.tsv").write_text("\n".join(["source\ttarget", *rows]) + "\n")
    arguments = ["finetune", "seq2seq", "--train", str(tmp_path / "train.tsv"), "--model", str(model)]
    arguments += ["--num-epochs", "2", "--batch-size", "16", "--device", "cpu", "--out"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    for name, program in (("one", [sys.executable, "-m"]), ("two", launch)):
        made = subprocess.run([*program, "bertkit", *arguments, str(tmp_path / name)], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        (line,) = made.stdout.splitlines()
        assert json.loads(line)["reason"] == "finished"
    losses = []
    for name in ("one", "two"):
        lines = map(json.loads, (tmp_path / name / "run" / "metrics.jsonl").read_text().splitlines())
        losses.append([line["loss"] for line in lines if line["event"] == "step"])
    assert len(losses[0]) == 8 and losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_batches_are_large_enough_for_the_ranks(tmp_path: Path) -> None:
    settings = SequenceSettings.of(batch_size=1)
    with pytest.raises(UsageError, match="batch_size=1 is below the 2 ranks"):
        SequenceTraining(tmp_path / "out", "seq2seq", settings=settings, ranks=OneOfTwo(0)).start(reversed_digits(3, 1))


def test_what_the_end_needs_is_checked_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("num_beams", "batch_size", "num_steps", "num_epochs"):
        with pytest.raises(UsageError, match=f"{name}=0: expected an integer of at least 1"):
            SequenceSettings.of(**{name: 0})
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    model = small_model(tmp_path / "start")
    training = SequenceTraining(tmp_path / "out", "seq2seq", str(model), FAST, **QUIET)
    with pytest.raises(DependencyError, match="pip install"):
        training.start(reversed_digits(20, 1), reversed_digits(4, 2))
    assert not (tmp_path / "out").exists()


def test_losses_of_parts_add_up_and_smoothing_is_as_defined() -> None:
    draw = np.random.default_rng(1)
    targets, sources = ([draw.integers(0, 19, length) for length in draw.integers(2, 9, 7)] for _ in range(2))
    batch = SequenceData(targets, sources).take(np.arange(7))
    logits = torch.randn(len(batch.labels), 19, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    task = SequenceLoss(label_smoothing=0.2)
    whole = task.loss(logits, batch, task.totals(batch))
    log_probs = logits.float().log_softmax(-1)
    wanted = torch.full_like(log_probs, 0.2 / 19)
    wanted[torch.arange(len(batch.labels)), batch.labels] += 0.8
    torch.testing.assert_close(whole.value, -(wanted * log_probs).sum(-1).mean())
    values, start = [], 0
    for part in batch.split(3):
        assert len(part) == len(part.target) and part.num_tokens == len(part.batch.input_ids) + len(part.labels)
        end = start + len(part.labels)
        values.append(task.loss(logits[start:end], part, task.totals(batch)).value)
        start = end
    torch.testing.assert_close(sum(values), whole.value)
    plain = torch.nn.functional.cross_entropy(logits.float(), batch.labels)
    assert task.metrics(whole.sums)["loss"] == pytest.approx(float(plain), rel=1e-6)


@pytest.mark.parametrize(
    "sums, expected",
    [
        ([6.0, 3.0, 4.0], (1.5, math.exp(1.5), 0.75)), ([0.0, 0.0, 0.0], (0.0, 1.0, 0.0)),
        ([1.0, 1.0, 1.0], (1.0, math.e, 1.0)), ([4_000.0, 0.0, 4.0], (1_000.0, math.exp(700), 0.0)),
        ([math.nan, 1.0, 2.0], (math.nan, math.nan, 0.5)),
    ],
)  # fmt: skip
def test_metrics_of_the_sums_of_a_batch(sums: list[float], expected: tuple[float, float, float]) -> None:
    names = ("loss", "perplexity", "token_accuracy")
    results = SequenceLoss().metrics(torch.tensor(sums, dtype=torch.float64))
    assert results == pytest.approx(dict(zip(names, expected, strict=True)), nan_ok=True)


@pytest.mark.parametrize("has_sources", [False, True])
def test_parts_have_the_tokens_of_their_sequences(has_sources: bool) -> None:
    targets = [np.arange(length) + 10 * length for length in (3, 4, 5, 6)]
    sources = [np.arange(length) for length in (6, 5, 4, 3)] if has_sources else None
    batch = SequenceData(targets, sources).take(np.array([2, 0, 3, 1]))
    whole = batch.target if has_sources else batch.batch
    assert batch.num_tokens == 14 + (18 if has_sources else 0) and len(batch) == 4
    assert (batch.arguments == {}) == (not has_sources)
    parts = batch.split(1, most_tokens=8)
    assert len(parts) > 1 and sum(map(len, parts)) == 4
    assert torch.equal(torch.cat([part.labels for part in parts]), batch.labels)
    assert torch.equal(batch.labels, whole.input_ids + 1)
    for part in parts:
        before = part.batch if part.target is None else part.target
        assert torch.equal(part.labels, before.input_ids + 1) and (part.num_tokens <= 8 or len(part) == 1)


def test_texts_equal_their_references_without_surrounding_spaces() -> None:
    pytest.importorskip("sacrebleu")
    same = sequence_metrics(["the cat sat on the mat ", "no"], [" the cat sat on the mat", "no"])
    assert same == pytest.approx({"exact_match": 1.0, "bleu": 100.0, "chrf": 100.0})
    assert sequence_metrics(["a", "b", "c", "d"], ["a", "x", "y", "z"])["exact_match"] == 0.25
    for generated, references in (([], []), (["a"], []), (["a"], ["a", "b"])):
        with pytest.raises(UsageError, match="expected one for each, at least one"):
            sequence_metrics(generated, references)


def test_settings_of_the_loop() -> None:
    settings = SequenceSettings.of(num_epochs=3, batch_size=4, seed=5, weight_decay=0.1)
    training = settings.of_loop(9)
    assert training.num_steps == 3 * 3 and settings.of_loop(8).num_steps == 3 * 2
    assert settings.changed(num_steps=7).of_loop(9).num_steps == 7
    timed = settings.changed(minutes=0.5).of_loop(9)
    assert (timed.num_steps, timed.minutes) == (None, 0.5)
    assert (training.batch_size, training.seed) == (4, 5)
    assert (
        training.optimizer == AdamWSettings(0.1, (0.9, 0.98), 1e-9) and training.schedule.warmup == 0.1
    )  # the paper's
    for wrong in ({"num_epochs": 0}, {"batch_size": 0}, {"label_smoothing": 1.0}, {"label_smoothing": -0.1},
                  {"num_beams": 0}, {"learning_rate": -1.0}):  # fmt: skip
        with pytest.raises(UsageError, match=next(iter(wrong))):
            SequenceSettings.of(**wrong)
    SequenceSettings.of(num_epochs=1, batch_size=1, label_smoothing=0.0)


def test_schedule_of_the_paper() -> None:
    width, warmup, steps = 512, 4_000, 100_000
    schedule = SCHEDULES["inverse-square-root"](warmup / steps)
    peak = width**-0.5 * warmup**-0.5
    for step in (1, 100, 3_999, 4_000, 10_000, 99_999):
        expected = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert peak * schedule.factor(step / steps) == pytest.approx(expected)


@pytest.mark.full
def test_causal_model_learns_a_text(tmp_path: Path) -> None:
    gpt2(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("the cat sat on the mat\n" * 40)
    arguments = ["--model", str(tmp_path / "model"), "--train", str(tmp_path / "texts.txt"), "--num-epochs", "20"]
    arguments += ["--dev", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "out"), "--batch-size", "20"]
    assert run(["finetune", "causal-language-model", *arguments, "--learning-rate", "3e-3"]) == 0
    (made,) = load_generator(tmp_path / "out").generate(["the cat sat"])
    assert made.text == " on the mat" and made.has_ended
    assert run(["generate", "the cat", "--model", str(tmp_path / "out"), "--num-candidates", "2"]) == 0


@pytest.mark.full
def test_command_line_trains_and_generates(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(tmp_path / "start")
    for name, number in (("train", 400), ("dev", 30)):
        rows = [f"{one.source}\t{one.target}" for one in reversed_digits(number, number)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["source\ttarget", *rows]) + "\n")
    arguments = [
        "--train",
        str(tmp_path / "train.tsv"),
        "--dev",
        str(tmp_path / "dev.tsv"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert run(["finetune", "seq2seq", "--model", str(model), *arguments, "--num-epochs", "1"]) == 0
    outcome = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"exact_match", "bleu", "chrf", "loss", "perplexity"} <= outcome.keys()
    assert run(["generate", "012", "3", "--model", str(tmp_path / "out"), "--num-beams", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in rows] == ["012", "3"]
    assert rows[0].keys() == {"text", "generated", "score", "tokens", "ended"}
    (tmp_path / "rows.csv").write_text("source,target\n012,210\n ,1\n")
    base = ["generate", "--model", str(tmp_path / "out"), "--columns", "text=source", "--input"]
    assert run([*base, str(tmp_path / "rows.csv")]) == 2
    assert "rows.csv, line 3: has an empty text" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"012\n")))
    assert run(["generate", "--model", str(tmp_path / "out"), "--input", "-"]) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("source\nthe cat\n", "has one column"),
        ("source,target\nthe cat,\n", "pairs.csv, line 2: its target is empty"),
        ("question,answer\na,b\n", "has no known column name"),
    ],
)
def test_rejects_invalid_pairs(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "pairs.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        list(read_pairs(ExampleFile(tmp_path / "pairs.csv")))


def test_rejects_long_targets_and_unfitting_models(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model = small_model(tmp_path / "start")
    training = SequenceTraining(tmp_path / "out", "seq2seq", str(model), FAST, **QUIET)
    with pytest.raises(DataError, match="example 0 has 21 target tokens and 3 source tokens, the model 16 positions"):
        training.start([SequenceExample("0" * 20, "1")])
    with pytest.raises(DataError, match="no examples to train on"):
        training.start([])
    training.settings = FAST.changed(dropout=0.3)
    with pytest.raises(UsageError, match=r"dropout=0.3 is for a new model, and has no effect on .*start: omit it"):
        training.start(reversed_digits(3, 1))
    assert not training.out.exists()
    marian(tmp_path / "marian")
    with pytest.raises(UsageError, match="is an encoder-decoder model"):
        SequenceTraining(tmp_path / "x", "causal-language-model", str(tmp_path / "marian")).start(reversed_digits(3, 1))
    (tmp_path / "pairs.csv").write_text("source,target\na,b\nc,\n")
    arguments = ["finetune", "seq2seq", "--train", str(tmp_path / "pairs.csv"), "--out", str(tmp_path / "y")]
    for further, message in (
        (["--lora-rank", "4"], "--lora-rank is an option of"),
        ([], "pairs.csv, line 3: its target is empty; --skip-bad skips rows that cannot be used"),
        (["--skip-bad", "--model", str(tmp_path / "none")], "none"),
    ):
        assert run([*arguments, *further]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(BertkitError, match="2 texts and 1 references"):
        sequence_metrics(["a", "b"], ["a"])
    assert sequence_metrics(["a cat sat on it"], ["a cat sat on it"])["bleu"] == pytest.approx(100)


@pytest.mark.full
def test_options_with_the_values_of_other_tasks_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model = small_model(tmp_path / "start")
    (tmp_path / "pairs.csv").write_text("source,target\n1,1\n2,2\n")
    arguments = ["finetune", "seq2seq", "--model", str(model), "--train", str(tmp_path / "pairs.csv"), "--out"]
    given = ["--batch-size", "32", "--weight-decay", "0.01", "--num-epochs", "1"]
    assert run([*arguments, str(tmp_path / "out"), *given]) == 0
    settings = json.loads((tmp_path / "out" / "run" / "settings.json").read_text())["settings"]
    assert (settings["batch_size"], settings["weight_decay"], settings["learning_rate"]) == (32, 0.01, 1e-3)
    further = ["--num-steps", "1", "--num-beams", "2", "--label-smoothing", "0.0", "--clip-norm", "0.5"]
    assert run([*arguments, str(tmp_path / "all"), *further, "--optimizer", "muon", "--schedule", "cosine"]) == 0
    settings = json.loads((tmp_path / "all" / "run" / "settings.json").read_text())["settings"]
    assert settings | {"num_beams": 2, "label_smoothing": 0.0, "clip_norm": 0.5, "optimizer": "muon"} == settings
    for length in ("8", "512"):  # also the default
        assert run([*arguments, str(tmp_path / "other"), "--max-length", length]) == 2
        assert f"--max-length {length} is for a new model, and has no effect on" in capsys.readouterr().err


def test_byte_level_texts_come_back(tmp_path: Path) -> None:
    tokenizer = train_byte_level(["the cat sat", "12 dogs"] * 3, 300)
    for text in ("the cat sat", "Größe 42\n☃  two  spaces"):
        (ids,) = tokenizer.plain_ids([text])
        assert tokenizer.decode(ids) == text
    assert all(len(tokenizer.plain_ids([digits])[0]) == len(digits) for digits in ("7", "12", "12121212"))
    tokenizer.save(tmp_path)
    assert (
        type(tokenizer).load(tmp_path).encode("the 12").input_ids.tolist()
        == tokenizer.encode("the 12").input_ids.tolist()
    )
    with pytest.raises(UsageError, match="expected at least 261"):
        train_byte_level(["a"], 100)
