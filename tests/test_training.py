"""The training loop: optimizers and schedules as published, the losses of transformers, bit-identical resumption."""

import itertools
import json
import math
import re
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from example_files import example
from full_disk import files_end_after
from random_models import error, our_model
from torch import nn

from bertkit import Model, load
from bertkit.checkpoint import save_checkpoint
from bertkit.errors import CheckpointError, DependencyError, TrainingError, UsageError
from bertkit.objectives import (
    Loader,
    Masking,
    PretrainingBatch,
    PretrainingTask,
    SentencePairs,
    SpecialIds,
    TokenBlocks,
)
from bertkit.training import (
    SCHEDULES,
    AdamW2018,
    MetricsLog,
    Trainer,
    TrainingSettings,
    TrainingState,
    checkpoints,
    claim_run_folder,
    compute_gradients,
    evaluate,
    make_optimizer,
    outputs_of,
    stop_signals,
)
from bertkit.training.optimizers.muon import Muon
from bertkit.training.state import differences, load_state

SETTINGS = TrainingSettings.of(
    num_steps=20, batch_size=12, tokens_per_part=150, learning_rate=3e-3, warmup=0.2, evaluate_every=5, save_every=4,
    log_every=3, seed=11,
)  # fmt: skip
SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 2,
    "max_position_embeddings": 40, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip


def random_shard(num_documents: int = 40) -> SimpleNamespace:
    draw = np.random.default_rng(5)
    lengths = draw.integers(2, 12, num_documents * 6)
    return SimpleNamespace(
        tokens=draw.zipf(1.5, lengths.sum()).clip(5, 98).astype(np.uint16),
        sentences=np.cumsum([0, *lengths]),
        documents=np.arange(num_documents + 1) * 6,
    )


class PairFeed:
    """Sentence pairs, twelve or so a batch."""

    def __init__(self, batch_size: int = 12, seed: int = 11, pairs: bool = True) -> None:
        special = SpecialIds(2, 3, 4)
        source = (SentencePairs if pairs else TokenBlocks)(random_shard(), special, 24, seed)
        self.loader = Loader([source], Masking(special, np.zeros(99, bool), seed=seed), seed)
        self.batch_size = batch_size

    def batch(self, position: int, progress: float) -> PretrainingBatch:
        return self.loader.batch(position, self.batch_size, stage=0, mask_rate=0.15)

    def next_position(self, position: int, progress: float) -> int:
        return self.loader.next_position(position, self.batch_size, stage=0)

    def facts(self, position: int, progress: float) -> dict[str, float]:
        return {"epoch": self.loader.epoch(position)}


def fresh_model(dropout: float = 0.1, **changes) -> Model:
    shape = SHAPE | {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout} | changes
    return our_model("pretraining", 3, **shape)


def optimizer_of(model: Model, settings: TrainingSettings):
    return make_optimizer(settings.optimizer, model.network, learning_rate=settings.learning_rate)


def trainer_of(model: Model, run: Path, settings: TrainingSettings = SETTINGS, **options) -> Trainer:
    run.mkdir(exist_ok=True)
    task, feed = PretrainingTask(), options.pop("feed", None) or PairFeed(settings.batch_size)
    held_out = PairFeed(seed=99).batch(0, 0.0).split(3)
    optimizer = options.pop("optimizer", None) or optimizer_of(model, settings)
    return Trainer(
        model.network, task, feed, settings, optimizer, run,
        save_model=partial(save_checkpoint, model.checkpoint),
        evaluate=lambda: evaluate(model.network, task, held_out, dtype=torch.float32),
        best_by="masked_lm_loss", log_line=lambda line: None, **options,
    )  # fmt: skip


def events(run: Path, kind: str) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


@pytest.mark.full
@pytest.mark.parametrize(
    ("num_steps", "first", "logged"),
    [
        (12, 0, list(range(1, 13))),  # a short run logs every step
        (250, 240, [242, 244, 246, 248, 250]),
        (1_000, 975, [980, 990, 1_000]),
        (1_000_000, 999_975, [999_980, 999_990, 1_000_000]),
    ],
)
def test_lines_of_metrics_are_spread_over_the_run(tmp_path, num_steps, first, logged):
    settings = SETTINGS.changed(num_steps=num_steps, log_every=None, evaluate_every=None, save_every=None)
    trainer_of(fresh_model(), tmp_path / "run", settings, state=TrainingState(step=first)).train()
    assert [line["step"] for line in events(tmp_path / "run", "step")] == logged


@pytest.mark.full
def test_timed_run_logs_by_its_speed(tmp_path):
    settings = SETTINGS.changed(num_steps=None, minutes=0.02, log_every=None)
    trainer = trainer_of(fresh_model(), tmp_path / "run", settings)
    trainer.train()
    assert len(events(tmp_path / "run", "step")) >= min(trainer.state.step, 50)


def weights(model: Model) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.network.named_parameters()}


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


# ---- schedules


