"""An objective, an optimizer and a schedule are one file and one line each: `open_parts` adds them from outside, and
every command works with them: pretrain and its resumption, verify-resume, plan, report, finetune."""

import json
import sys
from pathlib import Path

import pytest
from open_parts import LionSettings, RandomTokens, register, waves
from test_pretraining import TINY, digest, events, write_corpus

from bertkit import load
from bertkit.cli import run
from bertkit.errors import UsageError
from bertkit.objectives import OBJECTIVES
from bertkit.pretraining import read_recipe
from bertkit.tasks import METRICS
from bertkit.training import OPTIMIZERS, SCHEDULES, TrainingSettings

pytestmark = pytest.mark.usefixtures("one_thread", "registered")

CHANGES = [
    *TINY, "model.architecture=electra", "model.config.embedding_size=20", "objective.share=0.25",
    "training.optimizer=lion", "training.schedule=waves", "training.learning_rate=1e-3",
]  # fmt: skip


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (OBJECTIVES, OPTIMIZERS, SCHEDULES, METRICS):
        for name in ("random-tokens", "lion", "waves", RandomTokens.best_by):
            monkeypatch.setitem(registry, name, None)  # so that they are removed afterwards
            monkeypatch.delitem(registry, name)
    register()


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    recipe = tmp_path / "own.toml"
    recipe.write_text('[objective]\nname = "random-tokens"\n[training]\nnum_steps = 12\n')
    corpus = write_corpus(tmp_path / "corpus.txt")
    return ["--corpus", str(corpus), "--recipe", str(recipe), "--set", *CHANGES]


def test_commands_of_pre_training_work_with_all_three(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(["pretrain", *arguments, "--out", str(tmp_path / "run")]) == 0
    row = json.loads(capsys.readouterr().out)
    evaluations = events(tmp_path / "run", "evaluation")
    assert row["random_tokens_loss"] == evaluations[-1]["random_tokens_loss"] < evaluations[0]["random_tokens_loss"]
    assert row["best_random_tokens_loss"] <= row["random_tokens_loss"]
    rates = [line["learning_rate"] for line in events(tmp_path / "run", "step")]
    assert rates == pytest.approx([1e-3 * waves(step / 12, 0.01) for step in range(1, 12, 2)])
    assert list(load(tmp_path / "run/model").network.heads) == ["replaced_tokens"]

    assert run(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    for shown in ("random-tokens", "lion", "waves", "Random tokens loss", "Random tokens accuracy"):
        assert shown in page, shown
    capsys.readouterr()

    stopped = [*arguments, "training.save_every=5"]
    assert run(["pretrain", *stopped, "--out", str(tmp_path / "parts")]) == 0
    last = sorted((tmp_path / "parts/checkpoints").iterdir())[-1]
    for path in sorted(last.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    last.rmdir()
    assert run(["pretrain", *stopped, "--out", str(tmp_path / "parts"), "--resume"]) == 0
    assert "resuming after step 10" in capsys.readouterr().err
    assert digest(tmp_path / "parts") == digest(tmp_path / "run")


@pytest.mark.full
def test_plan_works_with_all_three(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    assert run(["plan", *arguments, "--seconds", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["num_steps"] == 12


@pytest.mark.slow
def test_verify_resume_works_with_all_three(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    program = "from open_parts import register; register(); from bertkit.cli import main; main()"
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr("bertkit.cli.killed_runs._COMMAND", (sys.executable, "-c", program))
    arguments = [one for one in arguments if one != "training.num_steps=12"]
    assert run(["verify-resume", *arguments, "training.evaluate_every=60", "--steps", "60", "--kills", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "exact"


@pytest.mark.parametrize("optimizer", ["lion", "adamw", "adamw-2018", "muon"])
def test_fine_tuning_takes_every_optimizer(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, optimizer: str
) -> None:
    rows = [f"{'good fine' if i % 2 else 'bad poor'} thing {i % 7},{'yes' if i % 2 else 'no'}" for i in range(24)]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    common = ["finetune", "sequence-classification", "--model", str(encoder), "--train", str(tmp_path / "train.csv")]
    assert run([*common, "--out", str(tmp_path / "out"), "--optimizer", optimizer, "--schedule", "waves",
                "--num-epochs", "2", "--learning-rate", "0.001"]) == 0, capsys.readouterr().err  # fmt: skip
    assert optimizer in (tmp_path / "out/README.md").read_text()
    assert load(tmp_path / "out").predict(["good thing"])[0].label in ("yes", "no")


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UsageError, match="expected one of adamw, adamw-2018, muon, lion"):
        TrainingSettings(num_steps=1, optimizer="tiger")
    with pytest.raises(UsageError, match="constant, waves"):
        TrainingSettings(num_steps=1, schedule="tides")
    with pytest.raises(UsageError, match="replaced-tokens, random-tokens"):
        read_recipe("cpu-minutes", ["objective.name=letters"])
    with pytest.raises(UsageError, match=r"\[objective\]: share='much': expected a finite number"):
        read_recipe("cpu-minutes", ["objective.name=random-tokens", "objective.share=much"])
    assert OPTIMIZERS["lion"] is LionSettings and OBJECTIVES["random-tokens"] is RandomTokens
