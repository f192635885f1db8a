"""``bertkit evaluate`` and ``bertkit predict`` for every kind of task: scores of predictions, labels by name."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
from examples_of_tasks import COLOURS, NUM_ROWS, TASKS, call, examples, model_of, write

from bertkit import load
from bertkit.checkpoint.checkpoint import Provenance, TrainedTask
from bertkit.errors import UsageError
from bertkit.tokenizer.layout import Layout

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, task in TASKS.items():
        model_of(task).save(folder / name)
    return folder


def scores(task: str, rows: list[dict], predictions: list[dict]) -> dict[str, float]:
    """Metrics of predictions, by independent code."""
    match task:
        case "sequence-classification" | "ordinal-regression" | "multiple-choice":
            name = "choice" if task == "multiple-choice" else "label"
            return {
                "accuracy": sklearn.metrics.accuracy_score([r["label"] for r in rows], [f[name] for f in predictions])
            }
        case "multi-label-classification":
            true, predicted = (
                [[name in one["labels"] for name in COLOURS] for one in several] for several in (rows, predictions)
            )
            return {"micro_f1": sklearn.metrics.f1_score(np.array(true), np.array(predicted), average="micro")}
        case "regression":
            return {"pearson": np.corrcoef([r["score"] for r in rows], [f["score"] for f in predictions])[0, 1]}
        case "token-classification":
            tags = [tag for row in rows for tag in row["tags"]]
            return {
                "accuracy": sklearn.metrics.accuracy_score(tags, [tag for one in predictions for tag in one["labels"]])
            }
        case _:
            right = [
                words(row["answers"]) == words(one["answer"]["text"])
                for row, one in zip(rows, predictions, strict=True)
            ]
            return {"exact_match": float(np.mean(right))}


def words(answer: str) -> list[str]:
    return [word for word in answer.split() if word not in ("a", "an", "the")]


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


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_predicted_and_scored(models: Path, tmp_path: Path, capsys, task: str) -> None:
    rows, model = examples(task), str(models / task)
    data = write(tmp_path / "data.jsonl", rows)
    code, results, error = call(capsys, "predict", "--model", model, "--input", data)
    assert code == 0 and len(results) == NUM_ROWS, error
    assert all(list(one) == KEYS[task] for one in results)
    code, (result,), error = call(capsys, "evaluate", "--model", model, "--data", data)
    guessed = f"{data}: scheme BIO, 1 type: PER\n" if task == "token-classification" else ""
    assert code == 0 and error == guessed
    assert (result.pop("task"), result["num_examples"], result["rows_skipped"]) == (task, NUM_ROWS, 0)
    for name, value in scores(task, rows, results).items():
        assert result[name] == pytest.approx(value) and result[name] == result[name]
    turned = write(tmp_path / "turned.jsonl", rows[::-1])
    _, (again,), _ = call(capsys, "evaluate", "--model", model, "--data", turned)
    assert again.pop("task") == task and again == pytest.approx(result, rel=1e-4)


@pytest.mark.parametrize("task", ["sequence-classification", "multi-label-classification", "token-classification"])
def test_labels_are_matched_by_name(models: Path, tmp_path: Path, capsys, task: str) -> None:
    """The same model with its outputs in another order has the same scores."""
    data = write(tmp_path / "data.jsonl", examples(task))
    model, order = model_of(TASKS[task]), [2, 0, 1]
    names = tuple((model.checkpoint.label_names or ())[index] for index in order)
    with torch.no_grad():
        for parameter in model.network.heads[TASKS[task].head].parameters():
            parameter.copy_(parameter[order])
    model.checkpoint.label_names = names
    model.checkpoint.trained = TrainedTask(type(TASKS[task])(label_names=names), Layout(24, TASKS[task].on_long))
    model.save(tmp_path / "model")
    _, (expected,), _ = call(capsys, "evaluate", "--model", str(models / task), "--data", data)
    _, (results,), _ = call(capsys, "evaluate", "--model", str(tmp_path / "model"), "--data", data)
    assert results.pop("task") == expected.pop("task") == task
    assert results == pytest.approx(expected, rel=1e-4)


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
    code, results, error = call(capsys, *arguments, "--data", data)
    assert code == 2 and not results and len(error.splitlines()) == 1
    for part in ("data.jsonl, line 6", "pink", names):
        assert part in error
    code, (result,), error = call(capsys, *arguments, "--data", data, "--skip-bad")
    assert code == 0 and result["rows_skipped"] == 1 and "line 6" in error
    _, (expected,), _ = call(capsys, *arguments, "--data", good)
    assert result == pytest.approx(expected | {"rows_skipped": 1})


def test_untrained_heads_raise(tmp_path: Path, capsys) -> None:
    model = model_of(TASKS["sequence-classification"])
    name = next(name for name in model.checkpoint.provenance if name.startswith("classifier"))
    model.checkpoint.provenance[name] = Provenance("initialized")
    model.save(tmp_path / "model")
    data = write(tmp_path / "data.jsonl", examples("sequence-classification"))
    for arguments in (["evaluate", "--data", data], ["predict", "--input", data]):
        code, results, error = call(capsys, *arguments, "--model", str(tmp_path / "model"))
        assert code == 2 and not results and "was never trained" in error


def test_incompatible_arguments(models: Path, tmp_path: Path, capsys) -> None:
    model = str(models / "regression")
    data = write(tmp_path / "data.jsonl", examples("regression"))
    other = write(tmp_path / "other.jsonl", [{"text": "a", "label": "b"}])
    long = write(tmp_path / "long.jsonl", [{"text": "cat " * 40, "score": 1}] * 3)
    for arguments, message in (
        (["--model", model], "evaluate requires --data"), (["--data", data], "evaluate requires --model."),
        (["--model"], "--model requires an argument"),
        (["--data", data, "--model", model, "--limit", "3"], "Unknown option: --limit"),
        (["--data", data, "--model", model, "--against", model], "Unknown option: --against"),
        (["grammar", data, "--model", model, "--skip-bad"], "Unknown option: --skip-bad"),
        (["similarity", data, "--run-file", "x"], "--run-file is an option of retrieval, not of similarity: omit it"),
        (["--data", other, "--model", model], "line 1 has the target 'b'"),
        (["--data", data, "--model", model, "--columns", "label=stars"], "no column 'stars'"),
    ):  # fmt: skip
        code, results, error = call(capsys, "evaluate", *arguments)
        assert code == 2 and not results and message in error, (arguments, error)
    code, _, error = call(capsys, "evaluate", long, "--model", model)
    assert code == 0 and "3 rows exceeded the model's maximum length and lost 54 tokens" in error


@pytest.mark.full
def test_no_answer_threshold_can_be_set_on_a_published_model(models: Path, tmp_path: Path, capsys) -> None:
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
        _, results, _ = call(capsys, "predict", *base, "--input", data, "--no-answer-threshold", threshold)
        assert sum(row["answer"] is None for row in results) == number
    model = load(models / "question-answering")
    model.change_task(no_answer=True, no_answer_threshold=-1000.0)
    model.save(tmp_path / "changed")
    assert load(tmp_path / "changed").predict([("un", "a cat")])[0].answer is None
    for settings, message in (
        ({"levels": 3}, "no setting 'levels'"),
        ({"no_answer_threshold": float("nan")}, "finite"),
    ):
        with pytest.raises(UsageError, match=message):
            model.change_task(**settings)
    for arguments, message in (
        (
            ["evaluate", "--model", str(models / "regression"), "--data", data],
            "regression has no setting 'no_answer_threshold'",
        ),
    ):
        assert message in call(capsys, *arguments, "--no-answer-threshold", "0")[2]


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("task", [name for name, task in TASKS.items() if task.known_labels or name == "regression"])
def test_report_has_the_same_metrics_with_their_intervals(models: Path, tmp_path: Path, capsys, task: str) -> None:
    data, page = write(tmp_path / "data.jsonl", examples(task)), tmp_path / "report.html"
    base = ["evaluate", "--model", str(models / task), "--data", data]
    _, (expected,), _ = call(capsys, *base)
    code, (results,), error = call(capsys, *base, "--report", str(page), "--train", data)
    assert code == 0 and "Also in the training data: " in error
    intervals = results.pop("intervals")
    assert results.pop("task") == expected.pop("task")
    for name, value in results.items():
        assert value == pytest.approx(expected[name], rel=1e-4)
        low, high = intervals.get(name, (value, value))
        assert low <= value <= high
    assert set(intervals) >= set(expected) - {"loss", "num_examples", "rows_skipped"}
    assert f"{task} on data.jsonl" in page.read_text()
    assert json.loads(page.with_suffix(".json").read_text())["leakage"]["num_exact"] == NUM_ROWS


@pytest.mark.full
def test_models_trained_with_other_seeds(models: Path, tmp_path: Path, capsys) -> None:
    task = TASKS["sequence-classification"]
    shutil.copytree(models / task.name, tmp_path / "model")
    data, page = write(tmp_path / "data.jsonl", examples(task.name)), tmp_path / "report.html"
    other = model_of(task)
    with torch.no_grad():
        for parameter in other.network.heads[task.head].parameters():
            parameter.neg_()
    other.save(tmp_path / "other")
    model, again = str(tmp_path / "model"), str(tmp_path / "other")
    values = [call(capsys, "evaluate", "--model", one, "--data", data)[1][0]["accuracy"] for one in (model, again)]
    assert values[0] != values[1]
    base = ["evaluate", "--model", model, "--data", data]
    code, _, error = call(
        capsys,
        *base,
        "--report",
        str(page),
        "--card",
        "--seeds",
        again,
        model,
    )
    assert code == 0, error
    content, card = json.loads(page.with_suffix(".json").read_text()), (tmp_path / "model" / "README.md").read_text()
    assert content["seeds"]["names"] == ["this model", again, model]
    assert content["seeds"]["scores"]["accuracy"] == pytest.approx([*values, values[0]])
    spread = content["seeds"]["spread"]["accuracy"]
    numbers = [spread[name] for name in ("mean", "standard_deviation", "lowest", "highest")]
    assert "| accuracy | " + " | ".join(f"{number:.4g}" for number in numbers) in card
    for arguments, message in (
        (["--seeds", again], "require --report or --card"),
        (["--card", "--seeds", str(tmp_path / "none")], "no model"),
        (["--card", "--seeds", str(models / "regression")], "pass models of one task"),
    ):  # fmt: skip
        code, results, error = call(capsys, *base, *arguments)
        assert code == 2 and not results and message in error and len(error.splitlines()) == 1, error
    answers = ["evaluate", "--model", str(models / "question-answering"), "--data",
               write(tmp_path / "questions.jsonl", examples("question-answering"))]  # fmt: skip
    assert "evidence requires a task with classes" in call(capsys, *answers, "--card", "--seeds", model)[2]


@pytest.mark.full
def test_skipped_training_rows_are_not_counted_for_the_test_file(models: Path, tmp_path: Path, capsys) -> None:
    rows, task = examples("sequence-classification"), "sequence-classification"
    data = write(tmp_path / "data.jsonl", [*rows, {"text": "a cat", "label": "pink"}])
    train = write(tmp_path / "train.jsonl", [{"text": "a dog", "label": "pink"}] * 2 + rows)
    load(models / task).save(tmp_path / "model")
    code, (results,), error = call(
        capsys, "evaluate", "--model", str(tmp_path / "model"), "--data", data, "--train", train, "--skip-bad",
        "--report", str(tmp_path / "report.html"), "--card",
    )  # fmt: skip
    assert code == 0 and (results["num_examples"], results["rows_skipped"]) == (NUM_ROWS, 1), error
    assert "| rows not used | 1 |" in (tmp_path / "model" / "README.md").read_text()
    assert "1 rows were skipped" in error and "data.jsonl, line 32" in error
    assert "2 rows were skipped" in error and "train.jsonl, line 2" in error


def test_invalid_report_requests_raise(models: Path, tmp_path: Path, capsys) -> None:
    data = write(tmp_path / "data.jsonl", examples("question-answering"))
    base = ["evaluate", "--model", str(models / "question-answering"), "--data", data]
    for arguments, message in (
        (["--report", str(tmp_path / "out.html")], "evidence requires a task with classes"),
        (["--report", str(tmp_path / "no" / "out.html")], "does not exist"), (["--train", data], "require --report"),
    ):  # fmt: skip
        code, results, error = call(capsys, *base, *arguments)
        assert code == 2 and not results and message in error


def test_pairs_with_one_text_raise(encoder: Path, tmp_path: Path, capsys) -> None:
    data = write(tmp_path / "data.jsonl", [{"text": "the cat"}, {"text": "a dog"}])
    code, _, error = call(capsys, "evaluate", "similarity", data, "--model", str(encoder))
    assert code == 2 and "data.jsonl, line 1: has no second text" in error
