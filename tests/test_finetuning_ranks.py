"""Fine-tuning on two ranks, as torchrun starts them: the same weights as on one."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit import load
from bertkit.errors import UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import SequenceClassification
from bertkit.training import Ranks

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = "the of and sat un run walk talk blue red green one two three four".split()
NAMES = ("cat", "dog")


def write(path: Path, number: int, seed: int) -> str:
    draw = np.random.default_rng(seed)
    rows = [(" ".join(draw.permutation([*draw.choice(WORDS, 5), name])), name) for name in draw.choice(NAMES, number)]
    path.write_text("text,label\n" + "".join(f"{text},{name}\n" for text, name in rows))
    return str(path)


@pytest.mark.parametrize(
    "task", [pytest.param("sequence-classification", marks=pytest.mark.slow), "few-shot-classification"]
)
def test_two_ranks_are_one(task: str, encoder: Path, tmp_path: Path) -> None:
    """Batches of 7 and a last one of 1, which both ranks compute; a loss of the whole batch with few-shot."""
    train, dev = write(tmp_path / "train.csv", 22, 1), write(tmp_path / "dev.csv", 9, 2)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    program = [sys.executable, "-c", "from bertkit.cli import main; main()"]
    outputs = []
    for name, before in (("one", []), ("two", launch)):
        arguments = [
            "finetune", task, "--model", str(encoder), "--train", train, "--dev", dev, "--out", str(tmp_path / name),
            "--batch-size", "7", "--num-epochs", "2", "--learning-rate", "0.003", "--device", "cpu",
        ]  # fmt: skip
        results = subprocess.run([*before, *program, *arguments], capture_output=True, text=True, timeout=300)
        assert results.returncode == 0, results.stderr
        (line,) = results.stdout.splitlines()  # only the first rank prints
        outputs.append(json.loads(line))
    assert outputs[1] == pytest.approx(outputs[0] | {"model": outputs[1]["model"]}, abs=1e-3)
    paths = [tmp_path / name / "run" / "metrics.jsonl" for name in ("one", "two")]
    logs = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    assert [event["event"] for event in logs[1]] == [event["event"] for event in logs[0]]
    losses = [[event["loss"] for event in log if event["event"] == "step"] for log in logs]
    assert losses[0] and np.allclose(losses[0], losses[1], atol=1e-5)
    weights = [load(tmp_path / name).network.encoder.state_dict() for name in ("one", "two")]
    assert all((weights[0][name] - weights[1][name]).abs().max() < 1e-3 for name in weights[0])


def test_batches_are_large_enough_for_the_ranks(encoder: Path, tmp_path: Path) -> None:
    settings = FinetuningSettings(batch_size=2, num_epochs=1, learning_rate=1e-3)
    run = Finetuning(tmp_path / "out", encoder, "sequence-classification", settings, ranks=Ranks(0, 3))
    with pytest.raises(UsageError, match="batch_size=2 is below the 3 ranks"):
        run.start([SequenceClassification.example("a cat", "cat")])


def test_rows_of_all_ranks_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [torch.arange(6.0).view(3, 2), torch.full((1, 2), 9.0)]
    for rank in (0, 1):
        ranks = Ranks(rank, 2)
        other = torch.tensor([0, 1] if rank == 0 else [3, 0])

        def add(numbers: torch.Tensor, rank: int = rank, other: torch.Tensor = other) -> torch.Tensor:
            if numbers.dtype == torch.int64:
                return numbers + other
            numbers = numbers.clone()
            numbers[slice(3, 4) if rank == 0 else slice(0, 3)] += rows[1 - rank]
            return numbers

        monkeypatch.setattr(ranks, "add", add)
        everything, own = ranks.gather(rows[rank])
        assert everything.equal(torch.cat(rows)) and everything[own].equal(rows[rank])
