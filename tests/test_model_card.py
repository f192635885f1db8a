"""The model card: facts of the run, readable by the hub's library, and working code."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from examples_of_tasks import NUM_ROWS, TASKS, call, examples, model_of, write
from huggingface_hub import ModelCard
from random_models import vocabulary_tokens

from bertkit import BertConfig, Model, SequenceClassifier, Tokenizer, gather_evidence, load
from bertkit.locate import hub_name
from bertkit.reports.model_card import scores_section, with_section
from bertkit.reports.parts import markdown_table
from bertkit.tasks import SequenceClassification, TextExample

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("encoder") / "tiny"
    config = BertConfig(
        vocab_size=99, hidden_size=20, num_attention_heads=4, intermediate_size=44, num_hidden_layers=1,
        max_position_embeddings=24, initializer_range=0.1,
    )  # fmt: skip
    Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), seed=3).save(folder)
    return str(folder)


def rows_of(task: str) -> list[dict[str, Any]]:
    rows = examples(task)
    if task == "multiple-choice":  # as many choices for all
        return [row | {"choices": row["choices"][:3]} for row in rows]
    if task == "ordinal-regression":
        return [row | {"label": str(len(row["label"]))} for row in rows]
    return rows


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("task", TASKS)
def test_card_of_every_task(encoder: str, tmp_path: Path, capsys, monkeypatch, task: str) -> None:
    rows = rows_of(task)
    train, dev = write(tmp_path / "train.jsonl", rows), write(tmp_path / "dev.jsonl", rows[:20])
    out = tmp_path / "out"
    code, (result,), error = call(
        capsys, "finetune", task, "--model", encoder, "--train", train, "--dev", dev, "--out", str(out), "--num-epochs",
        "1", "--learning-rate", "0.002",
    )  # fmt: skip
    assert code == 0, error
    text = (out / "README.md").read_text()
    card = ModelCard(text).data
    (class_name,) = json.loads((out / "config.json").read_text())["architectures"]
    opened_by = "transformers" if hasattr(transformers, class_name) else "bertkit"
    assert card.library_name == opened_by and ("transformers opens it, too" in text) == (opened_by == "transformers")
    assert card.tags == ["bertkit"] and card.license is None
    assert card.base_model is None  # a folder is none that the hub knows
    assert card.pipeline_tag == (task if task in ("token-classification", "question-answering", "multiple-choice")
                                 else "text-classification")  # fmt: skip
    sums = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in (train, dev)]
    for fact in (
        f"# tiny, fine-tuned for {task}", "| file | train.jsonl | dev.jsonl |", f"| sha256 | {sums[0]} | {sums[1]} |",
        f"| examples | {NUM_ROWS} | 20 |", "| learning_rate | 0.002 |", "| base model | tiny |", "24 tokens",
    ):  # fmt: skip
        assert fact in text
    for name in load(out).trained.task.known_labels or ():
        assert f"`{name}`" in text
    for name in load(out).trained.metrics:
        assert f"| {name} | {result[name]:.6g} |" in text
    value, low, high = (float(number) for number in re.findall(
        r"^\| (?:accuracy|pearson|f1) \| (.*) \| (.*) to (.*) \|$", text, re.MULTILINE)[0])  # fmt: skip
    assert low <= value <= high
    monkeypatch.chdir(out)
    (code_block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code_block, "README.md", "exec"), {})
    assert "Prediction(" in capsys.readouterr().out
    load(out).save(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == text


@pytest.mark.full
def test_summary_of_truncated_and_skipped_text(encoder: str, tmp_path: Path, capsys) -> None:
    rows = [{"text": "the cat " * (20 if index == 1 else 2), "label": "xy"[index % 2]} for index in range(12)]
    train = write(tmp_path / "train.jsonl", [*rows, {"text": "", "label": "x"}, {"text": "a|b", "label": "p|q\nr"},
                                             {"text": "a", "label": "p|q\nr"}])  # fmt: skip
    code, _, error = call(
        capsys, "finetune", "sequence-classification", "--model", encoder, "--train", train, "--out",
        str(tmp_path / "out"), "--num-epochs", "1", "--skip-bad", "--class-weights", "balanced",
    )  # fmt: skip
    assert code == 0, error
    text = (tmp_path / "out" / "README.md").read_text()
    for fact in ("| texts cut | 1 |", "| tokens cut | 18 |", "1 rows could not be used", "`p\\|q r`", "class weights"):
        assert fact in text
    assert "## Scores" not in text and "dev" not in text


def test_several_training_files_are_named(encoder: str, tmp_path: Path, capsys) -> None:
    rows = rows_of("sequence-classification")
    files = [write(tmp_path / "a.jsonl", rows[:16]), write(tmp_path / "b.jsonl", rows[16:])]
    out = tmp_path / "out"
    code, _, error = call(capsys, "finetune", "sequence-classification", "--model", encoder, "--train", *files, "--out",
                          str(out), "--num-epochs", "1")  # fmt: skip
    assert code == 0, error
    sums = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in files]
    text = (out / "README.md").read_text()
    assert "| file | a.jsonl, b.jsonl |" in text and f"| sha256 | {sums[0]}, {sums[1]} |" in text


def test_other_lines_of_a_card_are_unchanged() -> None:
    card = "# A\n\none\u2028line, \x0c and \x85.\n"
    assert with_section(card, "B", "new") == f"{card}\n## B\n\nnew\n"


@pytest.mark.full
def test_evaluation_adds_a_section_when_asked(encoder: str, tmp_path: Path, capsys) -> None:
    texts = ["the cat", "the dog"] * 6
    SequenceClassifier(encoder, num_epochs=1).fit(texts, ["x", "y"] * 6).save(tmp_path / "model")
    path = tmp_path / "model" / "README.md"
    made = path.read_text()
    assert "# tiny, fine-tuned" in made and "| examples | 12 |" in made and "sha256" not in made
    data = write(tmp_path / "test.jsonl", [{"text": text, "label": "x"} for text in texts])
    base = ["evaluate", "--model", str(tmp_path / "model"), "--data", data]
    (tmp_path / "model" / "README.md").write_text(by_hand := made + "\nby hand\n")
    assert call(capsys, *base)[0] == 0 and path.read_text() == by_hand
    for _ in range(2):
        code, (result,), error = call(capsys, *base, "--card")
        assert code == 0 and "README.md" in error
        text = path.read_text()
        assert text.startswith(by_hand) and text.count("## Scores on test.jsonl") == 1
        assert f"| accuracy | {result['accuracy']:.6g} |" in text and "| examples | 12 |" in text[len(by_hand) :]
    assert "is not a folder" in call(capsys, "evaluate", "--model", "all-MiniLM-L6-v2", "--data", data, "--card")[2]


JUDGED = [name for name in TASKS if name not in ("question-answering", "multiple-choice")]


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("task", JUDGED)
def test_card_evidence_equals_the_report(tmp_path: Path, capsys, task: str) -> None:
    rows, page = examples(task), tmp_path / "report.html"
    model_of(TASKS[task]).save(tmp_path / "model")
    data, train = write(tmp_path / "test.jsonl", rows), write(tmp_path / "train.jsonl", rows[5:])
    base = ["evaluate", "--model", str(tmp_path / "model"), "--data", data, "--card"]
    code, (alone,), error = call(capsys, *base)
    assert code == 0 and alone["intervals"], error
    first = (tmp_path / "model" / "README.md").read_text()
    assert "### Length" in first and "| leakage | needs the examples" in first and "### Baseline" not in first
    assert call(capsys, *base, "--train", train, "--report", str(page))[0] == 0
    text, kept = (
        (tmp_path / "model" / "README.md").read_text(),
        json.loads(page.with_suffix(".json").read_text()),
    )
    headings = set(re.findall("^### (.*)$", text, re.MULTILINE))
    named = {
        "Labels": "labels", "Thresholds": "thresholds", "Calibration": "calibration", "Baseline": "baseline",
        "Leakage from training": "leakage", "Seeds": "seeds", "Confusions": "confusions",
    }  # fmt: skip
    assert headings == {"Length", "Learning curve", "Not included"} | {
        heading for heading, part in named.items() if kept[part]
    }

    def cells(*values: Any) -> str:
        return " | ".join(value if isinstance(value, str) else f"{value:.4g}" for value in values)

    def cells_of(one: dict[str, float]) -> str:
        return cells(one["value"], f"{one['low']:.4g} to {one['high']:.4g}")

    baseline, metric = kept["baseline"], kept["metric"]
    lines = [
        cells("in them word for word", kept["leakage"]["num_exact"]),
        cells("tokens cut", kept["lengths"]["num_tokens_cut"]),
        cells(metric, cells_of(baseline["scores"][metric]), cells_of(baseline["difference"][metric])),
        *(cells(one["name"], one["num_examples"], cells_of(one["score"])) for one in kept["lengths"]["slices"]),
        *(cells("baseline", one["num_train"], cells_of(one["score"])) for one in baseline["by_size"]),
        *(cells(f"`{one['label']}`", one["precision"], one["recall"], one["f1"]) for one in kept["labels"]),
        *(cells(f"`{one['label']}`", one["in_use"], one["f1_in_use"], one["best"]) for one in kept["thresholds"] or ()),
    ]  # fmt: skip
    if (calibration := kept["calibration"]) is not None:
        scaled = calibration["scaled"]
        lines += [
            cells("unscaled", "", calibration["expected_calibration_error"], calibration["loss"]),
            cells("scaled", scaled["temperature"], scaled["expected_calibration_error"], scaled["loss"]),
            cells("likely label errors", str(kept["label_errors"]["num_likely"])),
        ]
    for line in lines:
        assert f"| {line} " in text, line


def test_card_of_many_labels_stays_short(tmp_path: Path) -> None:
    names = tuple(f"label {number:02}" for number in range(26))
    model = model_of(SequenceClassification(names))
    test = [TextExample("the cat", None, names[number % 26]) for number in range(60)]
    (tmp_path / "test.csv").write_text("")
    _, text = scores_section(tmp_path / "test.csv", 60, 0, {}, gather_evidence(model, test))
    part = text[text.index("### Labels") : text.index("### Calibration")]
    assert "there are 6 more." in part and len(re.findall("^. `label", part, re.MULTILINE)) <= 20 + 15
    labels = re.findall("^. `label (..)` . .* 3 . ", part, re.MULTILINE)
    assert labels == [f"{number:02}" for number in range(8)]  # those that stand three times are among the shown


def test_rows_without_values_are_left_out() -> None:
    rows = [("rate", np.float64(0.5)), ("none", None), ("text", ""), ("options", ()), ("zero", 0)]
    assert markdown_table(("", ""), rows) == "|  |  |\n| --- | --- |\n| rate | 0.5 |\n| zero | 0 |\n"


def test_base_models_that_the_hub_knows(tmp_path: Path) -> None:
    assert hub_name("all-MiniLM-L6-v2") == "sentence-transformers/all-MiniLM-L6-v2"
    assert hub_name("someone/some-bert") == "someone/some-bert"
    assert hub_name(tmp_path) is hub_name("no_such_package") is hub_name("../some/where") is None
