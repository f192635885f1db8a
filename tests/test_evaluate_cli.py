"""``bertkit evaluate`` and ``bertkit predict`` for every kind of task: scores of what is predicted, labels by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from random_models import our_model

from bertkit import Model, load
from bertkit.checkpoint.checkpoint import Provenance, TrainedTask
from bertkit.cli import run
from bertkit.errors import UsageError
from bertkit.tasks import (
    MultiLabelClassification,
    MultipleChoice,
    OrdinalRegression,
    QuestionAnswering,
    Regression,
    SequenceClassification,
    TextTask,
    TokenClassification,
)
from bertkit.tokenizer.layout import Layout

SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 1,
    "max_position_embeddings": 24, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip
WORDS = "the of and cat dog sat mat un run walk talk blue red green one two three four".split()
COLOURS = ("blue", "green", "red")
TAGS = ("O", "B-PER", "I-PER")
NUM_ROWS = 31
TASKS: dict[str, TextTask] = {
    task.name: task
    for task in (
        SequenceClassification(COLOURS),
        MultiLabelClassification(COLOURS),
        Regression(),
        OrdinalRegression(levels=("bad", "fair", "good")),
        TokenClassification(TAGS),
        QuestionAnswering(),
        MultipleChoice(),
    )
}

pytestmark = pytest.mark.usefixtures("one_thread")


def model_of(task: TextTask) -> Model:
    """With random weights, said to be trained."""
    model = our_model(task.head, 3, len(task.label_names or "ab"), **SHAPE)
    model.checkpoint.label_names, model.checkpoint.problem_type = task.label_names, task.problem_type
    model.checkpoint.trained = TrainedTask(task, Layout(24, task.on_long))
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, task in TASKS.items():
        model_of(task).save(folder / name)
    return folder


def examples(task: str) -> list[dict[str, Any]]:
    draw = np.random.default_rng(7)
    found = []
    for number in range(NUM_ROWS):
        words = [str(word) for word in draw.choice(WORDS, int(draw.integers(4, 12)))]
        text, label = " ".join(words), int(draw.integers(3))
        found.append(
            {
                "sequence-classification": {"text": text, "label": COLOURS[label]},
                "multi-label-classification": {"text": text, "labels": list(COLOURS[:label])},
                "regression": {"text": text, "score": label / 2},
                "ordinal-regression": {"text": text, "label": ("bad", "fair", "good")[label]},
                "token-classification": {
                    "words": words,
                    "tags": ["O", "B-PER", *["I-PER"] * label, *["O"] * (len(words) - 2 - label)],
                },
                "question-answering": {
                    "question": words[0], "context": text, "answers": text[3 : 5 + label], "answer_start": 3,
                    "id": f"q{number}",
                },
                "multiple-choice": {"context": text, "choices": words[: 3 + number % 2], "label": label},
            }[task]
        )  # fmt: skip
    return found


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def call(capsys, *arguments: str) -> tuple[int, list[dict], str]:
    code = run(list(arguments))
    captured = capsys.readouterr()
    return code, [json.loads(line) for line in captured.out.splitlines()], captured.err


def scores(task: str, rows: list[dict], found: list[dict]) -> dict[str, float]:
    """Metrics of what was predicted, by other code."""
    match task:
        case "sequence-classification" | "ordinal-regression" | "multiple-choice":
            name = "choice" if task == "multiple-choice" else "label"
            return {"accuracy": sklearn.metrics.accuracy_score([r["label"] for r in rows], [f[name] for f in found])}
        case "multi-label-classification":
            true, predicted = (
                [[name in one["labels"] for name in COLOURS] for one in several] for several in (rows, found)
            )
            return {"micro_f1": sklearn.metrics.f1_score(np.array(true), np.array(predicted), average="micro")}
        case "regression":
            return {"pearson": np.corrcoef([r["score"] for r in rows], [f["score"] for f in found])[0, 1]}
        case "token-classification":
            tags = [tag for row in rows for tag in row["tags"]]
            return {"accuracy": sklearn.metrics.accuracy_score(tags, [tag for one in found for tag in one["labels"]])}
        case _:
            right = [row["answers"].split() == one["answer"]["text"].split()
                     for row, one in zip(rows, found, strict=True)]  # fmt: skip
            return {"exact_match": float(np.mean(right))}


KEYS = {
    "sequence-classification": ["text", "label", "probabilities"],
    "multi-label-classification": ["text", "labels", "probabilities"],
    "regression": ["text", "score"],
    "ordinal-regression": ["text", "label", "score"],
    "token-classification": ["text", "words", "labels", "probabilities", "entities"],
    "question-answering": [
        "id", "question", "answer", "candidates", "no_answer_probability", "no_answer_margin"],
    "multiple-choice": ["context", "choices", "choice", "text", "probabilities"],
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_predicted_and_scored(models: Path, tmp_path: Path, capsys, task: str) -> None:
    rows, model = examples(task), str(models / task)
    data = write(tmp_path / "data.jsonl", rows)
    code, found, error = call(capsys, "predict", "--model", model, "--input", data)
    assert code == 0 and len(found) == NUM_ROWS, error
    assert all(list(one) == KEYS[task] for one in found)
    code, (result,), error = call(capsys, "evaluate", "--model", model, "--data", data)
    assert code == 0 and not error
    assert (result["task"], result["num_examples"], result["rows_set_aside"]) == (task, NUM_ROWS, 0)
    for name, value in scores(task, rows, found).items():
        assert result[name] == pytest.approx(value) and result[name] == result[name]
    turned = write(tmp_path / "turned.jsonl", rows[::-1])
    _, (again,), _ = call(capsys, "evaluate", "--model", model, "--data", turned)
    assert again == pytest.approx(result, rel=1e-4)


@pytest.mark.parametrize("task", ["sequence-classification", "multi-label-classification", "token-classification"])
def test_labels_are_matched_by_name(models: Path, tmp_path: Path, capsys, task: str) -> None:
    """The same model with its outputs in another order has the same scores."""
    data = write(tmp_path / "data.jsonl", examples(task))
    model, order = model_of(TASKS[task]), [2, 0, 1]
    names = tuple((model.checkpoint.label_names or ())[place] for place in order)
    with torch.no_grad():
        for parameter in model.network.heads[TASKS[task].head].parameters():
            parameter.copy_(parameter[order])
    model.checkpoint.label_names = names
    model.checkpoint.trained = TrainedTask(type(TASKS[task])(label_names=names), Layout(24, TASKS[task].on_long))
    model.save(tmp_path / "model")
    _, (expected,), _ = call(capsys, "evaluate", "--model", str(models / task), "--data", data)
    _, (found,), _ = call(capsys, "evaluate", "--model", str(tmp_path / "model"), "--data", data)
    # of two labels the F1 is that of the second, hence three here; Matthews and macro F1 know no order
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("task, changes, names", [
    ("sequence-classification", {"label": "pink"}, "blue, green, red"),
    ("multi-label-classification", {"labels": ["red", "pink"]}, "blue, green, red"),
    ("ordinal-regression", {"label": "pink"}, "bad, fair, good"),
    ("token-classification", {"words": ["Ada"], "tags": ["B-pink"]}, "O, B-PER, I-PER"),
])  # fmt: skip
def test_labels_that_the_model_does_not_know(
    models: Path, tmp_path: Path, capsys, task: str, changes: dict, names: str
) -> None:
    rows = examples(task)
    good = write(tmp_path / "good.jsonl", [*rows[:5], *rows[6:]])
    rows[5] |= changes
    data = write(tmp_path / "data.jsonl", rows)
    arguments = ["evaluate", "--model", str(models / task)]
    code, found, error = call(capsys, *arguments, "--data", data)
    assert code == 2 and not found and len(error.splitlines()) == 1
    for part in ("data.jsonl, line 6", "pink", names):
        assert part in error
    code, (result,), error = call(capsys, *arguments, "--data", data, "--skip-bad")
    assert code == 0 and result["rows_set_aside"] == 1 and "line 6" in error
    _, (expected,), _ = call(capsys, *arguments, "--data", good)
    assert result == pytest.approx(expected | {"rows_set_aside": 1})


def test_heads_that_were_never_trained_refuse(tmp_path: Path, capsys) -> None:
    model = model_of(TASKS["sequence-classification"])
    name = next(name for name in model.checkpoint.provenance if name.startswith("classifier"))
    model.checkpoint.provenance[name] = Provenance("initialised")
    model.save(tmp_path / "model")
    data = write(tmp_path / "data.jsonl", examples("sequence-classification"))
    for arguments in (["evaluate", "--data", data], ["predict", "--input", data]):
        code, found, error = call(capsys, *arguments, "--model", str(tmp_path / "model"))
        assert code == 2 and not found and "was never trained" in error


def test_arguments_that_do_not_go_together(models: Path, tmp_path: Path, capsys) -> None:
    model = str(models / "regression")
    data = write(tmp_path / "data.jsonl", examples("regression"))
    other = write(tmp_path / "other.jsonl", [{"text": "a", "label": "b"}])
    long = write(tmp_path / "long.jsonl", [{"text": "cat " * 40, "score": 1}] * 3)
    for arguments, message in (
        ([], "one of --data"), (["--data", data, "--suite", data], "one of --data"),
        (["--data", data], "needs --model"), (["--data", data, "--model", model, "--limit", "3"], "go with --suite"),
        (["--suite", data, "--model", model, "--skip-bad"], "go with --data"),
        (["--data", other, "--model", model], "line 1 has the target 'b'"),
        (["--data", data, "--model", model, "--columns", "label=stars"], "no column 'stars'"),
    ):  # fmt: skip
        code, found, error = call(capsys, "evaluate", *arguments)
        assert code == 2 and not found and message in error, (arguments, error)
    code, _, error = call(capsys, "evaluate", "--data", long, "--model", model)
    assert code == 0 and "3 rows were longer than the model reads and lost 54 tokens" in error


def test_a_model_that_always_answers_may_be_told_not_to(models: Path, tmp_path: Path, capsys) -> None:
    """A published model of SQuAD 2.0 does not say that it is one."""
    rows = examples("question-answering")
    for row in rows[::3]:
        row |= {"answers": "", "answer_start": None}
    base = ["--model", str(models / "question-answering")]
    data = write(tmp_path / "data.jsonl", rows)
    code, (plain,), error = call(capsys, "evaluate", *base, "--data", data)
    assert code == 0 and plain["unanswerable_accuracy"] == 0 and "--no-answer-threshold 0" in error
    _, (first,), error = call(capsys, "evaluate", *base, "--data", data, "--no-answer-threshold", "0")
    assert not error and first["best_f1"] >= max(first["f1"], plain["f1"])
    tuned = str(first["best_f1_threshold"])
    _, (best,), _ = call(capsys, "evaluate", *base, "--data", data, "--no-answer-threshold", tuned)
    assert best["f1"] == pytest.approx(first["best_f1"])
    for threshold, number in (("-1000", NUM_ROWS), ("1000", 0)):
        _, found, _ = call(capsys, "predict", *base, "--input", data, "--no-answer-threshold", threshold)
        assert sum(row["answer"] is None for row in found) == number
    model = load(models / "question-answering")
    model.change_task(no_answer=True, no_answer_threshold=-1000.0)
    model.save(tmp_path / "told")
    assert load(tmp_path / "told").predict([("un", "a cat")])[0].answer is None
    for settings, message in (
        ({"levels": 3}, "no setting 'levels'"),
        ({"no_answer_threshold": float("nan")}, "finite"),
    ):
        with pytest.raises(UsageError, match=message):
            model.change_task(**settings)
    for arguments, message in (
        (["evaluate", "--model", str(models / "regression"), "--data", data], "regression has no setting 'no_answer'"),
        (["evaluate", "--model", "any", "--suite", data], "go with --data"),
    ):
        assert message in call(capsys, *arguments, "--no-answer-threshold", "0")[2]