def test_learning_rate_of_2018_step_by_step() -> None:
    peak, num_steps, num_warmup = 1e-4, 1_000, 10  # optimization.py, create_optimizer
    for step in range(num_steps):
        expected = peak * (1 - step / num_steps)
        if step < num_warmup:
            expected = peak * step / num_warmup
        results = peak * SCHEDULES["linear-2018"](num_warmup / num_steps).factor(step / num_steps)
        assert results == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "reference"),
    [
        ("linear", transformers.get_linear_schedule_with_warmup),
        ("cosine", transformers.get_cosine_schedule_with_warmup),
        ("inverse-square-root", transformers.get_inverse_sqrt_schedule),
        ("constant", transformers.get_constant_schedule_with_warmup),
    ],
)
def test_schedules_equal_those_of_transformers(schedule: str, reference: Callable[..., Any]) -> None:
    optimizer, num_steps, num_warmup = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), 100, 20
    of_length = {"num_training_steps": num_steps} if schedule in ("linear", "cosine") else {}
    (factor,) = reference(optimizer, num_warmup, **of_length).lr_lambdas
    for step in range(num_steps + 1):
        result = SCHEDULES[schedule](num_warmup / num_steps).factor(step / num_steps)
        assert result == pytest.approx(factor(step), abs=1e-12)


def test_trapezoid_falls_in_its_last_fifth() -> None:
    factors = [SCHEDULES["trapezoid"](0.1).factor(progress) for progress in (0.1, 0.5, 0.8, 0.85, 1.0)]
    assert factors == pytest.approx([1.0, 1.0, 1.0, 0.5, 0.0])  # 1 - sqrt(0.05 / 0.2) = 0.5


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_warms_up_to_its_peak_and_stays_within(schedule: str) -> None:
    factors = [SCHEDULES[schedule](0.1).factor(done / 1_000) for done in range(1_001)]
    assert factors[0] == 0 and factors[50] == pytest.approx(0.5)
    assert max(factors) == pytest.approx(0.9 if schedule == "linear-2018" else 1.0, abs=0.1)
    assert min(factors) >= 0
    if schedule != "constant":
        last = math.sqrt(0.1) if schedule == "inverse-square-root" else 0
        assert factors[-1] == pytest.approx(last, abs=1e-12)
        falling = factors[100:]
        assert all(later <= earlier for earlier, later in itertools.pairwise(falling))
    if schedule == "inverse-square-root":
        with pytest.raises(UsageError, match=r"warmup=0.0: expected a share above 0"):
            SCHEDULES[schedule](0.0)
    else:
        assert SCHEDULES[schedule](0.0).factor(0.0) > 0.9


def test_invalid_schedules_raise() -> None:
    with pytest.raises(UsageError, match="linear-2018"):
        TrainingSettings.of(schedule="sawtooth")
    with pytest.raises(UsageError, match="warmup=1"):
        TrainingSettings.of(warmup=1.0)


# ---- optimizers


def test_optimizer_of_2018_reaches_the_optimum_of_its_own_test() -> None:
    # google-research/bert, optimization_test.py: mean squared distance, learning rate 0.2, 100 steps
    weight = nn.Parameter(torch.tensor([0.1, -0.2, -0.1]))
    goal = torch.tensor([0.4, 0.2, -0.5])
    optimizer = AdamW2018([weight], lr=0.2, weight_decay=0.0)
    for _ in range(100):
        optimizer.zero_grad()
        (weight - goal).square().mean().backward()
        optimizer.step()
    assert torch.allclose(weight.detach(), goal, rtol=1e-2, atol=1e-2)


def test_optimizer_of_2018_equals_its_formula() -> None:
    weight = nn.Parameter(torch.tensor([[0.5, -0.25]], dtype=torch.float64))
    optimizer = AdamW2018([weight], lr=0.1, weight_decay=0.01)
    w, m, v = [0.5, -0.25], [0.0, 0.0], [0.0, 0.0]
    for step in range(5):
        gradient = [0.3 - 0.1 * step, 0.2]
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        for i in range(2):
            m[i] = 0.9 * m[i] + 0.1 * gradient[i]
            v[i] = 0.999 * v[i] + 0.001 * gradient[i] ** 2
            w[i] -= 0.1 * (m[i] / (math.sqrt(v[i]) + 1e-6) + 0.01 * w[i])
    assert weight[0].tolist() == pytest.approx(w, rel=1e-12)


def after_three_steps(optimizer: type[torch.optim.Optimizer], dtype: torch.dtype) -> list[torch.Tensor]:
    """Matrices wider and taller than high, of one group, and one without a gradient."""
    generator = torch.Generator().manual_seed(2)
    matrices = [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in ((5, 9), (9, 4), (2, 2))]
    steps = optimizer(matrices, 0.02, 0.1)
    for _ in range(3):
        for matrix in matrices[:2]:
            matrix.grad = torch.randn(matrix.shape, generator=generator).to(dtype)
        steps.step()
    return [matrix.detach() for matrix in matrices]


def test_muon_equals_that_of_torch_where_bfloat16_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.training.optimizers.muon.has_fast_bfloat16", lambda: True)
    given, expected = (after_three_steps(each, torch.float32) for each in (Muon, torch.optim.Muon))
    assert all(map(torch.equal, given, expected))


