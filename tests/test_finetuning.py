"""Fine-tuning: the losses of transformers, bit-identical resumption, the best weights, trained parts and learning
rates."""

import json
import math
import shutil
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from finetuning_reference import losses_of_transformers, with_every_loss
from full_disk import files_end_after
from random_models import our_model, vocabulary_tokens
from safetensors.torch import load_file

from bertkit import BertConfig, Model, Tokenizer, load
from bertkit.architectures.mpnet import MpnetConfig
from bertkit.batch import LabeledEncodings
from bertkit.errors import CheckpointError, DataError, MissingHeadError, NonFiniteError, UsageError
from bertkit.files import whole_folder
from bertkit.finetuning import SWEEPS, Finetuning, FinetuningSettings, sweep
from bertkit.finetuning.adapters import add_adapters, read_adapter, write_adapter
from bertkit.finetuning.network import check_frozen_layers, freeze, model_to_train, rate_factor
from bertkit.finetuning.sweeps import best_of
from bertkit.tasks import (
    ChoiceQuestion,
    Question,
    SequenceClassification,
    TaggedText,
    TaughtText,
    TextExample,
    TextSet,
    task_kind,
)
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.regression import Regression
from bertkit.tasks.same_texts import dev_in_training
from bertkit.training import Outcome, checkpoints, make_optimizer, read_outcome, write_outcome
from bertkit.training.optimizers import AdamWSettings
from bertkit.transformer import AlbertConfig, DebertaConfig

SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 2,
    "max_position_embeddings": 24, "hidden_act": "gelu", "type_vocab_size": 2,
    "initializer_range": 0.1,
}  # fmt: skip
WORDS = "the of and cat dog sat mat un run walk talk blue red green one two three four".split()
SETTINGS = FinetuningSettings.of(
    head="drawn", num_epochs=4, batch_size=8, learning_rate=3e-3, tokens_per_part=150, seed=5
)

pytestmark = pytest.mark.usefixtures("one_thread")


def texts(number: int, seed: int = 1) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, int(draw.integers(2, 9)))) for _ in range(number)]


def examples(number: int = 37, seed: int = 1) -> list[TextExample]:
    """Texts labeled by whether they contain more animals than colors."""
    results = []
    for index, text in enumerate(texts(number, seed)):
        words = text.split()
        animals = sum(word in ("cat", "dog", "mat", "sat") for word in words)
        label = "animal" if animals > sum(word in ("blue", "red", "green") for word in words) else "other"
        results.append(TextExample(text, label=label, location=f"line {index + 1}"))
    return results


def scores(number: int = 37) -> list[TextExample]:
    return [replace(one, label=1_000.0 + 300.0 * one.text.split().count("cat")) for one in examples(number)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    """Small encoders with initial weights, without dropout and with it."""
    folder = tmp_path_factory.mktemp("encoder")
    for name, dropout in (("still", 0.0), ("dropping", 0.1)):
        config = BertConfig(**SHAPE, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), seed=3).save(folder / name)
    return folder


def run_of(out: Path, encoder: Path, settings=SETTINGS, *, dropout: bool = True, **options) -> Finetuning:
    options = {"task": "sequence-classification", "log_line": lambda line: None} | options
    return Finetuning(out, encoder / ("dropping" if dropout else "still"), settings=settings, **options)


def events(out: Path, kind: str) -> list[dict]:
    lines = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load(folder).network.named_parameters())


# ---- the loss


@pytest.mark.parametrize("task", ["sequence-classification", "regression"])
def test_twenty_losses_of_transformers(tmp_path: Path, encoder: Path, task: str) -> None:
    train = examples(37) if task == "sequence-classification" else [
        replace(one, label=float(len(one.text))) for one in examples(37)
    ]  # fmt: skip
    settings = SETTINGS.changed(num_epochs=4, learning_rate=5e-3)  # 5 steps an epoch, the last of them of 5 examples
    run = run_of(tmp_path / "out", encoder, settings, dropout=False, task=task)
    with with_every_loss():
        assert run.start(train).step == 20
    ours = [event["loss"] for event in events(tmp_path / "out", "step")]

    model = model_to_train(str(encoder / "still"), task_kind(task).of_examples(train, {}), settings, print)
    results = losses_of_transformers(model, train, settings, tmp_path / "start", num_steps=20)
    assert len(ours) == 20 and np.mean(results[-5:]) < np.mean(results[:5]) - 0.02
    assert np.abs(np.array(ours) - np.array(results)).max() < 1e-4


