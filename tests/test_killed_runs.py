"""Runs of every recipe that are killed at random moments end with the bits of an uninterrupted run."""

from pathlib import Path

import numpy as np
import pytest
from test_finetuning_ranks import WORDS, classifier, write
from test_sequence_training import small_model

from bertkit.cli import run
from bertkit.cli.killed_runs import verify_resume


def pairs(path: Path, names: str, number: int = 60) -> str:
    """Pairs of texts, the second of them in reverse order."""
    draw, rows = np.random.default_rng(3), []
    for _ in range(number):
        words = draw.choice(WORDS, 4).tolist()
        rows.append(f"{' '.join(words)} {len(rows)},{' '.join(reversed(words))}\n")
    path.write_text(f"{names}\n{''.join(rows)}")
    return str(path)


def recipe(name: str, encoder: Path, folder: Path) -> list[str]:
    """A command of 40 steps that saves every 4."""
    match name:
        case "classification":
            given = ["finetune", "sequence-classification", "--train", write(folder / "a.csv", 40, 1)]
        case "sentences":
            given = ["finetune", "similarity", "--train", pairs(folder / "a.csv", "text_a,text_b")]
        case "seq2seq":
            model = str(small_model(folder / "start"))
            (folder / "a.csv").write_text("source,target\n" + "012,210\n1201,1021\n" * 20)
            return ["finetune", name, "--train", str(folder / "a.csv"), "--model", model, *LENGTH]
        case _:
            teacher = ["--teacher", classifier(folder / "teacher"), "--layers", "2"]
            return ["distill", *teacher, "--train", write(folder / "a.csv", 40, 1), *LENGTH]
    return [*given, "--model", str(encoder), *LENGTH]


LENGTH = ["--num-steps", "40", "--save-every", "4", "--batch-size", "8", "--device", "cpu"]


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("name", ["classification", "sentences", "seq2seq", "distillation"])
def test_killed_run_of_every_recipe_ends_with_the_same_bits(
    name: str, num_ranks: int, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lines: list[str] = []
    check = verify_resume(
        recipe(name, encoder, tmp_path), tmp_path / "runs", num_kills=1, seed=1, log=lines.append, num_ranks=num_ranks
    )
    assert check.verdict == "exact", (check, lines)
    assert 0 < check.resumed_from_steps[0] <= check.killed_after_steps[0] < 40


def test_command_takes_any_command_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    def verify(arguments: object, folder: Path, **options: object) -> object:
        given.extend([arguments, options["num_ranks"]])
        raise SystemExit(0)

    monkeypatch.setattr("bertkit.cli.killed_runs.verify_resume", verify)
    with pytest.raises(SystemExit):
        run(
            [
                "verify-resume",
                "--processes",
                "2",
                "--",
                "finetune",
                "similarity",
                "--train",
                "a.csv",
                "--num-steps",
                "9",
            ]
        )
    assert given == [("finetune", "similarity", "--train", "a.csv", "--num-steps", "9"), 2]