def test_muon_orthogonalizes_in_float32_where_bfloat16_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.training.optimizers.muon.has_fast_bfloat16", lambda: False)
    given = after_three_steps(Muon, torch.float32)
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.double)  # what torch's Muon then computes in
    expected = after_three_steps(torch.optim.Muon, torch.float64)
    for ours, theirs in zip(given, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["adamw", "adamw-2018", "muon"])
def test_every_parameter_has_one_optimizer_and_norms_and_biases_have_no_decay(name: str) -> None:
    model = fresh_model()
    optimizer = optimizer_of(model, SETTINGS.changed(optimizer=name))
    names = {parameter: key for key, parameter in model.network.named_parameters()}
    seen = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            seen.append(names[parameter])
            assert (group["weight_decay"] > 0) == (parameter.dim() == 2)
            is_matrix = ".layers." in names[parameter] and parameter.dim() == 2
            assert group["peak_lr"] == (0.02 if name == "muon" and is_matrix else 3e-3)
    assert sorted(seen) == sorted(names.values())
    assert any(isinstance(one, AdamW2018) for one in optimizer.optimizers) == (name == "adamw-2018")
    with pytest.raises(UsageError, match="adamw-2018"):
        SETTINGS.changed(optimizer="sgd")


# ---- the loss


def test_each_core_updates_a_similar_share_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    model = fresh_model()
    optimizer = optimizer_of(model, SETTINGS)
    sizes = [
        sum(parameter.numel() for group in one.param_groups for parameter in group["params"])
        for one in optimizer.optimizers
    ]
    largest = max(parameter.numel() for parameter in model.network.parameters())
    assert len(sizes) == 3 and sum(sizes) == sum(parameter.numel() for parameter in model.network.parameters())
    assert max(sizes) <= max(largest, 1.05 * sum(sizes) / 3)


def test_twenty_losses_of_transformers_and_of_one_file_with_the_recipe_of_2018(tmp_path: Path) -> None:
    settings = SETTINGS.changed(optimizer="adamw-2018", schedule="linear-2018", learning_rate=1e-3, log_every=1,
                       num_steps=20)  # fmt: skip
    model = fresh_model(dropout=0.0)
    model.save(tmp_path / "start")
    trainer_of(model, tmp_path / "run", settings).train()
    ours = [event["loss"] for event in events(tmp_path / "run", "step")]

    bert = example("bert")
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "start").train()
    plain, _ = bert.load(tmp_path / "start")
    optimizers = bert.AdamW(dict(theirs.named_parameters())), bert.AdamW(plain.weights)
    feed, position, results, in_one_file = PairFeed(), 0, [], []
    for step in range(20):
        given = feed.batch(position, 0.0)
        position = feed.next_position(position, 0.0)
        batch = given.batch
        labels = torch.full((len(batch.input_ids),), -100)
        labels[given.masked_positions] = given.labels
        loss = theirs(
            input_ids=batch.pad(batch.input_ids), attention_mask=batch.attention_mask().long(),
            token_type_ids=batch.pad(batch.token_type_ids), labels=batch.pad(labels, -100),
            next_sentence_label=given.next_sentence_label,
        ).loss  # fmt: skip
        results.append(loss.item())
        loss.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        rate = bert.learning_rate_at(step, num_steps=20, num_warmup=4, peak=1e-3)
        assert rate == 1e-3 * (step / 4 if step < 4 else 1 - step / 20)
        optimizers[0].step(rate)
        packed = bert.Batch(
            batch.input_ids, batch.token_type_ids, batch.position_ids, batch.cu_seqlens.diff().tolist()
        )  # fmt: skip
        targets = given.masked_positions, given.labels, given.next_sentence_label
        in_one_file.append(bert.training_step(plain, optimizers[1], (packed, *targets), rate))
    assert len(ours) == 20 and results[-1] < results[0] - 0.1
    assert np.abs(np.array(ours) - np.array(results)).max() < 1e-4
    assert np.abs(np.array(ours) - np.array(in_one_file)).max() < 1e-4


@pytest.mark.full
def test_loss_of_a_batch_does_not_depend_on_its_parts() -> None:
    model, task, batch = fresh_model(0.0), PretrainingTask(), PairFeed().batch(0, 0.0)
    parameters = list(model.network.parameters())
    totals = task.totals(batch)
    gradients, losses = [], []
    for num_parts in (1, 5):
        parts = batch.split(num_parts)
        results = compute_gradients(
            parameters, parts, lambda part: task.loss(outputs_of(model.network, part), part, totals)
        )
        gradients.append(torch.cat([p.grad.flatten() for p in parameters]))
        losses.append(task.metrics(torch.stack([loss.sums for loss in results]).sum(0))["loss"])
        assert sum(float(loss.value.detach()) for loss in results) == pytest.approx(losses[-1], rel=1e-5)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert error(gradients[0], gradients[1]) < 1e-5