def test_the_benchmark_initializes_heads_at_random_as_its_table_says(
    tmp_path: Path, encoder: Path, monkeypatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
    bench, finetuners = import_module("finetuners.bertkit"), import_module("finetuners")
    settings = finetuners.Settings("sequence-classification", 1, learning_rate=1e-4, max_length=16)
    (start, *_) = bench._run(tmp_path / "out", encoder / "still", examples(20), settings)
    assert start["settings"]["head"] == "drawn"


def test_feed_reads_every_example_once_in_an_epoch(encoder: Path) -> None:
    train = examples(37)
    task = SequenceClassification(("animal", "other"))
    tokenizer = load(encoder / "still").tokenizer
    encodings = task.encode(
        tokenizer, train, model_to_train(str(encoder / "still"), task, SETTINGS, print).trained.layout
    )
    feed = LabeledFeed(LabeledEncodings(encodings, np.arange(37)), 8, 5)
    epochs = []
    for epoch in range(2):
        batches = [feed.batch(epoch * 5 + number, 0.0) for number in range(5)]
        assert [len(batch) for batch in batches] == [8, 8, 8, 8, 5]
        epochs.append([label for batch in batches for label in batch.labels.tolist()])
        for batch in batches:
            for index, label in enumerate(batch.labels.tolist()):
                part = batch.batch.between(index, index + 1)
                assert part.input_ids.tolist() == encodings.between(label, label + 1).input_ids.tolist()
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(37)) and epochs[0] != epochs[1]
    assert feed.next_position(4, 0.0) == 5 and feed.facts(5, 0.0) == {"epoch": 1.0}


# ---- what comes out


