"""Training of a fine-tuned model continues with its head where the task and its labels are the same, and says so."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples_of_tasks import TASKS, call, examples, model_of, write

from bertkit import load
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import CrossEncoding, SequenceClassification, TextExample, TextSet, read_examples

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = FinetuningSettings.of(num_epochs=1, learning_rate=1e-9)
OPTIONS: dict[str, Any] = {"ordinal-regression": {"levels": ("bad", "fair", "good")}}


def rows_of(task: str, folder: Path) -> list[Any]:
    rows = examples(task)
    if task == "multiple-choice":
        rows = [{**row, "choices": ["cat", "dog", "sat"]} for row in rows]
    if task == "multi-label-classification":
        rows[0]["labels"] = rows[1]["labels"] = ["blue", "green", "red"]
    return list(read_examples(task, write(folder / "rows.jsonl", rows)))


def initial(source: Path, task: str, rows: list[Any], settings: FinetuningSettings = SETTINGS) -> tuple[Any, list[str]]:
    """The model that training starts from, and the lines of its log."""
    lines: list[str] = []
    run = Finetuning(source.with_name("out"), source, task, settings, OPTIONS.get(task, {}), log_line=lines.append)
    return run.new_model(rows), lines


def values(model: Any, rows: list[Any]) -> list[list[float]]:
    """Numbers of each prediction, by label where there are labels."""
    result = []
    for prediction in model.predict(rows):
        shares = getattr(prediction, "probabilities", None)
        if isinstance(shares, dict):
            result.append([shares[name] for name in sorted(shares)])
        else:
            result.append([float(value) for value in vars(prediction).values() if isinstance(value, float)])
    return result


@pytest.mark.parametrize("task", TASKS)
def test_a_head_of_the_same_task_and_labels_is_kept(task: str, tmp_path: Path) -> None:
    rows, kind = rows_of(task, tmp_path), TASKS[task]
    if kind.known_labels and task not in ("ordinal-regression", "token-classification"):
        kind = replace(kind, label_names=tuple(reversed(kind.label_names or ())))  # in another order
    stored = model_of(kind)
    stored.save(tmp_path / "stored")
    model, lines = initial(tmp_path / "stored", task, rows)
    assert len(lines) == 1 and f"was trained for {task}" in lines[0] and "--new-head replaces it" in lines[0]
    assert np.allclose(values(model, rows), values(stored, rows), atol=1e-5)
    assert model.trained.task.known_labels == TASKS[task].known_labels

    new, lines = initial(tmp_path / "stored", task, rows, SETTINGS.changed(new_head=True))
    assert not lines and new.trained.task.head not in new.checkpoint.trained_heads()


def test_other_labels_get_a_new_head_and_the_log_says_so(tmp_path: Path) -> None:
    model_of(TASKS["sequence-classification"]).save(tmp_path / "stored")  # blue, green, red
    rows = [TextExample(text, label=label) for text, label in (("a cat", "red"), ("a dog", "blue")) * 5]
    model, (line,) = initial(tmp_path / "stored", "sequence-classification", rows)
    assert model.trained.task.head not in model.checkpoint.trained_heads()
    assert "a new head for sequence-classification (blue, red) replaces" in line
    assert "for sequence-classification (blue, green, red): none of its rows is reused" in line
    rows = [replace(row, label=str(number)) for number, row in enumerate(rows)]
    _, (line,) = initial(tmp_path / "stored", "regression", rows)
    assert "a new head for regression replaces" in line
    assert initial(tmp_path / "stored", "few-shot-classification", [*rows[:4]] * 2)[1] == []  # another form of head


def test_a_head_over_vectors_of_texts_is_not_kept_for_pairs(encoder: Path, tmp_path: Path) -> None:
    rows = [TextExample(text, label=label) for text, label in (("a cat", "x"), ("the dog", "y")) * 10]
    Finetuning(tmp_path / "first", encoder, "sequence-classification", SETTINGS).start(rows)
    model, (line,) = initial(tmp_path / "first", "sequence-classification", rows)
    assert model.trained.task == SequenceClassification(("x", "y"), num_vectors=1) and "it is kept" in line
    pairs = [replace(row, pair="a mat") for row in rows]
    model, (line,) = initial(tmp_path / "first", "sequence-classification", pairs)
    assert model.trained.task.num_vectors == 2 and "for sequence-classification of pairs (x, y) replaces" in line
    drawn, lines = initial(tmp_path / "first", "sequence-classification", rows, SETTINGS.changed(head="drawn"))
    assert drawn.trained.task.num_vectors == 0 and not lines


def test_the_head_of_a_cross_encoder_is_replaced_if_asked(tmp_path: Path) -> None:
    model_of(CrossEncoding()).save(tmp_path / "stored")
    rows = [TextSet("a cat", ("the cat",), ("a dog",)), TextSet("a mat", ("the mat",), ("one two",))]
    model, (line,) = initial(tmp_path / "stored", "cross-encoder", rows)
    assert "was trained for cross-encoder, too" in line and model.checkpoint.trained_heads()
    assert not initial(tmp_path / "stored", "cross-encoder", rows, SETTINGS.changed(new_head=True))[
        0
    ].checkpoint.trained_heads()


def test_a_continued_run_starts_at_the_quality_of_its_model(encoder: Path, tmp_path: Path, capsys) -> None:
    train = write(tmp_path / "train.jsonl", examples("sequence-classification"))
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    common = ["finetune", "sequence-classification", "--train", train, "--dev", train, "--num-epochs", "3"]
    code, (result,), _ = call(capsys, *common, "--model", str(encoder), "--out", first, "--learning-rate", "0.02")
    assert code == 0
    code, (again,), log = call(capsys, *common, "--model", first, "--out", second, "--learning-rate", "1e-9")
    assert code == 0 and again["accuracy"] == result["accuracy"] and "it is kept (--new-head replaces it)" in log
    assert (
        "(kept)" in log
        and load(second).evaluate(rows_of("sequence-classification", tmp_path))["accuracy"] == result["accuracy"]
    )