def test_metrics_written_out() -> None:
    metrics = PretrainingTask().metrics(torch.tensor([6.0, 1.0, 4.0, 3.0, 2.0, 3.0], dtype=torch.float64))
    assert metrics == {
        "loss": 2.5, "masked_lm_loss": 1.5, "masked_lm_accuracy": 0.25, "masked_lm_perplexity": math.exp(1.5),
        "next_sentence_loss": 1.0, "next_sentence_accuracy": 2 / 3,
    }  # fmt: skip
    assert "next_sentence_loss" not in PretrainingTask().metrics(torch.tensor([6.0, 1.0, 4.0, 0, 0, 0]))
    one = PretrainingTask().metrics(torch.tensor([6.0, 1.0, 1.0, 0, 0, 0]))
    none = PretrainingTask().metrics(torch.zeros(6))
    large = PretrainingTask().metrics(torch.tensor([9_000.0, 1.0, 2.0, 0, 0, 0]))
    assert large["masked_lm_perplexity"] == math.exp(700.0)  # and not an OverflowError
    assert [(at["loss"], at["masked_lm_accuracy"]) for at in (one, none)] == [(6.0, 1.0), (0.0, 0.0)]


def test_masked_lm_alone(tmp_path: Path) -> None:
    model = our_model("masked_lm", 3, **SHAPE)
    trainer = trainer_of(model, tmp_path / "run", feed=PairFeed(pairs=False))
    trainer.evaluate = None
    assert trainer.train() == "finished"
    first, *_, last = events(tmp_path / "run", "step")
    assert last["masked_lm_loss"] < first["masked_lm_loss"] and "next_sentence_loss" not in last


@pytest.mark.full
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_loss_falls(tmp_path: Path, optimizer: str) -> None:
    model = fresh_model()
    settings = SETTINGS.changed(optimizer=optimizer, precision="bfloat16", num_steps=40)
    trainer_of(model, tmp_path / "run", settings).train()
    results = [event["masked_lm_loss"] for event in events(tmp_path / "run", "evaluation")]
    assert len(results) == 9 and results[-1] < results[0] - 0.2


# ---- resuming


@pytest.mark.full
@pytest.mark.cpu_only
@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("adamw-2018", marks=pytest.mark.slow), "muon"])
def test_run_stopped_anywhere_resumes_with_the_same_bits(tmp_path: Path, optimizer: str) -> None:
    settings = SETTINGS.changed(optimizer=optimizer)
    whole = fresh_model()
    assert trainer_of(whole, tmp_path / "whole", settings).train() == "finished"
    for stop_after in (1, 8, 13):
        run = tmp_path / f"stopped after {stop_after}"
        model = fresh_model()
        trainer = trainer_of(model, run, settings)
        trainer.should_stop = lambda trainer=trainer, last=stop_after: trainer.state.step >= last
        assert trainer.train() == "stopped" and trainer.state.step == stop_after
        folder = checkpoints(run)[-1]
        again = load(folder / "model")
        kept = optimizer_of(again, settings)
        state = load_state(folder, again.network, kept)
        assert state.step == stop_after and not list(differences(state, 1))
        assert trainer_of(again, run, settings, optimizer=kept, state=state).train() == "finished"
        assert_same_bits(weights(again), weights(whole))


@pytest.mark.full
def test_run_killed_before_its_last_evaluation_makes_it_up(tmp_path: Path) -> None:
    settings, killed = SETTINGS.changed(evaluate_every=7, save_every=4), fresh_model()
    whole = trainer_of(fresh_model(), tmp_path / "whole", settings)
    whole.train()
    run = tmp_path / "killed"
    trainer = trainer_of(killed, run, settings)
    evaluate_once = trainer.evaluate

    def evaluate_until_the_end() -> dict[str, float]:
        assert evaluate_once is not None
        if trainer.state.step == settings.num_steps:
            raise KeyboardInterrupt
        return evaluate_once()

    trainer.evaluate = evaluate_until_the_end
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    folder = checkpoints(run)[-1]
    again = load(folder / "model", device="cpu")
    kept = optimizer_of(again, settings)
    state = load_state(folder, again.network, kept)
    assert state.step == settings.num_steps
    resumed = trainer_of(again, run, settings, optimizer=kept, state=state)
    assert resumed.train() == "finished"
    assert (resumed.state.best, resumed.state.best_step) == (whole.state.best, whole.state.best_step)
    assert [line["step"] for line in events(run, "evaluation")] == [0, 7, 14, 20]


@pytest.mark.full
@pytest.mark.parametrize("values, patience, expected", [
    ([9, 3, 2, 5, 4], 1, ("stopped early", 15, 10)),  # the second evaluation is better: the run continues
    ([9, 3, 2, 1, 4], 1, ("finished", 20, 15)),
    ([9, 3, 4, 2, 5], 2, ("finished", 20, 15)),
    ([1, math.nan, 4, math.nan, 3], None, ("finished", 20, 20)),
    ([1, 4, math.nan, math.nan, 3], 2, ("stopped early", 15, 5)),
    ([1] + [math.nan] * 4, 3, ("stopped early", 15, None)),
])  # fmt: skip
def test_patience_counts_evaluations_without_improvement(tmp_path: Path, values, patience, expected) -> None:
    trainer = trainer_of(fresh_model(), tmp_path / "run", SETTINGS.changed(patience=patience))
    left = iter(values)
    trainer.evaluate = lambda: {"masked_lm_loss": next(left)}
    assert (trainer.train(), trainer.state.step, trainer.state.best_step) == expected
    assert events(tmp_path / "run", "end")[-1]["reason"] == expected[0]


