"""Training off the plain CPU path, on GPUs and over ranks, as far as a CPU can tell."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_training import SETTINGS, PairFeed, fresh_model, optimizer_of, trainer_of
from torch import nn

from bertkit.tasks import PretrainingTask
from bertkit.training import Ranks, checkpoints, compute_gradients, load_state, trainer


class OneOfTwo(Ranks):
    """A rank of two that hears of the other what it is told here."""

    def __init__(self, rank: int, other: float = 0.0) -> None:
        super().__init__(rank, 2)
        self.other = other

    def add(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers + self.other


# ---- going on


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-2018", "muon"])
def test_the_optimizer_goes_on_where_the_parameters_are(tmp_path: Path, optimizer: str) -> None:
    settings = replace(SETTINGS, num_steps=1, optimizer=optimizer)
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
    """A parameter that says it is not on the CPU."""

    device = torch.device("mps")


def test_dropout_on_another_device_is_of_the_seed_and_the_part() -> None:
    model, task, batch = fresh_model(dropout=0.3), PretrainingTask(), PairFeed().batch(0, 0.0)
    parameters, totals = [Elsewhere(torch.zeros(1)), *model.network.parameters()], task.totals(batch)
    model.network.train()
    torch.manual_seed(0)
    state, found = torch.get_rng_state(), []
    for seed in (5, 5, 6, 2**62):
        losses = compute_gradients(
            parameters, [batch, batch], lambda part: task.loss(model.network, part, totals), seed=seed
        )
        found.append([float(loss.value) for loss in losses])
    assert found[0] == found[1] and len({value for losses in found for value in losses}) == 6
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_of_a_sharded_network_is_of_the_seed_and_the_rank(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(trainer, "is_sharded", lambda network: True)

    def loss_of(rank: int, seed: int) -> float:
        made = trainer_of(fresh_model(0.3), tmp_path, replace(SETTINGS, seed=seed), ranks=OneOfTwo(rank))
        made.network.train()
        made._sums = None
        made._step(PairFeed().batch(0, 0.0), 0, 0.5)
        return float(made._sums[0])

    found = [loss_of(0, 1), loss_of(0, 1), loss_of(0, 2), loss_of(1, 1)]
    assert found[0] == found[1] and len(set(found)) == 3
