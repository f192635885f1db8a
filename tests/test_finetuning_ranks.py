"""Fine-tuning on two ranks, as torchrun starts them: the same weights as on one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import our_model

from bertkit import load
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.cli import run
from bertkit.errors import UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings, Outcome
from bertkit.pretraining import Pretraining
from bertkit.sequence_training import SequenceTraining
from bertkit.tasks import SequenceClassification
from bertkit.tokenizer.layout import Layout
from bertkit.training import Ranks

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = "the of and sat un run walk talk blue red green one two three four".split()
NAMES = ("cat", "dog")


def write(path: Path, number: int, seed: int) -> str:
    draw = np.random.default_rng(seed)
    rows = [(" ".join(draw.permutation([*draw.choice(WORDS, 5), name])), name) for name in draw.choice(NAMES, number)]
    path.write_text("text,label\n" + "".join(f"{text},{name}\n" for text, name in rows))
    return str(path)


def classifier(path: Path) -> str:
    model = our_model("sequence_classification", 3, 2, vocab_size=99, hidden_size=20, num_attention_heads=4,
                      intermediate_size=44, num_hidden_layers=3, hidden_dropout_prob=0.0,
                      attention_probs_dropout_prob=0.0)  # fmt: skip
    model.checkpoint.label_names = NAMES
    model.checkpoint.trained = TrainedTask(SequenceClassification(NAMES), Layout(24, "truncate"))
    model.save(path)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["sequence-classification", "few-shot-classification"])
def test_two_ranks_equal_one(task: str, encoder: Path, tmp_path: Path) -> None:
    """Batches of 7 and a last one of 1, which both ranks compute; a loss of the whole batch with few-shot."""
    train, dev = write(tmp_path / "train.csv", 22, 1), write(tmp_path / "dev.csv", 9, 2)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    program = [sys.executable, "-c", "from bertkit.cli import main; main()"]
    outputs = []
    for name, before in (("one", []), ("two", launch)):
        arguments = [
            "finetune", task, "--model", str(encoder), "--train", train, "--dev", dev, "--out", str(tmp_path / name),
            "--batch-size", "7", "--num-epochs", "2", "--learning-rate", "0.003",
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


@pytest.mark.slow
def test_two_ranks_distill_as_one(tmp_path: Path) -> None:
    """The first one writes the initial student, from which both start."""
    teacher = classifier(tmp_path / "teacher")
    train, dev = write(tmp_path / "train.csv", 22, 1), write(tmp_path / "dev.csv", 9, 2)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    losses = []
    for name, before in (("one", []), ("two", launch)):
        arguments = [
            "distill", "--teacher", teacher, "--layers", "2", "--train", train, "--dev", dev,
            "--out", str(tmp_path / name), "--batch-size", "8", "--num-epochs", "2", "--learning-rate", "0.003",
        ]  # fmt: skip
        program = [*before, sys.executable, "-c", "from bertkit.cli import main; main()", *arguments]
        results = subprocess.run(program, capture_output=True, text=True, timeout=300)
        assert results.returncode == 0, results.stderr
        (line,) = results.stdout.splitlines()  # only the first rank prints
        assert json.loads(line)["reason"] == "finished"
        log = [json.loads(line) for line in (tmp_path / name / "run" / "metrics.jsonl").read_text().splitlines()]
        losses.append([event["loss"] for event in log if event["event"] == "step"])
    assert len(losses[0]) > 1 and losses[1] == pytest.approx(losses[0], rel=1e-4)


class FirstOfTwo(Ranks):
    """The first of two ranks; ``calls`` are the names of the methods that were called."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        self.calls: list[str] = []

    def wait(self) -> None:
        self.calls.append("wait")

    def shutdown(self) -> None:
        self.calls.append("shutdown")

    def exit(self) -> None:
        self.calls.append("exit")