@pytest.mark.full
def test_last_checkpoints_and_the_best_are_kept(tmp_path: Path) -> None:
    model, run = fresh_model(), tmp_path / "run"
    trainer = trainer_of(model, run, SETTINGS.changed(save_every=2, keep_last=2))
    losses = iter([9.0, 3.0, 2.0, 5.0, 4.0])
    trainer.evaluate = lambda: {"masked_lm_loss": next(losses)}
    trainer.train()
    assert [folder.name for folder in checkpoints(run)] == ["step-00000010", "step-00000018", "step-00000020"]
    assert (trainer.state.best, trainer.state.best_step) == (2.0, 10)
    assert [event["step"] for event in events(run, "checkpoint")] == [2, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20]


@pytest.mark.full
@pytest.mark.parametrize("file", ["model/config.json", "model/model.safetensors", "optimizer.safetensors"])
def test_full_disk_keeps_the_previous_checkpoint(tmp_path: Path, file: str) -> None:
    run, model = tmp_path / "run", fresh_model()
    trainer = trainer_of(model, run)
    save, calls, disk = trainer.save_model, [], ExitStack()

    def fill_up(folder: Path, **options) -> None:
        calls.append(folder)
        if len(calls) == 3:
            disk.enter_context(files_end_after((checkpoints(run)[-1] / file).stat().st_size - 1))
        save(folder, **options)

    trainer.save_model = fill_up
    with disk, pytest.raises(TrainingError, match=r"step-00000008 cannot be written .*File too large.*room") as error:
        trainer.train()
    assert ".partial" not in str(error.value)
    results = checkpoints(run)
    assert [folder.name for folder in results] == ["step-00000004", "step-00000005"]
    assert not [path for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]
    again = load(results[-1] / "model")
    assert load_state(results[-1], again.network, optimizer_of(again, SETTINGS)).step == 5


def test_evaluations_worse_than_the_initial_weights_are_logged_as_such(tmp_path: Path) -> None:
    trainer = trainer_of(fresh_model(), tmp_path / "run", SETTINGS.changed(num_steps=3, evaluate_every=1))
    values, lines = iter([2.0, 5.0, 6.0, 1.0]), list[str]()
    trainer.evaluate, trainer.log_line = lambda: {"masked_lm_loss": next(values)}, lines.append
    assert trainer.train() == "finished"
    assert [line for line in lines if line.startswith("step")] == [
        "step 0: masked_lm_loss 2",
        "step 1: masked_lm_loss 5 (best so far, worse than the initial weights)",
        "step 2: masked_lm_loss 6 (worse than the initial weights)",
        "step 3: masked_lm_loss 1 (best so far)",
    ]


def test_saving_a_model_on_a_full_disk(tmp_path: Path) -> None:
    with files_end_after(10_000), pytest.raises(OSError, match=r"File too large, make room.*model"):
        fresh_model().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_checkpoints_of_other_models_raise(tmp_path: Path) -> None:
    run, model = tmp_path / "run", fresh_model()
    trainer_of(model, run).train()
    folder = checkpoints(run)[-1]
    other = fresh_model(hidden_size=24)
    with pytest.raises(CheckpointError, match="lacks"):
        load_state(folder, other.network, optimizer_of(other, SETTINGS))
    record = json.loads((folder / "state.json").read_text())
    assert record["step_evaluated"] == 20
    lacking = [{key: record[key] for key in record if key != name} for name in ("step", "step_evaluated")]
    for changed in ({}, record | {"mood": 1}, *lacking, [record]):
        (folder / "state.json").write_text(json.dumps(changed))
        with pytest.raises(CheckpointError, match=r"state\.json"):
            load_state(folder, model.network, optimizer_of(model, SETTINGS))
    (folder / "state.json").write_text(json.dumps(record))
    assert load_state(folder, model.network, optimizer_of(model, SETTINGS)) == TrainingState(**record)
    (folder / "optimizer.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors cannot be read"):
        load_state(folder, model.network, optimizer_of(model, SETTINGS))


def test_different_number_of_threads_is_reported() -> None:
    assert not list(differences(TrainingState(num_threads=torch.get_num_threads()), 1))
    (line,) = differences(TrainingState(num_threads=99), 1)
    assert "OMP_NUM_THREADS=99" in line
    (line,) = differences(TrainingState(num_ranks=3), 1)
    assert "3 ranks" in line


def test_non_finite_loss_stops_with_its_position(tmp_path: Path) -> None:
    run, model = tmp_path / "run", fresh_model()
    with torch.no_grad():
        model.network.encoder.embeddings.word.weight[50:] = math.nan
    before = weights(model)
    with pytest.raises(TrainingError, match=r"not a finite number.* Start another run with a lower learning rate$"):
        trainer_of(model, run).train()
    index = json.loads((run / "non-finite.json").read_text())
    assert index["step"] == 0 and index["position"] == 0
    (end,) = events(run, "end")
    assert end["reason"] == "non-finite loss" and not checkpoints(run)
    assert all(torch.equal(p.nan_to_num(), before[name].nan_to_num()) for name, p in model.network.named_parameters())


