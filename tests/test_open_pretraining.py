"""An objective, an optimizer and a schedule are one file and one line each: `open_parts` adds them from outside, and
every command works with them: pretrain and its resumption, verify-resume, plan, report, finetune."""

import json
import sys
from pathlib import Path

import pytest
from open_parts import LionSettings, RandomTokens, Waves, register
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
    "training.optimizer=lion", "training.faster=0.8", "training.schedule=waves", "training.num_waves=2",
    "training.learning_rate=1e-3",
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
    assert rates == pytest.approx([1e-3 * Waves(0.01, 2).factor(step / 12) for step in range(1, 12, 2)])
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
    assert run(["verify-resume", *arguments, "training.evaluate_every=60", "--num-steps", "60", "--kills", "1"]) == 0
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
        TrainingSettings.of(num_steps=1, optimizer="tiger")
    with pytest.raises(UsageError, match="constant, waves"):
        TrainingSettings.of(num_steps=1, schedule="tides")
    with pytest.raises(UsageError, match="replaced-tokens, random-tokens"):
        read_recipe("cpu-minutes", ["objective.name=letters"])
    with pytest.raises(UsageError, match=r"\[objective\]: share='much': expected a finite number"):
        read_recipe("cpu-minutes", ["objective.name=random-tokens", "objective.share=much"])
    assert OPTIMIZERS["lion"] is LionSettings and OBJECTIVES["random-tokens"] is RandomTokens


def test_fine_tuning_takes_the_settings_of_each_kind(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("finetune", "task_options"):  # they read the settings of all kinds
        monkeypatch.delitem(sys.modules, f"bertkit.cli.{module}", raising=False)
    rows = [f"{'good' if i % 2 else 'bad'} thing {i % 7},{'yes' if i % 2 else 'no'}" for i in range(12)]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "own.toml").write_text('num_epochs = 1\n[training]\noptimizer = "lion"\nfaster = 0.5\nslower = 0.7\n')
    common = ["finetune", "sequence-classification", "--model", str(encoder), "--train", str(tmp_path / "train.csv"),
              "--recipe", str(tmp_path / "own.toml"), "--head", "drawn"]  # fmt: skip
    given = ["--slower", "0.8", "--schedule", "waves", "--num-waves", "5", "--weight-decay", "0.02"]
    assert run([*common, "--out", str(tmp_path / "out"), *given]) == 0, capsys.readouterr().err
    (start,) = events(tmp_path / "out/run", "start")
    expected = {"optimizer": "lion", "faster": 0.5, "slower": 0.8, "weight_decay": 0.02, "schedule": "waves",
                "num_waves": 5, "warmup": 0.1}  # fmt: skip
    assert {name: start["settings"][name] for name in expected} == expected
    assert "betas" not in start["settings"]

    assert run([*common, "--out", str(tmp_path / "other"), "--matrix-learning-rate", "0.1"]) == 2
    assert (
        "--matrix-learning-rate 0.1 is a setting of --optimizer muon, not of --optimizer lion"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "other").exists()
    assert run([*common, "--out", str(tmp_path / "other"), "--faster", "1.5"]) == 2
    assert "--faster 1.5: expected a share from 0 to below 1" in capsys.readouterr().err
    assert run(["finetune", "sequence-classification", "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "With --optimizer lion: Decay rate of the average in the update. [default: 0.9]" in printed
    assert "With --schedule waves: Number of waves." in printed and "With --optimizer muon: Peak learning" in printed


def test_pre_training_has_the_options_of_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for module in ("recipes", "pretrain", "task_options"):
        monkeypatch.delitem(sys.modules, f"bertkit.cli.{module}", raising=False)
    corpus, changes = write_corpus(tmp_path / "corpus.txt"), [one for one in TINY if "optimizer" not in one]
    options = ["--optimizer", "lion", "--slower", "0.8", "--warmup", "0.2", "--batch-size", "8", "--num-steps", "3"]
    arguments = ["pretrain", "--corpus", str(corpus), "--recipe", "bert-minutes", "--out", str(tmp_path / "run")]
    assert run([*arguments, *options, "--set", *changes]) == 0, capsys.readouterr().err
    recipe = json.loads((tmp_path / "run/recipe.json").read_text())["recipe"]["training"]
    assert (recipe["optimizer"], recipe["slower"], recipe["faster"]) == ("lion", 0.8, 0.9)
    assert (recipe["warmup"], recipe["batch_size"], recipe["num_steps"]) == (0.2, 8, 3)
    assert run([*arguments, "--resume", "--optimizer", "adamw", "--slower", "0.8"]) == 2
    assert (
        "--slower 0.8 is a setting of --optimizer lion, not of --optimizer adamw: omit one" in capsys.readouterr().err
    )


def test_another_kind_keeps_the_settings_that_it_has() -> None:
    settings = TrainingSettings.of(num_steps=1, optimizer="muon", betas=(0.8, 0.9), matrix_learning_rate=0.5)
    assert settings.optimizer == OPTIMIZERS["muon"](betas=(0.8, 0.9), matrix_learning_rate=0.5)
    other = settings.changed(optimizer="adamw", schedule="waves", weight_decay=0.2)
    assert other.optimizer == OPTIMIZERS["adamw"](0.2, (0.8, 0.9)) and other.schedule == Waves()
    assert other.changed(optimizer=LionSettings(0.3)).optimizer == LionSettings(0.3)
    recipe = read_recipe("bert-minutes", ["training.optimizer=lion", "training.slower=0.5"])
    assert recipe.training.optimizer == LionSettings(0.01, slower=0.5)
    assert "matrix_learning_rate" not in recipe.facts()["training"]
    with pytest.raises(UsageError, match=r"slower=0\.5 is a setting of optimizer=lion, not of optimizer=muon"):
        read_recipe("bert-minutes", ["training.slower=0.5"])