@pytest.mark.parametrize(
    ("command", "calls"),
    [
        ("finetune sequence-classification --train FILE --model MODEL", []),
        ("finetune seq2seq --train FILE --columns source=text target=label", []),
        ("distill --train FILE --teacher MODEL --layers 1", ["wait"]),
        ("pretrain --corpus FILE", []),
    ],
)
def test_every_command_that_trains_joins_the_ranks_of_torchrun(
    command: str, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, joined, ranks = write(tmp_path / "rows.csv", 9, 1), [], FirstOfTwo()
    for kind in (Finetuning, SequenceTraining, Pretraining):
        stopped = Outcome("stopped", 3, None, {})
        monkeypatch.setattr(kind, "start", lambda self, *_, outcome=stopped, **__: joined.append(self.ranks) or outcome)
    monkeypatch.setattr(Ranks, "from_environment", lambda device: ranks)
    arguments = command.replace("FILE", file).replace("MODEL", classifier(tmp_path / "model")).split()
    assert run([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert joined == [ranks] and ranks.calls == [*calls, "shutdown", "exit"]


@pytest.mark.parametrize(
    ("command", "work"),
    [
        ("finetune sequence-classification --train FILE --dev FILE --sweep paper --out OUT", "a sweep runs"),
        ("finetune sequence-classification --train FILE --minutes 1 --out OUT", "minutes compares runs"),
        ("words train FILE --out OUT", "words train runs"),
        ("words train-pairs FILE --out OUT", "words train-pairs runs"),
        ("compare-directions --corpus FILE --out OUT", "a comparison runs"),
    ],
)
def test_work_of_one_process_is_refused_under_torchrun(
    command: str, work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "rows.csv", 9, 1)
    monkeypatch.setattr(Ranks, "from_environment", lambda device="auto": FirstOfTwo())
    assert run(command.replace("FILE", file).replace("OUT", str(tmp_path / "out")).split()) == 2
    assert f"{work} in one process: start it without torchrun" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_batches_are_large_enough_for_the_ranks(encoder: Path, tmp_path: Path) -> None:
    settings = FinetuningSettings.of(batch_size=2, num_epochs=1, learning_rate=1e-3)
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


_RANK = """
import sys
from pathlib import Path
import numpy as np, torch
from bertkit import BertConfig, Model, TextSet, Tokenizer
from bertkit.tasks import Similarity
from bertkit.tokenizer.layout import Layout
from bertkit.training import Ranks, TrainingSettings, make_trainer

torch.set_num_threads(1)
ranks, out = Ranks.from_environment("cpu"), Path(sys.argv[1])
out.mkdir(exist_ok=True)
words = "red blue green cat dog mat run walk one two three".split()
config = BertConfig(
    vocab_size=16, hidden_size=12, num_attention_heads=3, intermediate_size=22, num_hidden_layers=1,
    max_position_embeddings=9, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3,
)
model = Model.create(config, Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]), seed=1)
rows = [TextSet(words[i], (f"{words[i]} {words[(3 * i + 1) % 11]}",), (words[(i + 5) % 11],)) for i in range(6)]
rows.append(TextSet(words[0], (words[7],)))  # a query again, with another positive
task = Similarity(loss_parameters={"directions": "all"})
data = task.labeled(rows, task.encode(model.tokenizer, rows, Layout(9, "truncate")))
feed = task.feed(data, 7, 3, ranks.rank, ranks.num_ranks)
settings = TrainingSettings(num_steps=1, learning_rate=1e-9, clip_norm=None, batch_size=7, log_every=1)
trainer = make_trainer(
    out, model.network, task, feed, settings, ranks=ranks, save_model=lambda folder, parameters: folder.mkdir()
)
trainer.train()
if ranks.is_first:
    gradients = [each.grad.flatten() for each in model.network.parameters() if each.grad is not None]
    np.save(out / "gradients.npy", torch.cat(gradients).numpy())
ranks.shutdown()
ranks.exit()
"""


@pytest.mark.slow
def test_negatives_are_gathered_across_ranks(tmp_path: Path) -> None:
    """Two processes with a share of the rows each (gloo): loss and gradients of one process with all of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for name, rank, number in (("one", 0, 1), ("two", 0, 2), ("two", 1, 2)):
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(number),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        arguments = [sys.executable, "-c", _RANK, str(tmp_path / name)]
        running.append(
            subprocess.Popen(arguments, env=os.environ | environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        )
    for process in running:
        _, printed = process.communicate(timeout=300)
        assert process.returncode == 0, printed.decode()
    one, two = (np.load(tmp_path / name / "gradients.npy") for name in ("one", "two"))
    assert np.abs(one).max() > 1e-3
    np.testing.assert_allclose(two, one, atol=1e-6)
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("one", "two")]
    steps = [next(line for line in map(json.loads, log) if line["event"] == "step") for log in logs]
    assert steps[1]["loss"] == pytest.approx(steps[0]["loss"], abs=1e-6)
    assert steps[1]["masked_per_row"] == steps[0]["masked_per_row"] > 0