def test_weights_broken_by_the_last_update_are_not_saved(tmp_path: Path, monkeypatch) -> None:
    run, model = tmp_path / "run", fresh_model()
    trainer = trainer_of(model, run, SETTINGS.changed(num_steps=2, save_every=1))
    step = trainer.optimizer.step

    def step_that_breaks() -> None:
        step()
        if trainer.state.step == 1:
            model.network.encoder.embeddings.word.weight.data[:] = math.nan

    monkeypatch.setattr(trainer.optimizer, "step", step_that_breaks)
    with pytest.raises(TrainingError, match=r"step 1: after its update, the loss .*, from .*step-00000001/model$"):
        trainer.train()
    assert [folder.name for folder in checkpoints(run)] == ["step-00000001"]
    (saved,) = events(run, "checkpoint")
    assert math.isfinite(saved["loss"])


# ---- what is written


@pytest.mark.full
def test_metrics_lines(tmp_path: Path) -> None:
    run, model = tmp_path / "run", fresh_model()
    trainer_of(model, run).train()
    steps = events(run, "step")
    assert [event["step"] for event in steps] == [3, 6, 9, 12, 15, 18, 20]
    feed, position, tokens = PairFeed(), 0, 0
    for _ in range(20):
        tokens += feed.batch(position, 0.0).num_tokens
        position = feed.next_position(position, 0.0)
    assert steps[-1]["tokens"] == tokens
    keys = {"event", "step", "seconds", "tokens", "loss", "masked_lm_loss", "masked_lm_accuracy",
            "masked_lm_perplexity", "next_sentence_loss", "next_sentence_accuracy", "learning_rate", "gradient_norm",
            "epoch", "tokens_per_second"}  # fmt: skip
    assert set(steps[0]) == keys
    assert [event["step"] for event in events(run, "evaluation")] == [0, 5, 10, 15, 20]
    assert [event["reason"] for event in events(run, "end")] == ["finished"]


@pytest.mark.full
def test_lines_have_the_means_and_the_speed_since_the_line_before(tmp_path: Path) -> None:
    """The clock advances by a second each time it is read."""
    settings = SETTINGS.changed(num_steps=8, evaluate_every=None, save_every=None)
    lines = {}
    for every in (1, 4):
        readings = itertools.count(step=1.0)
        run = tmp_path / str(every)
        trainer_of(fresh_model(), run, settings.changed(log_every=every), clock=partial(next, readings)).train()
        lines[every] = events(run, "step")
        before = {"tokens": 0, "seconds": 0.0}
        for line in lines[every]:
            seconds = line["seconds"] - before["seconds"]
            assert seconds > 0 and line["tokens_per_second"] == (line["tokens"] - before["tokens"]) / seconds
            before = line
    for number, line in enumerate(lines[4]):
        steps = lines[1][4 * number : 4 * number + 4]
        assert line["loss"] == pytest.approx(np.mean([one["loss"] for one in steps]), rel=0.02)
        assert line["gradient_norm"] == steps[-1]["gradient_norm"]


@pytest.mark.full
def test_run_without_settings_of_how_often_is_evaluated_twenty_times_and_saved_ten_times(tmp_path: Path) -> None:
    settings = SETTINGS.changed(num_steps=40, evaluate_every=None, save_every=None, keep_last=99)
    trainer = trainer_of(fresh_model(), tmp_path / "run", settings, clock=lambda: 0.0)
    trainer.evaluate = lambda: {"masked_lm_loss": float(trainer.state.step)}  # the first is the best
    assert trainer.train() == "finished"
    assert [line["step"] for line in events(tmp_path / "run", "evaluation")] == list(range(0, 41, 2))
    assert [line["step"] for line in events(tmp_path / "run", "checkpoint")] == [2, *range(4, 41, 4)]


class Timed:
    """A clock that only steps, evaluations and checkpoints advance, by these seconds; two pairs make a batch."""

    def __init__(self, run: Path, of_step: float, of_evaluation: float, of_save: float, **settings: Any) -> None:
        self.now, self.measured = 0.0, 0.0
        lengths = SETTINGS if "evaluate_every" in settings else SETTINGS.changed(evaluate_every=None)
        lengths = lengths.changed(**{"save_every": None, "keep_last": 99, "batch_size": 2} | settings)
        self.model, self.run = fresh_model(num_hidden_layers=1), run
        trainer = self.trainer = trainer_of(self.model, run, lengths, clock=lambda: self.now)
        judge, save, update = trainer.evaluate, trainer.save_model, trainer.optimizer.step
        trainer.evaluate = lambda: self._take(of_evaluation) or judge()
        trainer.save_model = lambda folder, parameters: self._take(of_save) or save(folder, parameters=parameters)

        def step() -> None:
            self.now += of_step
            update()

        trainer.optimizer.step = step

    def _take(self, seconds: float) -> None:
        self.now += seconds
        self.measured += seconds

    def steps(self, kind: str) -> list[int]:
        return [line["step"] for line in events(self.run, kind)]


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("of_evaluation, of_save", [(0.1, 0.0), (0.25, 0.12), (0.0, 3.0), (5.0, 1.0)])
@pytest.mark.parametrize("length", [{"num_steps": 60}, {"num_steps": None, "minutes": 0.9}])
def test_evaluations_and_checkpoints_take_at_most_a_tenth(tmp_path: Path, length, of_evaluation, of_save) -> None:
    timed = Timed(tmp_path / "run", 1.0, of_evaluation, of_save, **length)
    assert timed.trainer.train() == "finished"
    evaluated, fewest = timed.steps("evaluation"), 2 * (of_evaluation + of_save)  # the first, measured, and the last
    assert timed.measured <= max(0.1 * timed.now, fewest) + 1e-9
    assert evaluated[0] == 0 and evaluated[-1] == timed.steps("checkpoint")[-1] == timed.trainer.state.step
    if 40 * (of_evaluation + of_save) < 0.1 * timed.now:
        assert len(evaluated) == 21
    elif 4 * fewest < 0.1 * timed.now:  # they are spread over the run, and use what time there is
        assert np.diff(evaluated).max() < 0.7 * timed.trainer.state.step and timed.measured > 0.04 * timed.now


