"""Checks of training data: rare labels, repeated texts, likely label errors."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from examples_of_tasks import call
from test_fitted_head import labeled, sentence_encoder, texts

from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.finetuning.cross_validation import check_training_data
from bertkit.tasks import ChoiceQuestion, TextExample, TokenClassification

assert sentence_encoder  # a fixture

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.full
def test_swapped_labels_and_copies_are_reported(sentence_encoder: Path) -> None:
    words = {"cat": "cat cat cat", "dog": "dog dog dog"}
    rows = [
        TextExample(f"{words[label]} {text}", label=label, location=f"line {2 * number + index}")
        for number, text in enumerate(texts(40, seed=8))
        for index, label in enumerate(words)
    ]
    wrong = {4, 33, 61}
    rows = [
        replace(row, label="dog" if row.label == "cat" else "cat") if index in wrong else row
        for index, row in enumerate(rows)
    ]
    copies = [replace(rows[10], location="line 80"), replace(rows[11], label="cat", location="line 81")]
    checked = check_training_data(str(sentence_encoder), "sequence-classification", [*rows, *copies])
    assert checked.num_examples == 82 and sum(checked.counts.values()) == 82
    assert checked.num_repeated >= 2 and checked.num_contradicting >= 2
    assert {"line 11", "line 81"} <= {location for one in checked.repeated[:1] for location in one.locations}
    shown = {one.location for one in checked.label_errors.shown[:5]}
    assert {f"line {index}" for index in wrong} <= shown | {"line 81"}
    assert checked.scores["accuracy"].value > 0.9
    assert any("another label" in sentence for _, sentence in checked.findings())


@pytest.mark.full
def test_tags_and_refusals(sentence_encoder: Path) -> None:
    tagged = [TokenClassification.example(text.split(), ["X" if len(word) > 3 else "Y" for word in text.split()])
              for text in texts(40)]  # fmt: skip
    checked = check_training_data(str(sentence_encoder), "token-classification", tagged)
    assert checked.counts == {} and checked.label_errors.num_judged == sum(len(one.tags or ()) for one in tagged)
    with pytest.raises(DataError, match="there are 9 rows: expected at least 10"):
        check_training_data(str(sentence_encoder), "sequence-classification", labeled(9))
    with pytest.raises(UsageError, match="task 'multiple-choice': expected one of sequence-classification, few"):
        check_training_data(str(sentence_encoder), "multiple-choice", [ChoiceQuestion("a", ("b", "c"), 0)] * 2)


def test_a_part_of_many_rows_is_compared(sentence_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.finetuning.fitted_head.MOST_ROWS", 20)
    checked = check_training_data(str(sentence_encoder), "sequence-classification", labeled(60))
    assert (checked.num_compared, checked.num_examples, checked.label_errors.num_judged) == (20, 60, 20)
    assert any(sentence.startswith("Labels were compared with predictions in 20 of 60 rows")
               for _, sentence in checked.findings())  # fmt: skip


@pytest.mark.full
def test_levels_that_are_names(sentence_encoder: Path, tmp_path: Path, capsys) -> None:
    rows = [{"text": text, "label": ("low", "medium", "high")[number % 3]} for number, text in enumerate(texts(30))]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["check", "ordinal-regression", "--train", str(tmp_path / "train.jsonl"), "--model",
                 str(sentence_encoder)]  # fmt: skip
    code, (result,), error = call(capsys, *arguments, "--levels", "low", "medium", "high")
    assert code == 0 and result["num_labels"] == 3 and "frozen_spearman" in result, error
    code, _, error = call(capsys, *arguments, "--levels", "low", "high")
    assert code == 2 and "medium" in error
    arguments[1] = "sequence-classification"
    code, _, error = call(capsys, *arguments, "--levels", "low", "medium", "high")
    assert code == 2 and "--levels is an option of ordinal-regression" in error


@pytest.mark.full
def test_command(sentence_encoder: Path, tmp_path: Path, capsys) -> None:
    rare = [TextExample(text, label="rare") for text in ("a dog", "one dog")]
    rows = "".join(f"{one.text},{one.label}\n" for one in [*labeled(60), *rare])
    (tmp_path / "train.csv").write_text("text,label\n" + rows)
    page = tmp_path / "check.html"
    arguments = ["check", "sequence-classification", "--train", str(tmp_path / "train.csv"), "--model",
                 str(sentence_encoder)]  # fmt: skip
    code, (result,), error = call(capsys, *arguments, "--report", str(page))
    assert code == 0 and result["num_examples"] == 62 and result["num_labels"] == 4, error
    assert "1 of 4 labels have fewer than 5 rows" in error
    assert json.loads(page.with_suffix(".json").read_text())["num_examples"] == 62
    assert "Likely label errors" in page.read_text() or not result["num_likely_label_errors"]
    assert call(capsys, *arguments, "--report", str(tmp_path / "check.pdf"))[0] == 2


def test_rows_whose_label_no_other_row_has_are_counted(sentence_encoder: Path) -> None:
    rows = [*labeled(30), TextExample("a cat", label="alone"), TextExample("a dog", label="single")]
    checked = check_training_data(str(sentence_encoder), "sequence-classification", rows)
    assert checked.num_alone == 2 and checked.num_examples == 32 and checked.counts["alone"] == 1
    assert checked.num_labels == len(checked.counts) and checked.label_errors.num_judged == 30
    assert any(sentence.startswith("2 rows have a label that no other row has") for _, sentence in checked.findings())
    with pytest.raises(DataError, match="12 examples have 12 different labels"):
        check_training_data(
            str(sentence_encoder), "sequence-classification",
            [TextExample("a cat", label=str(number)) for number in range(12)],
        )  # fmt: skip


def test_labels_spelled_in_several_ways_and_rows_without_a_report_are_named(
    sentence_encoder: Path, tmp_path: Path, capsys
) -> None:
    names = ["Praise", "praise", "blame"]
    rows = "".join(f"{one.text} {index // 2},{names[index % 3]}\n" for index, one in enumerate(labeled(30)))
    (tmp_path / "train.csv").write_text(f"text,label\n{rows}twice,blame\nTwice,blame\n")
    arguments = ["check", "sequence-classification", "--train", str(tmp_path / "train.csv"), "--model",
                 str(sentence_encoder)]  # fmt: skip
    code, _, error = call(capsys, *arguments)
    assert code == 0 and "Labels are spelled in several ways ('Praise' and 'praise')" in error
    assert "--report FILE.html lists these rows" in error


def test_help_lists_tasks_that_can_be_checked(capsys) -> None:
    assert run(["check", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "token-classification" in shown and "question-answering" not in shown and "alignment" not in shown
    assert run(["check", "question-answering", "--train", "absent.json"]) == 2
    assert (
        'Unknown command "question-answering". Available commands: sequence-classification' in capsys.readouterr().err
    )
