"""Training on GPUs and over ranks, as far as it can be tested on a CPU."""

import math
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from test_training import SETTINGS, PairFeed, fresh_model, optimizer_of, trainer_of
from torch import nn

from bertkit.objectives import PretrainingTask
from bertkit.training import Ranks, batch_gradients, checkpoints, compute_gradients, outputs_of
from bertkit.training.state import load_state


class OneOfTwo(Ranks):
    """A rank of two that receives from the other what is set here."""

    def __init__(self, rank: int, other: float = 0.0) -> None:
        super().__init__(rank, 2)
        self.other = other

    def add(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers + self.other


# ---- resuming


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-2018", "muon"])
def test_optimizer_resumes_on_the_device_of_the_parameters(tmp_path: Path, optimizer: str) -> None:
    settings = SETTINGS.changed(num_steps=1, optimizer=optimizer)
    trainer_of(fresh_model(), tmp_path / "run", settings).train()
    model = fresh_model()
    model.network.to("meta")
    kept = optimizer_of(model, settings)
    assert load_state(checkpoints(tmp_path / "run")[-1], model.network, kept).step == 1
    devices = {(key, value.device.type) for state in kept.state.values() for key, value in state.items()}
    assert {("step", "meta"), ("exp_avg", "meta")} <= devices and not [
        key for key, device in devices if device == "cpu"
    ]


# ---- dropout


class Elsewhere(nn.Parameter):
    """A parameter that reports another device than the CPU."""

    device = torch.device("mps")


def test_dropout_on_another_device_is_of_the_seed_and_the_part() -> None:
    model, task, batch = fresh_model(dropout=0.3), PretrainingTask(), PairFeed().batch(0, 0.0)
    parameters, totals = [Elsewhere(torch.zeros(1)), *model.network.parameters()], task.totals(batch)
    model.network.train()
    torch.manual_seed(0)
    state, results = torch.get_rng_state(), []
    for seed in (5, 5, 6, 2**62):
        losses = compute_gradients(
            parameters, [batch, batch], lambda part: task.loss(outputs_of(model.network, part), part, totals), seed=seed
        )
        results.append([float(loss.value) for loss in losses])
    assert results[0] == results[1] and len({value for losses in results for value in losses}) == 6
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_of_a_sharded_network_is_of_the_seed_and_the_rank(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(batch_gradients, "is_sharded", lambda network: True)

    def loss_of(rank: int, seed: int) -> float:
        made = trainer_of(fresh_model(0.3), tmp_path, SETTINGS.changed(seed=seed), ranks=OneOfTwo(rank))
        made.network.train()
        made._sums = None
        made._step(PairFeed().batch(0, 0.0), 0, 0.5, {})
        return float(made._sums[0])

    results = [loss_of(0, 1), loss_of(0, 1), loss_of(0, 2), loss_of(1, 1)]
    assert results[0] == results[1] and len(set(results)) == 3


@pytest.mark.parametrize("is_fast", [True, False])
def test_products_of_a_sharded_network_are_in_float32_where_bfloat16_is_slow(monkeypatch, is_fast: bool) -> None:
    monkeypatch.setattr("bertkit.training.gradients.has_fast_bfloat16", lambda: is_fast)
    model, task, batch = fresh_model(0.0), PretrainingTask(), PairFeed().batch(0, 0.0)
    losses = {}
    for dtype in (torch.float32, torch.bfloat16):
        (of_batch,) = batch_gradients.backward_sharded(
            model.network, batch, lambda part: task.loss(outputs_of(model.network, part), part, task.totals(part)),
            dtype=dtype, seed=1,
        )  # fmt: skip
        losses[dtype] = float(of_batch.value)
    assert (losses[torch.float32] == losses[torch.bfloat16]) == (not is_fast)
    assert losses[torch.float32] == pytest.approx(losses[torch.bfloat16], rel=1e-2)


# ---- ranks


@pytest.mark.parametrize(
    ("device", "has_gpu", "backend"),
    [("auto", True, "nccl"), ("auto", False, "gloo"), ("cuda", True, "nccl"), ("cpu", True, "gloo")],
)
def test_ranks_talk_where_they_compute_and_wait_long(monkeypatch, device: str, has_gpu: bool, backend: str) -> None:
    connected, placed = [], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.cuda, "set_device", placed.append)
    monkeypatch.setattr("bertkit.training.ranks.rendezvous", lambda url: iter([(dist.HashStore(), 1, 2)]))
    monkeypatch.setattr(dist, "init_process_group", lambda *given, **options: connected.append((*given, options)))
    monkeypatch.setattr(dist, "new_group", lambda backend, timeout: connected.append((backend, timeout)))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "3")
    assert Ranks.from_environment(device).num_ranks == 2
    (name, options), (waiting, timeout) = connected
    assert name == backend and waiting == "gloo" and timeout >= timedelta(hours=12)
    assert (options["rank"], options["world_size"]) == (1, 2)
    options["store"].set("address", "new")
    assert options["store"].underlying_store.get("restart-3/address") == b"new"  # not where the dead wrote theirs
    assert placed == ([1] if backend == "nccl" else [])


def test_gradients_that_no_rank_has_stay_none(monkeypatch) -> None:
    def parameters(*gradients: float | None) -> list[nn.Parameter]:
        made = [nn.Parameter(torch.ones(2, 1)) for _ in gradients]
        for parameter, gradient in zip(made, gradients, strict=True):
            parameter.grad = None if gradient is None else torch.full((2, 1), gradient)
        return made

    here, there = parameters(1.0, None, 2.0, None), parameters(10.0, None, None, 0.0)
    sent = []
    monkeypatch.setattr(dist, "all_reduce", lambda message: sent.append(message.clone()))
    Ranks(1, 2).add_gradients(there)
    monkeypatch.setattr(dist, "all_reduce", lambda message: message.add_(sent[0]))
    Ranks(0, 2).add_gradients(here)
    assert [None if p.grad is None else p.grad.tolist() for p in here] == [
        [[11.0], [11.0]], None, [[2.0], [2.0]], [[0.0], [0.0]],
    ]  # fmt: skip


def test_first_rank_selects_the_best_checkpoint(tmp_path: Path) -> None:
    for first, is_best in ((2.0, True), (2.5, False), (math.nan, False)):
        made = trainer_of(fresh_model(), tmp_path, ranks=OneOfTwo(1, first))
        made.evaluate = lambda is_best=is_best: {"masked_lm_loss": 2.6 if is_best else 2.4}
        made.state.best, made._log = 2.5, None
        assert made._evaluate() == is_best
        assert made.state.best == (first if is_best else 2.5)