@pytest.mark.full
def test_evaluations_and_checkpoints_at_given_steps_do_not_depend_on_their_time(tmp_path: Path) -> None:
    timed = Timed(tmp_path / "run", 1.0, 50.0, 20.0, evaluate_every=4, save_every=7, num_steps=21)
    timed.trainer.train()
    assert timed.steps("evaluation") == [0, 4, 8, 12, 16, 20, 21]
    assert {7, 14, 21} <= set(timed.steps("checkpoint"))
    only_saves = Timed(tmp_path / "saves", 1.0, 0.0, 20.0, evaluate_every=99, num_steps=21)
    only_saves.trainer.train()
    assert only_saves.steps("checkpoint") == [3, 21]  # the first one is measured
    selects = Timed(tmp_path / "selects", 1.0, 50.0, 0.0, num_steps=21)
    selects.trainer.best_is_result = True
    selects.trainer.train()
    assert len(selects.steps("evaluation")) == 21


@pytest.mark.full
def test_weights_do_not_depend_on_how_often_they_are_evaluated_and_saved(tmp_path: Path) -> None:
    trained = []
    for name, seconds in (("often", 0.0), ("seldom", 60.0)):
        timed = Timed(tmp_path / name, 1.0, seconds, seconds, num_steps=20)
        timed.trainer.train()
        trained.append((timed.steps("evaluation"), weights(timed.model), timed.trainer.state.position))
    (often, first, position), (seldom, second, other_position) = trained
    assert often == [*range(21)] and seldom == [0, 20] and position == other_position
    assert_same_bits(first, second)


@pytest.mark.full
@pytest.mark.parametrize("values, kept", [([3.0, 4.0, 5.0], 0), ([3.0, 2.0, 5.0], 5), ([math.nan, 4.0, 5.0], 5)])
@pytest.mark.parametrize("higher_is_better", [False, True])
def test_initial_weights_may_be_the_best(tmp_path: Path, values, kept: int, higher_is_better: bool) -> None:
    settings, left = SETTINGS.changed(num_steps=10, save_every=10, keep_last=1), iter(values)
    options = {"keep_first": True, "higher_is_better": higher_is_better}
    trainer = trainer_of(fresh_model(), tmp_path / "run", settings, **options)
    trainer.evaluate = lambda: {"masked_lm_loss": next(left) * (-1 if higher_is_better else 1)}
    trainer.train()
    assert trainer.state.best_step == kept
    assert [folder.name for folder in checkpoints(tmp_path / "run")] == [f"step-{kept:08d}", "step-00000010"]


@pytest.mark.full
def test_truncated_line_does_not_affect_the_next(tmp_path: Path) -> None:
    run, model = tmp_path / "run", fresh_model()
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"event": "step", "st')
    trainer_of(model, run).train()
    cut, *others = (run / "metrics.jsonl").read_text().splitlines()
    assert cut == '{"event": "step", "st' and all(json.loads(line) for line in others)


def test_lines_are_added_to_whole_ones(tmp_path: Path) -> None:
    for text in ("new", "rest"):
        log = MetricsLog(tmp_path)
        log.write("samples", 3, text=text)
        log.close()
    new, rest = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert new == b'{"event": "samples", "step": 3, "text": "new"}\n' and rest == new.replace(b"new", b"rest")


def test_log_has_null_for_numbers_that_are_not_finite(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.write("evaluation", 3, spearman=math.nan, several=[math.inf, 1.0])
    log.close()
    line = '{"event": "evaluation", "step": 3, "spearman": null, "several": [null, 1.0]}\n'
    assert (tmp_path / "metrics.jsonl").read_text() == line


def test_log_for_tensorboard_opens_no_file_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(DependencyError, match=r"pip install 'bertkit\[track\]'"):
        MetricsLog(tmp_path, tensorboard=True)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["file", "file/run", "file/a/run"])