@pytest.mark.full
def test_cached_vectors_are_reused(tmp_path: Path, encoder: Path) -> None:
    train, dev = examples(160), examples(40, seed=2)
    out = tmp_path / "out"
    outcome = run_of(out, encoder, SETTINGS.changed(num_epochs=8)).start(train, dev)
    assert outcome.reason == "finished" and outcome.step == 20 * 8
    assert outcome.metrics["accuracy"] > 0.85
    model = load(out)
    assert model.trained.metrics == outcome.metrics and model.trained.task.label_names == ("animal", "other")
    assert model.evaluate(dev) == pytest.approx(outcome.metrics, rel=1e-4)
    evaluations = events(out, "evaluation")
    assert len(evaluations) == 9
    best = max(event["accuracy"] for event in evaluations)
    assert outcome.metrics["accuracy"] == pytest.approx(best)
    assert evaluations[outcome.best_step // 20]["accuracy"] == best
    assert sorted(path.name for path in (out / "run").iterdir()) == ["metrics.jsonl", "outcome.json", "settings.json"]
    theirs = transformers.BertForSequenceClassification.from_pretrained(out)
    assert theirs.config.id2label == {0: "animal", 1: "other"}
    assert "modules.json" not in {path.name for path in out.iterdir()}


@pytest.mark.full
def test_scores_of_any_size_are_learned_and_given_by_the_published_head(tmp_path: Path, encoder: Path) -> None:
    train, out = scores(150), tmp_path / "out"
    outcome = run_of(out, encoder, SETTINGS.changed(num_epochs=8), task="regression").start(train, train[:50])
    assert outcome.metrics["pearson"] > 0.7
    model = load(out)
    assert model.trained.task.center == 0 and model.trained.task.scale == 1
    results = [prediction.score for prediction in model.predict(train[:5])]
    theirs = transformers.BertForSequenceClassification.from_pretrained(out).eval()
    for example, score in zip(train, results, strict=False):
        ids = torch.from_numpy(model.tokenizer.encode(example.text).input_ids.astype(np.int64))[None]
        assert score == pytest.approx(theirs(ids).logits.item(), rel=1e-4) and 900 < score < 2_500


@pytest.mark.full
def test_bfloat16_training(tmp_path: Path, encoder: Path) -> None:
    settings = SETTINGS.changed(num_epochs=8, precision="bfloat16")
    assert run_of(tmp_path / "out", encoder, settings).start(examples(160), examples(40, 2)).metrics["accuracy"] > 0.85


# ---- resuming


def test_stopped_run_ends_with_the_same_bits(tmp_path: Path, encoder: Path) -> None:
    train, dev = examples(), examples(20, seed=2)
    whole = run_of(tmp_path / "whole", encoder).start(train, dev)
    for stop_after in (1, 5, 13):
        out, steps = tmp_path / f"stopped after {stop_after}", []

        def should_stop(steps=steps, last=stop_after) -> bool:
            steps.append(1)
            return len(steps) > last

        assert run_of(out, encoder).start(train, dev, should_stop=should_stop).reason == "stopped"
        with pytest.raises(UsageError, match="resume=True"):
            run_of(out, encoder).start(train, dev)
        with pytest.raises(UsageError, match=r"settings\.seed"):
            run_of(out, encoder, SETTINGS.changed(seed=6)).start(train, dev, resume=True)
        with pytest.raises(UsageError, match="content of the dev data"):
            run_of(out, encoder).start(train, dev[::-1], resume=True)
        with pytest.raises(Exception, match="not a model folder"):
            load(out)
        outcome = run_of(out, encoder).start(train, dev, resume=True)
        assert (outcome.reason, outcome.best_step) == ("finished", whole.best_step)
        ours, theirs = weights(out), weights(tmp_path / "whole")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        assert run_of(out, encoder).start(train, dev, resume=True) == outcome


def everything_in(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("start", ["run", "sweep"])
def test_other_folders_are_left_alone(tmp_path: Path, encoder: Path, start: str, resume: bool) -> None:
    (tmp_path / "papers" / "run").mkdir(parents=True)
    (tmp_path / "papers" / "run" / "thesis.txt").write_text("all of it")
    load(encoder / "still").save(tmp_path / "model")
    (tmp_path / "file").write_text("all of it")
    before, train = everything_in(tmp_path), examples()
    for name in ("papers", "model", "file"):
        run = run_of(tmp_path / name, encoder)
        with pytest.raises(UsageError, match=f"{name} (exists and is not a run|is not a folder)"):
            if start == "run":
                run.start(train, train, resume=resume)
            else:
                sweep(run, {"num_epochs": (1, 2)}, train, train, resume=resume)
    assert everything_in(tmp_path) == before


@pytest.mark.full
def test_single_runs_and_sweeps_reject_each_other(tmp_path: Path, encoder: Path) -> None:
    train, grid, settings = examples(10), {"learning_rate": (3e-3,)}, SETTINGS.changed(num_epochs=1)
    several, single = (run_of(tmp_path / name, encoder, settings) for name in ("several", "single"))
    for is_finished in (False, True):
        outcome = sweep(several, grid, train, train, resume=is_finished, should_stop=lambda stop=not is_finished: stop)
        assert (outcome.reason == "finished") == is_finished
        shutil.rmtree(single.out, ignore_errors=True)  # as the same run alone leaves its folder
        shutil.copytree(
            several.out if is_finished else several.out / "run" / "runs" / "learning_rate=0.003", single.out
        )
        for name in ("grid.json", "sweep.json"):
            (single.out / "run" / name).unlink(missing_ok=True)
        before = everything_in(tmp_path)
        for resume in (False, True):
            with pytest.raises(UsageError, match="contains a single run: resume it without --sweep"):
                sweep(single, grid, train, train, resume=resume)
            with pytest.raises(UsageError, match="contains a sweep: pass --sweep"):
                several.start(train, train, resume=resume)
        assert everything_in(tmp_path) == before


def test_run_killed_while_it_wrote_a_line_resumes(tmp_path: Path, encoder: Path) -> None:
    run, steps = run_of(tmp_path / "out", encoder, SETTINGS.changed(num_epochs=2)), []
    run.start(examples(), should_stop=lambda: steps.append(1) or len(steps) > 6)
    with open(tmp_path / "out" / "run" / "metrics.jsonl", "a") as log:
        log.write('{"event": "step", "st')
    assert run.start(examples(), resume=True).reason == "finished"


def test_run_killed_before_its_record_restarts(tmp_path: Path, encoder: Path) -> None:
    (tmp_path / "out" / "run").mkdir(parents=True)
    (tmp_path / "out" / "run" / ".settings.json.x1.partial").write_text('{"mod')
    stopped = run_of(tmp_path / "out", encoder).start(examples(), resume=True, should_stop=lambda: True)
    assert stopped.reason == "stopped" and (tmp_path / "out" / "run" / "settings.json").is_file()


@pytest.mark.full
def test_early_stopping_keeps_the_best(tmp_path: Path, encoder: Path) -> None:
    settings = SETTINGS.changed(num_epochs=60, patience=3, best_by="loss", evaluations_per_epoch=2)
    outcome = run_of(tmp_path / "out", encoder, settings).start(examples(), examples(20, seed=2))
    assert outcome.reason == "stopped early" and outcome.step < 60 * 5
    assert outcome.step - outcome.best_step == 3 * 3
    losses = {event["step"]: event["loss"] for event in events(tmp_path / "out", "evaluation")}
    assert min(losses, key=lambda step: losses[step]) == outcome.best_step
    assert outcome.metrics["loss"] == pytest.approx(losses[outcome.best_step], rel=1e-5)
    assert run_of(tmp_path / "out", encoder, settings).start(examples(), examples(20, seed=2), resume=True) == outcome
    (tmp_path / "out" / "run" / "outcome.json").unlink()
    with pytest.raises(CheckpointError, match="is missing: expected the record of a finished run"):
        run_of(tmp_path / "out", encoder, settings).start(examples(), examples(20, seed=2), resume=True)
    with pytest.raises(UsageError, match="patience=3 requires dev"):
        run_of(tmp_path / "other", encoder, settings).start(examples())


@pytest.mark.full
def test_sweep_keeps_the_best_and_resumes(tmp_path: Path, encoder: Path) -> None:
    train, dev, out = examples(60), examples(30, seed=2), tmp_path / "out"
    grid = {"learning_rate": (1e-6, 1e-2), "num_epochs": (1, 6)}
    calls = []

    def should_stop() -> bool:
        calls.append(1)
        return len(calls) == 12  # in the second run

    assert sweep(run_of(out, encoder), grid, train, dev, should_stop=should_stop).reason == "stopped"
    results = json.loads((out / "run" / "sweep.json").read_text())
    assert list(results) == ["learning_rate=1e-06_num_epochs=1"]
    (out / "run" / "sweep.json").unlink()  # as if it had been killed between the end of the run and its record
    outcome = sweep(run_of(out, encoder), grid, train, dev, resume=True)
    first, results = results, json.loads((out / "run" / "sweep.json").read_text())
    assert len(results) == 4 and results == results | first
    best = max(results.values(), key=lambda result: result["metrics"]["accuracy"])
    assert best["settings"] == {"learning_rate": 1e-2, "num_epochs": 6}
    assert outcome.metrics == best["metrics"] == load(out).trained.metrics
    assert not (out / "run" / "runs").exists()
    assert sweep(run_of(out, encoder), grid, train, dev, resume=True) == outcome
    for result in results.values():
        result["metrics"] |= {} if result == best else {"accuracy": None}  # as a NaN is written
    (out / "run" / "sweep.json").write_text(json.dumps(results))
    assert sweep(run_of(out, encoder), grid, train, dev, resume=True) == outcome
    (out / "run" / "sweep.json").unlink()
    with pytest.raises(CheckpointError, match=r"sweep\.json is missing"):
        sweep(run_of(out, encoder), grid, train, dev, resume=True)
    with pytest.raises(UsageError, match="requires dev"):
        sweep(run_of(tmp_path / "other", encoder), grid, train, [])
    assert [len(values) for values in SWEEPS["paper"].values()] == [2, 3, 3]


@pytest.mark.parametrize("dev", [scores(1), [replace(one, label=5.0) for one in examples(9)]])
def test_dev_examples_without_a_metric_raise_at_the_first_evaluation(tmp_path: Path, encoder: Path, dev: list) -> None:
    settings = SETTINGS.changed(num_epochs=1, learning_rate=1e-30)
    run = run_of(tmp_path / "out", encoder, settings, task="regression")
    with pytest.raises(DataError, match=rf"spearman of the {len(dev)} dev examples is not a number.*another metric"):
        run.start(scores(9), dev)
    assert not list((tmp_path / "out").iterdir())
    with pytest.raises(UsageError, match="best_by='f2'"):
        run_of(tmp_path / "out", encoder, settings.changed(best_by="f2"), task="regression").start(scores(9), dev)
    by_error = run_of(tmp_path / "out", encoder, settings.changed(best_by="mean_squared_error"), task="regression")
    assert by_error.start(scores(9), dev).best_step == 2


def test_records_of_a_metric_that_is_not_a_number_are_json(tmp_path: Path, encoder: Path) -> None:
    def number(text: str) -> None:
        raise ValueError(f"{text} is not JSON")

    model = model_to_train(str(encoder / "still"), Regression(("score",)), SETTINGS, print)
    model.trained.metrics.update({"spearman": math.nan, "pearson": 0.5})
    model.save(tmp_path / "model")
    (tmp_path / "model" / "run").mkdir()
    tried = [{"name": "frozen features", "score": math.nan}]
    write_outcome(Outcome("finished", 3, None, model.trained.metrics, {"mean": math.nan}, tried), tmp_path / "model")
    for path in (tmp_path / "model").rglob("*.json"):
        json.loads(path.read_text(), parse_constant=number)
    outcome = read_outcome(tmp_path / "model")
    assert outcome.metrics == pytest.approx({"spearman": math.nan, "pearson": 0.5}, nan_ok=True)
    assert math.isnan(outcome.baselines["mean"]) and math.isnan(outcome.tried[0]["score"])


def test_sweep_never_keeps_a_nan_metric() -> None:
    def results(*values: float) -> dict:
        return {f"run {index}": {"metrics": {"spearman": value}} for index, value in enumerate(values)}

    assert best_of(results(math.nan, -0.5, 0.3, math.nan), "spearman") == "run 2"
    assert best_of(results(math.nan, -0.5), "spearman") == "run 1"


# ---- what learns, and how fast


def test_learning_rate_decreases_with_depth(encoder: Path) -> None:
    task = SequenceClassification(("animal", "other"))
    model = model_to_train(str(encoder / "still"), task, SETTINGS, print)
    factor = rate_factor(model.network, 0.5)
    optimizer = make_optimizer(AdamWSettings(), model.network, learning_rate=1.0, rate_factor=factor)
    rates = {p: group["peak_lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.network.named_parameters():
        expected = {"encoder.embeddings": 0.125, "encoder.layers.0": 0.25, "encoder.layers.1": 0.5}
        assert rates[parameter] == next((rate for start, rate in expected.items() if name.startswith(start)), 1.0)


def network_of(config: BertConfig) -> Model:
    return Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), ("token_classification",))


def test_layers_that_share_weights_learn_and_freeze_together() -> None:
    model = network_of(AlbertConfig(**SHAPE | {"num_hidden_layers": 4}, embedding_size=8, num_hidden_groups=2))
    factor = rate_factor(model.network, 0.5)
    rates = {name.split(".")[2]: factor(name) for name, _ in model.network.named_parameters() if ".layers." in name}
    assert rates == {"0": 0.125, "1": 0.5}  # of layers 2 and 4
    with pytest.raises(UsageError, match="frozen_layers=1: this model's layers share weights; expected 0, 2, 4"):
        check_frozen_layers(model, 1)
    check_frozen_layers(model, 2)
    freeze(model, 2)
    trained = {name for name, parameter in model.network.encoder.named_parameters() if parameter.requires_grad}
    assert trained and all(name.startswith("layers.1.") for name in trained)


@pytest.mark.parametrize(
    "config",
    [MpnetConfig(**{key: SHAPE[key] for key in SHAPE if key != "type_vocab_size"}), DebertaConfig(**SHAPE)],
    ids=["mpnet", "deberta"],
)
def test_tables_of_relative_positions_are_embeddings(config: BertConfig) -> None:
    model = network_of(config)
    beside = ("encoder.embeddings.", "encoder.layers.", "encoder.pooler.", "heads.")
    tables = [name for name, _ in model.network.named_parameters() if not name.startswith(beside)]
    factor = rate_factor(model.network, 0.5)
    assert tables and all(factor(name) == 0.125 for name in tables)
    freeze(model, 0)
    assert not any(model.network.get_parameter(name).requires_grad for name in tables)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_frozen_layers_keep_their_weights(tmp_path: Path, encoder: Path, frozen: int) -> None:
    run_of(tmp_path / "out", encoder, SETTINGS.changed(num_epochs=1, frozen_layers=frozen)).start(examples())
    before, after = weights(encoder / "dropping"), load(tmp_path / "out")
    for name, parameter in after.network.named_parameters():
        kept = name.startswith(("encoder.embeddings", *(f"encoder.layers.{layer}." for layer in range(frozen))))
        assert name not in before or torch.equal(before[name], parameter) == kept, name


@pytest.mark.parametrize("task", ["similarity", "few-shot-classification"])
def test_frozen_layers_leave_weights_that_the_loss_reads(tmp_path: Path, encoder: Path, task: str) -> None:
    train = [TextSet(a, (b,)) for a, b in pairwise(texts(12))] if task == "similarity" else examples(12)
    settings = FinetuningSettings.of(num_epochs=1, frozen_layers=2)
    with pytest.raises(UsageError, match=r"every weight that the loss reads is frozen: .* lower frozen_layers"):
        run_of(tmp_path / "out", encoder, settings, task=task).start(train)
    assert not any((tmp_path / "out").iterdir())
    network = load(encoder / "still").network.requires_grad_(False)
    with pytest.raises(UsageError, match="every weight is frozen"):
        make_optimizer(AdamWSettings(), network, learning_rate=1e-3)


@pytest.mark.full
def test_only_adapters_are_trained_and_merged(tmp_path: Path, encoder: Path) -> None:
    settings = SETTINGS.changed(num_epochs=10, lora_rank=3, lora_alpha=6.0, learning_rate=1e-2)
    train, dev, out = examples(160), examples(40, seed=2), tmp_path / "out"
    outcome = run_of(out, encoder, settings).start(train, dev)
    assert outcome.metrics["accuracy"] > 0.75 and outcome.best_step < 200
    before, merged = weights(encoder / "dropping"), load(out)
    for name, parameter in merged.network.named_parameters():
        changed = name.startswith(("heads.", "encoder.pooler.")) or name.endswith(("query.weight", "value.weight"))
        assert name not in before or torch.equal(before[name], parameter) != changed, name
        if name.endswith(("query.weight", "value.weight")):
            assert torch.linalg.matrix_rank(parameter - before[name], atol=1e-5) == 3
        record = json.loads((out / "bertkit.json").read_text())["provenance"]
        assert (record[merged.network.architecture.names.published(name)]["origin"] == "trained") == changed
    alone = model_to_train(str(encoder / "dropping"), merged.trained.task, settings, log_line=lambda line: None)
    with pytest.raises(CheckpointError, match="no LoRA adapter"):
        read_adapter(alone, encoder / "still")
    add_adapters(alone, 3, 6.0, seed=9)
    alone.mark_trained()
    read_adapter(alone, out / "adapter")
    for one, other in zip(alone.predict(texts(20)), merged.predict(texts(20)), strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    size = (out / "adapter" / "adapter_model.safetensors").stat().st_size
    assert size < 0.5 * (out / "model.safetensors").stat().st_size
    config = json.loads((out / "adapter" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["query", "value"] and config["modules_to_save"] == ["classifier", "pooler"]
    our_model("encoder", 3, **SHAPE | {"hidden_size": 24}).save(tmp_path / "wider")
    wider = model_to_train(str(tmp_path / "wider"), merged.trained.task, settings, log_line=lambda line: None)
    add_adapters(wider, 3, 6.0, seed=9)
    with pytest.raises(CheckpointError, match=r"expected base_model\.model"):
        read_adapter(wider, out / "adapter")
    with pytest.raises(UsageError, match="omit frozen_layers"):
        settings.changed(frozen_layers=1)


def test_adapters_resume_with_the_same_bits(tmp_path: Path, encoder: Path) -> None:
    settings, train, steps = SETTINGS.changed(lora_rank=2), examples(), []
    run_of(tmp_path / "whole", encoder, settings).start(train)
    stopped = run_of(tmp_path / "stopped", encoder, settings)
    assert stopped.start(train, should_stop=lambda: steps.append(1) or len(steps) > 7).reason == "stopped"
    assert stopped.start(train, resume=True).reason == "finished"
    ours, theirs = weights(tmp_path / "stopped"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.full
def test_adapters_hold_the_layers_after_pooling(tmp_path: Path, encoder: Path) -> None:
    draw, steps, out = np.random.default_rng(0), [], tmp_path / "stopped"
    train = [TaughtText(text, draw.normal(size=8).astype(np.float32)) for text in texts(37)]
    settings = SETTINGS.changed(lora_rank=2, learning_rate=1e-2)
    whole, stopped = (
        run_of(folder, encoder, settings, task="alignment", options={"teacher": "8 wide"})
        for folder in (tmp_path / "whole", out)
    )
    whole.start(train)
    stopped.start(train, should_stop=lambda: steps.append(1) or len(steps) > 7)
    saved = checkpoints(out / "run")[-1] / "model"
    model = model_to_train(str(encoder / "dropping"), load(saved).trained.task, settings, lambda line: None)
    add_adapters(model, 2, 16.0, seed=5)
    model.mark_trained()
    expected, path = load(saved).embed(texts(5)), saved / "adapter" / "adapter_model.safetensors"
    read_adapter(model, path.parent)
    assert np.allclose(model.embed(texts(5)), expected, atol=1e-6)
    assert {name for name in load_file(path) if ".projection." in name}
    stopped.start(train, resume=True)
    ours, theirs = weights(out), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_saving_adapters_on_a_full_disk(tmp_path: Path, encoder: Path) -> None:
    task = task_kind("sequence-classification").of_examples(examples(), {})
    model = model_to_train(str(encoder / "still"), task, SETTINGS, lambda line: None)
    add_adapters(model, rank=2, alpha=4.0, seed=0)
    full = pytest.raises(OSError, match=r"too large, make room on its disk: .*step")
    with files_end_after(1_000), full, whole_folder(tmp_path / "step") as folder:
        write_adapter(model, folder / "adapter", "still")


def test_model_without_pooler_gets_a_new_one(tmp_path: Path, encoder: Path) -> None:
    model = our_model("masked_lm", 3, **SHAPE)
    model.save(tmp_path / "bare")
    lines_logged: list[str] = []
    run = replace(run_of(tmp_path / "out", encoder, SETTINGS.changed(num_epochs=1)), model=tmp_path / "bare")
    run.log_line = lines_logged.append
    run.start(examples())
    assert any("has no pooler" in line for line in lines_logged)
    assert len(load(tmp_path / "out").predict(texts(3))) == 3


# ---- refused


@pytest.mark.parametrize("task", ["sequence-classification", "few-shot-classification"])
def test_model_broken_by_the_last_update_is_not_saved(tmp_path: Path, encoder: Path, task: str) -> None:
    out, settings = tmp_path / "out", SETTINGS.changed(num_epochs=1, batch_size=160, learning_rate=1e20, warmup=0.0)
    with pytest.raises(NonFiniteError, match="after its update, the loss of its batch is not a finite number"):
        run_of(out, encoder, settings, task=task).start(examples())
    assert not (out / "config.json").exists()


def test_model_that_got_worse_is_named(tmp_path: Path, encoder: Path) -> None:
    settings, lines_logged = SETTINGS.changed(num_epochs=1, learning_rate=1.0), []
    run_of(tmp_path / "out", encoder, settings, log_line=lines_logged.append).start(examples())
    assert any("the training loss rose from 0.8" in line for line in lines_logged)


def test_invalid_runs_raise_before_training(tmp_path: Path, encoder: Path) -> None:
    strange = [*examples(5), TextExample("a cat", label="Animal", location="dev.csv, line 7")]
    with pytest.raises(DataError, match=r"dev.csv, line 7: the label 'Animal' is not one of"):
        run_of(tmp_path / "1", encoder).start(examples(), strange)
    with pytest.raises(UsageError, match="best_by='f2'"):
        run_of(tmp_path / "2", encoder, SETTINGS.changed(best_by="f2")).start(examples(), examples())
    with pytest.raises(UsageError, match="max_length=25: expected at most 24"):
        run_of(tmp_path / "3", encoder, SETTINGS.changed(max_length=25)).start(examples())
    with pytest.raises(UsageError, match="task 'poetry'"):
        run_of(tmp_path / "4", encoder, task="poetry").start(examples())
    for change, message in (
        ({"num_epochs": 0}, "num_epochs=0"), ({"layer_decay": 0.0}, "layer_decay"), ({"frozen_layers": -1}, "frozen"),
        ({"batch_size": 0}, "batch_size"), ({"warmup": 1.0}, "warmup"), ({"on_long": "sing"}, "on_long"),
        ({"precision": "int8"}, "precision"), ({"learning_rate": -1.0}, "learning_rate"), ({"patience": 0}, "patience"),
        ({"frozen_layers": 1.5}, "frozen_layers=1.5: expected an integer"), ({"layer_decay": "1"}, "layer_decay='1'"),
        ({"warmup": "0.1"}, "warmup='0.1'"), ({"minutes": "3"}, "minutes='3'"), ({"lora_alpha": "1"}, "lora_alpha='1'"),
        ({"frozen_layers": np.int64(1)}, "frozen_layers="), ({"max_length": "8"}, "max_length='8'"),
        ({"learning_rate": True}, "learning_rate=True: expected a finite number"), ({"best_by": ["f1"]}, "best_by="),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            SETTINGS.changed(**change)
    with pytest.raises(DataError, match="no training example has words"):
        run_of(tmp_path / "5", encoder, task="token-classification").start([TaggedText("", (), ())] * 3)
    with pytest.raises(MissingHeadError, match="was not trained for a task"):
        load(encoder / "still").predict(["a"])


@pytest.mark.full
def test_large_scores_have_all_baselines(tmp_path: Path, encoder: Path) -> None:
    outcomes = []
    for number, unit in enumerate((1.0, 1e30)):
        rows = [replace(one, label=unit * (index % 7)) for index, one in enumerate(examples())]
        settings = SETTINGS.changed(head="fitted", num_epochs=1)
        outcomes.append(run_of(tmp_path / str(number), encoder, settings, task="regression").start(rows, rows))
    assert outcomes[1].baselines["TF-IDF"] == pytest.approx(outcomes[0].baselines["TF-IDF"], abs=1e-4)


def test_settings_that_differ_from_those_of_a_run_are_named_with_both_values(tmp_path: Path, encoder: Path) -> None:
    run_of(tmp_path, encoder, SETTINGS.changed(num_epochs=1)).start(examples())
    other = run_of(tmp_path, encoder, SETTINGS.changed(num_epochs=2, best_by="f1"))
    message = r"\(content of the training data; num_examples.training=37, now 30; settings.best_by=None, now 'f1'; s"
    with pytest.raises(UsageError, match=message + r"ettings.num_epochs=1, now 2\): resume with those"):
        other.start(examples(30), resume=True)


def test_dev_texts_in_training_rows_are_counted() -> None:
    train = [TextExample("The cat sat.", label="x"), TextExample("A dog", "ran", label="y")]
    dev = [TextExample("the CAT  sat", label="y"), TextExample("A dog", label="x"), TextExample("A dog", "ran!", "x")]
    assert "2 of 3 dev examples have the text of a training row" in str(dev_in_training(train, dev))
    assert dev_in_training(train, dev[1:2]) is None and dev_in_training(train, []) is None
    rows = [
        TaggedText("A cat.", ((0, 1), (2, 5), (5, 6)), ("O", "O", "O")), Question("Who?", "A cat.", ((0, 5),)),
        ChoiceQuestion("A cat", ("ran", "sat"), 0), TextSet("a cat", ("the cat",)), TaughtText("a cat"),
    ]  # fmt: skip
    for row in rows:
        assert str(dev_in_training([row, row], [row])).startswith("1 of 1 dev examples have the text")
    assert dev_in_training([Question("Who?", "A cat.")], [Question("Who?", "A dog.")]) is None
