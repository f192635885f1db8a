"""`evaluate` accepts the inputs of `predict`, with labels as in estimators and readers."""

import io
from typing import Any

import numpy as np
import pytest
from examples_of_tasks import TASKS, examples, model_of, write
from tqdm import tqdm

from bertkit import gather_evidence
from bertkit.errors import DataError, UsageError
from bertkit.files.labeled_tables import id_of
from bertkit.tasks import FewShotClassification, SequenceClassification, read_examples


def input_and_label(task: str, row: dict[str, Any]) -> tuple[Any, Any]:
    """A row of a file as a Python value."""
    match task:
        case "regression":
            return row["text"], row["score"]
        case "multi-label-classification":
            return row["text"], row["labels"]
        case "token-classification":
            return row["words"], row["tags"]
        case "question-answering":
            return (row["question"], row["context"]), (row["answers"], row["answer_start"])
        case "multiple-choice":
            return (row["context"], row["choices"]), row["label"]
    return row["text"], row["label"]


@pytest.mark.parametrize("task", TASKS)
def test_labeled_pairs_equal_file_rows(task, tmp_path):
    rows, model = examples(task), model_of(TASKS[task])
    pairs = [input_and_label(task, row) for row in rows]
    read = list(read_examples(task, write(tmp_path / "rows.jsonl", rows)))
    assert model.evaluate(pairs) == model.evaluate(read)
    assert model.evaluate(iter([list(pair) for pair in pairs])) == model.evaluate(read)
    assert model.predict([item for item, _ in pairs]) == model.predict(read)


@pytest.mark.parametrize("task", TASKS)
def test_inputs_without_labels_raise(task):
    model = model_of(TASKS[task])
    for item in ("a cat", 3, ("a cat", "red", "blue")):
        with pytest.raises(UsageError, match=r"a labeled example is .*: expected a pair \(input, label\), .* or a \w+"):
            model.evaluate([item])
    item, _ = input_and_label(task, examples(task)[0])
    with pytest.raises(DataError, match=r"expected|has no"):
        model.evaluate([(item, None)])


def test_pairs_of_texts_and_labels_that_are_numbers():
    """As the estimators and the readers take them: a number is the name of a class."""
    model = model_of(SequenceClassification(("0", "1", "2")))
    texts, labels = [("a cat", "the dog"), ("red", "blue")], [1, np.int64(2)]
    expected = model.evaluate([(text, str(label)) for text, label in zip(texts, labels, strict=True)])
    assert model.evaluate(zip(texts, labels, strict=True)) == expected
    with pytest.raises(DataError, match=r"'a cat': the label '3' is not one of the model's \(0, 1, 2\)"):
        model.evaluate([(texts[0], 3)])
    assert FewShotClassification(("False", "True")).labeled_example(("a cat", True)).label == "True"


def test_answer_before_its_context_raises():
    model = model_of(TASKS["question-answering"])
    with pytest.raises(DataError, match="'cat' is not at -3 in its context"):
        model.evaluate([(("un", "a cat"), ("cat", -3))])


@pytest.mark.full
def test_evidence_accepts_the_same_examples(tmp_path):
    task = "sequence-classification"
    rows, model = examples(task), model_of(TASKS[task])
    pairs = [input_and_label(task, row) for row in rows]
    read = list(read_examples(task, write(tmp_path / "rows.jsonl", rows)))
    expected = gather_evidence(model, read[:20], read[20:])
    results = gather_evidence(model, pairs[:20], pairs[20:])
    assert results.scores == expected.scores and results.leakage == expected.leakage
    with pytest.raises(UsageError, match="a labeled example is 'a cat'"):
        gather_evidence(model, ["a cat"])


@pytest.mark.parametrize("method", ["predict", "evaluate"])
def test_progress_bar_shows_the_total(monkeypatch, method):
    shown = io.StringIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr(
        "tqdm.tqdm",
        lambda *given, **options: tqdm(
            *given, **options | {"disable": False, "delay": 0, "mininterval": 0, "file": shown}
        ),
    )
    given = {"predict": ["a cat", "the dog"], "evaluate": [("a cat", "red"), ("the dog", "blue")]}[method]
    getattr(model_of(TASKS["sequence-classification"]), method)(given)
    assert "predicting: 100%" in shown.getvalue() and "2/2" in shown.getvalue()


def test_ids_can_be_written_to_a_file() -> None:
    assert [id_of({"id": value}) for value in ("a", 3, "\ud800b", None)] == ["a", "3", "?b", ""]