def test_run_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("a text")
    with pytest.raises(UsageError, match="file is not a folder; choose another path"):
        claim_run_folder(tmp_path / name, tmp_path / name / "run" / "settings.json", {}, resume=False)


def test_run_of_another_version_is_refused(tmp_path: Path) -> None:
    run, record = tmp_path / "run", tmp_path / "run" / "settings.json"
    assert claim_run_folder(run, record, {"seed": 3}, resume=False)
    assert not claim_run_folder(run, record, {"seed": 3}, resume=True)
    for content, message in (
        ({"format": 2, "seed": 3}, "settings.json has format 2, expected 1: update bertkit"),
        ({"seed": 3}, "settings.json was not made by this version of bertkit: choose another folder"),
    ):
        record.write_text(json.dumps(content))
        for resume in (False, True):
            with pytest.raises(UsageError, match=message):
                claim_run_folder(run, record, {"seed": 3}, resume=resume)


@pytest.mark.full
def test_timed_run_ends_in_time(tmp_path: Path) -> None:
    """The clock advances by a twentieth of a second each time it is read."""
    run, model, readings = tmp_path / "run", fresh_model(), itertools.count()
    settings = SETTINGS.changed(num_steps=None, minutes=6 / 60, save_every=None, evaluate_every=None)
    assert trainer_of(model, run, settings, clock=lambda: next(readings) / 20).train() == "finished"
    (end,) = events(run, "end")
    assert 6 <= end["seconds"] < 6.5
    rates = [event["learning_rate"] for event in events(run, "step")]
    assert rates[-1] < 0.1 * max(rates) <= 0.1 * 3e-3 * 1.001
    assert len(checkpoints(run)) >= 1


class RecordingFeed(PairFeed):
    """Lists the positions and the progress that it is called with."""

    def __init__(self, batch_size: int) -> None:
        super().__init__(batch_size)
        self.batches, self.nexts, self.logged = [], [], []

    def batch(self, position: int, progress: float) -> PretrainingBatch:
        self.batches.append((position, progress))
        return super().batch(position, progress)

    def next_position(self, position: int, progress: float) -> int:
        self.nexts.append((position, progress))
        return super().next_position(position, progress)

    def facts(self, position: int, progress: float) -> dict[str, float]:
        self.logged.append((position, progress))
        return super().facts(position, progress)


@pytest.mark.full
@pytest.mark.parametrize("length", [{"num_steps": None, "minutes": 3 / 60}, {"num_steps": 7}])
def test_every_batch_is_trained_once_by_one_progress(length: dict, tmp_path: Path) -> None:
    readings, feed = itertools.count(), RecordingFeed(SETTINGS.batch_size)
    settings = SETTINGS.changed(**length, save_every=None, evaluate_every=None)
    trainer = trainer_of(fresh_model(), tmp_path / "run", settings, feed=feed, clock=lambda: next(readings) / 10)
    assert trainer.train() == "finished"
    positions = [position for position, _ in feed.nexts]
    assert len(positions) == trainer.state.step >= 5 and len({*positions}) == len(positions)
    assert feed.nexts == feed.logged == feed.batches[: len(positions)]  # a run of minutes prepares one more
    following = [PairFeed.next_position(feed, position, 0.0) for position in positions]
    assert following == [*positions[1:], trainer.state.position]


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_logged_once_and_only_in_training(first: int, second: int) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    at_once = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: SystemExit, signal.SIGHUP: SystemExit}
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with pytest.raises(at_once[first]), stop_signals(print):
            signal.raise_signal(first)
        lines: list[str] = []
        with stop_signals(lines.append) as should_stop:
            assert not should_stop()  # training has begun
            signal.raise_signal(first)
            assert should_stop() and len(lines) == 1 and "stopping as soon as" in lines[0]
            with pytest.raises(KeyboardInterrupt) if second == signal.SIGINT else nullcontext():
                signal.raise_signal(second)
        with stop_signals(lines.append) as should_stop:
            assert not should_stop()
        with pytest.raises(at_once[first]):
            signal.raise_signal(first)
        assert len(lines) == 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_invalid_settings_raise_errors() -> None:
    for changes, message in (
        ({"num_steps": None}, "either num_steps or minutes"),
        ({"minutes": 3.0}, "either num_steps or minutes"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"learning_rate": math.nan}, "learning_rate=nan"),
        ({"optimizer": "adam"}, "adamw-2018"),
        ({"schedule": "steps"}, "trapezoid"),
        ({"precision": "int8"}, "expected one of 'float32', 'bfloat16'"),
        ({"betas": (0.9, 1.5)}, "betas=[0.9, 1.5]"),
        ({"betas": (0.9,)}, "betas=[0.9]: expected a list of 2 items"),
        ({"betas": (0.9, "0.98")}, "each item a finite number"),
        ({"betas": None}, "betas=None"),
        ({"schedule": ["linear"]}, "schedule=['linear']: expected one of linear"),
        ({"gradient_checkpointing": "no"}, "gradient_checkpointing='no': expected True or False"),
        ({"learning_rate": np.float32(1e-3)}, "learning_rate=np.float32(0.001): expected a finite number"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**63}, "an integer"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            SETTINGS.changed(**changes).check_length()
