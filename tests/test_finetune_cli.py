"""The commands ``bertkit finetune`` and ``bertkit predict``."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from examples_of_tasks import model_of
from random_models import vocabulary_tokens

from bertkit import Tokenizer, load
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.cli import app, predict, run
from bertkit.errors import DataError, UsageError
from bertkit.files import BadRows
from bertkit.finetuning import PAPER, Finetuning, FinetuningSettings
from bertkit.finetuning.advice import still_falling
from bertkit.finetuning.prepared_rows import usable_rows
from bertkit.inference import InferenceReport
from bertkit.inference.fitting_rows import fitting
from bertkit.sequence_training import SequenceSettings
from bertkit.tasks import (
    TASKS,
    ChoiceQuestion,
    GenerativeTask,
    JudgedTask,
    MultiLabelClassification,
    MultipleChoice,
    OrdinalRegression,
    Similarity,
    TextTask,
    tasks_of,
)
from bertkit.tasks.example_file import read_train_and_dev
from bertkit.tokenizer.layout import Layout
from bertkit.training import OPTIMIZERS, SCHEDULES

WORDS = "the of and sat un run walk talk blue red green one two three four".split()
FAST = ["--num-epochs", "5", "--batch-size", "4", "--learning-rate", "0.01"]
TOKENIZER = Tokenizer.from_vocab(vocabulary_tokens(99))

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def encoder(encoder: Path) -> str:
    """Its name, as arguments are."""
    return str(encoder)


def rows(number: int = 80, seed: int = 1) -> list[tuple[str, str]]:
    draw = np.random.default_rng(seed)
    return [
        (" ".join(draw.choice(WORDS, 3)) + (" cat" if index % 2 else " dog"), "cats" if index % 2 else "dogs")
        for index in range(number)
    ]


def write(path: Path, labeled: list[tuple[str, str]], header: str = "text,label") -> Path:
    path.write_text(header + "\n" + "".join(f"{text},{label}\n" for text, label in labeled))
    return path


def call(capsys, *arguments: str) -> tuple[int, list[dict], str]:
    code = run(list(arguments))
    captured = capsys.readouterr()
    return code, [json.loads(line) for line in captured.out.splitlines()], captured.err


def test_from_files_to_predictions(tmp_path: Path, encoder: str, capsys) -> None:
    train, dev = write(tmp_path / "train.csv", rows()), write(tmp_path / "dev.csv", rows(30, 2))
    out = str(tmp_path / "out")
    arguments = ["finetune", "sequence-classification", "--model", encoder, "--train", str(train), "--dev", str(dev),
                 "--out", out, *FAST]  # fmt: skip
    code, (result,), error = call(capsys, *arguments)
    assert code == 0, error
    assert result["reason"] == "finished" and result["accuracy"] > 0.8 and result["rows_skipped"] == 0
    assert call(capsys, *arguments)[0] == 2
    assert call(capsys, *arguments, "--resume")[1][0]["accuracy"] == result["accuracy"]
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(text + "\n" for text, _ in rows(30, 2)))
    code, results, error = call(capsys, "predict", "--model", out, "--input", str(texts))
    assert code == 0 and [row["text"] for row in results] == [text for text, _ in rows(30, 2)]
    right = np.mean([row["label"] == label for row, (_, label) in zip(results, rows(30, 2), strict=True)])
    assert right == pytest.approx(result["accuracy"])
    assert list(results[0]["probabilities"]) == ["cats", "dogs"]
    written = tmp_path / "predictions.jsonl"
    assert call(capsys, "predict", "--model", out, "--input", str(dev), "--out", str(written))[0] == 0
    assert [json.loads(line) for line in written.read_text().splitlines()] == results
    code, _, error = call(capsys, "predict", "--model", out, "--input", str(written), "--out", str(written))
    assert code == 2 and "it is the input" in error
    numbered = tmp_path / "numbered.csv"
    numbered.write_text("id,text\n07,a cat\n,a dog\n")
    predicted = call(capsys, "predict", "--model", out, "--input", str(numbered))[1]
    assert predicted[0]["id"] == "07" and "id" not in predicted[1]
    texts.write_text("the cat\n\n")
    assert [row["text"] for row in call(capsys, "predict", "--model", out, "--input", str(texts))[1]] == ["the cat", ""]


@pytest.mark.full
def test_options_reach_the_run(tmp_path: Path, encoder: str, capsys) -> None:
    train = write(tmp_path / "train.csv", [(text, str(text.count("e"))) for text, _ in rows()], "sentence,stars")
    code, (result,), _ = call(
        capsys, "finetune", "ordinal-regression", "--model", encoder, "--train", str(train), "--dev", str(train),
        "--out", str(tmp_path / "out"), "--columns", "text=sentence", "label=stars", "--num-epochs", "1", "--seed", "3",
        "--layer-decay", "0.9", "--frozen-layers", "0", "--best-by", "loss", "--patience", "2", "--max-length", "16",
        "--evaluations-per-epoch", "2", "--precision", "bfloat16", "--on-long", "error",
    )  # fmt: skip
    assert code == 0 and 0 <= result["accuracy"] <= 1
    settings = json.loads((tmp_path / "out" / "run" / "settings.json").read_text())["settings"]
    expected = {"seed": 3, "layer_decay": 0.9, "frozen_layers": 0, "best_by": "loss", "patience": 2, "max_length": 16,
                "evaluations_per_epoch": 2, "precision": "bfloat16", "on_long": "error", "num_epochs": 1,
                "batch_size": 32, "learning_rate": 3e-4, "warmup": 0.1}  # fmt: skip
    assert settings == settings | expected
    weighted = ["finetune", "sequence-classification", "--model", encoder, "--train", str(train), "--columns",
                "text=sentence", "label=stars", "--num-epochs", "1", "--out", str(tmp_path / "other"),
                "--skip-bad"]  # fmt: skip
    assert call(capsys, *weighted, "--class-weights", "balanced", "--label-smoothing", "0.1")[0] == 0
    assert load(tmp_path / "other").trained.task.label_smoothing == 0.1


def test_bad_input_is_one_line(tmp_path: Path, encoder: str, capsys) -> None:
    train = write(tmp_path / "train.csv", rows())
    base = ["finetune", "sequence-classification", "--model", encoder, "--train", str(train),
            "--out", str(tmp_path / "out")]  # fmt: skip
    strange = write(tmp_path / "strange.csv", [*rows(4), ("a cat", "cast")])
    (tmp_path / "empty.csv").write_text("")
    for arguments, message in (
        (["finetune", "poetry", *base[2:]], 'Unknown command "poetry". Available commands: sequence-classification, '),
        ([*base, "--dev", str(strange)], "strange.csv, line 6 has the label 'cast'"),
        ([*base[:4], "--train", str(tmp_path / "empty.csv"), *base[6:]], "empty"),
        ([*base, "--columns", "text"], "role=name"),
        ([*base, "--class-weights", "heavy"], "expected 'balanced'"),
        (
            [*base, "--levels", "1", "2"],
            "--levels is an option of ordinal-regression, not of sequence-classification: omit it",
        ),
        ([*base, "--patience", "2"], "requires dev"),
        ([*base, "--sweep", "paper"], "requires dev"),
        (["predict", "--model", encoder, "--input", str(train)], "was not trained for a task"),
    ):
        code, results, error = call(capsys, *arguments)
        assert code == 2 and not results and message in error.splitlines()[-1], (arguments, error)


@pytest.mark.full
def test_rows_are_skipped_on_request(tmp_path: Path, encoder: str, capsys) -> None:
    train = write(tmp_path / "train.csv", [*rows(), ("", "cats"), ("a cat", ""), ("the only one", "mouse")])
    base = ["finetune", "sequence-classification", "--model", encoder, "--train", str(train), "--num-epochs", "1",
            "--out", str(tmp_path / "out")]  # fmt: skip
    error = call(capsys, *base)[2]
    assert "train.csv, line 82" in error and error.rstrip().endswith("--skip-bad skips rows that cannot be used")
    dev = write(tmp_path / "dev.csv", [*rows(10), ("a cat", "cast")])
    code, (result,), error = call(capsys, *base, "--dev", str(dev), "--skip-bad")
    assert code == 0 and result["rows_skipped"] == 4, error
    assert "4 rows were skipped" in error and "train.csv, line 82" in error


@pytest.mark.full
def test_long_rows_are_skipped_on_request(tmp_path: Path, encoder: str, capsys) -> None:
    long = " ".join(WORDS)
    train = write(tmp_path / "train.csv", [*rows(), (long, "cats"), ("a cat", "mouse"), (f"{long} mouse", "mouse")])
    dev = write(tmp_path / "dev.csv", [(long, "dogs"), *rows(10)])
    out, base = str(tmp_path / "out"), ["finetune", "sequence-classification", "--model", encoder, "--num-epochs", "1"]
    base += ["--on-long", "error", "--max-length", "8", "--train", str(train), "--dev", str(dev), "--out", out]
    assert "train.csv, line 82: has 17 tokens" in call(capsys, *base)[2]
    code, (result,), error = call(capsys, *base, "--skip-bad")
    assert code == 0 and result["rows_skipped"] == 4, error  # without the second mouse the first is alone
    assert "train.csv, line 82: has 17 tokens, 9 more than max_length 8" in error
    write(train, [(long, "cats"), *rows()])
    for arguments in (["predict", "--input", str(dev)], ["evaluate", "--data", str(dev)],
                      ["evaluate", "--data", str(dev), "--card", "--train", str(train)]):  # fmt: skip
        command = [*arguments, "--model", out]
        assert call(capsys, *command)[0] == 2
        code, results, error = call(capsys, *command, "--skip-bad")
        assert code == 0 and "1 rows were skipped" in error and "dev.csv, line 2: has 17 tokens" in error, error
        assert len(results) == 10 or results[0]["rows_skipped"] == 1
    write(dev, [(long, "dogs")])
    assert "no row can be used; 1 were skipped" in call(capsys, *command, "--skip-bad")[2]
    without_dev = [*base[:-4], "--out", f"{out}-without-dev", "--num-steps", "1", "--skip-bad"]
    without_dev.remove("--num-epochs"), without_dev.remove("1")
    code, (result,), error = call(capsys, *without_dev)
    assert code == 0 and result["rows_skipped"] == 1, error


def test_label_columns_without_a_label_are_refused(tmp_path: Path, encoder: str, capsys) -> None:
    train, header = tmp_path / "train.csv", "text,cat,dog,mouse\n"
    train.write_text(
        header + "".join(f"{text},{index % 2},{index % 3 // 2},0\n" for index, (text, _) in enumerate(rows(12)))
    )
    code, _, error = call(
        capsys, "finetune", "multi-label-classification", "--model", encoder, "--train", str(train),
        "--columns", "label=cat,dog,mouse", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert code == 2 and "no training row has 1 in mouse: omit such columns" in error


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def choices(*numbers: int) -> str:
    return lines(*({"context": "who", "choices": ["cat", "dog", "mat"][:number], "label": 0} for number in numbers))


@pytest.mark.parametrize(
    ("kind", "options", "train", "dev", "reasons"),
    [
        (
            MultiLabelClassification,
            {},
            lines(*({"text": "a", "labels": [*names]} for names in ("xyw", "y", "z", "z"))),
            lines({"text": "a", "labels": ["z"]}),
            ["train.jsonl, line 1: no other", "train.jsonl, line 2: no other"],  # then y is alone
        ),
        (
            OrdinalRegression,
            {"levels": ["bad", "good"]},
            lines(*({"text": "a", "label": name} for name in ("bad", "goood", "good"))),
            lines({"text": "a", "label": "good"}),
            ["train.jsonl, line 2 has the label 'goood', which is not among the 2 known"],
        ),
        (
            MultipleChoice,
            {},
            choices(2, 3, 3),
            choices(3, 3, 2),
            ["train.jsonl, line 1: has 2", "dev.jsonl, line 3: has 2"],
        ),
    ],
)
def test_rows_unusable_because_of_others_are_skipped(
    tmp_path: Path, kind: type, options: dict, train: str, dev: str, reasons: list[str]
) -> None:
    files = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    for file, content in zip(files, (train, dev), strict=True):
        file.write_text(content)
    bad_rows = BadRows(skip=True)
    read = read_train_and_dev(kind, [files[0]], files[1], options=options, bad_rows=bad_rows)
    examples, held_out, skipped = usable_rows(kind, *read, options)
    skipped = [*map(str, bad_rows.rows), *skipped]
    assert len(skipped) == len(reasons)
    assert all(results.startswith(f"{tmp_path}/{why}") for results, why in zip(skipped, reasons, strict=True))
    task = kind.of_examples(examples, options)
    for part in (examples, held_out):
        task.labeled(part, task.encode(TOKENIZER, part, Layout()))
    with pytest.raises(DataError, match=r"train.jsonl, line \d"):
        kept, _ = read_train_and_dev(kind, [files[0]], files[1], options=options)
        task.labeled(kept, task.encode(TOKENIZER, kept, Layout()))


@pytest.mark.slow
@pytest.mark.parametrize("few, many", [(10_000, 100_000), (100_000, 1_000_000)])
def test_prediction_memory_is_constant(tmp_path: Path, encoder: str, capsys, few: int, many: int) -> None:
    train, peaks = write(tmp_path / "train.csv", rows(8)), []
    assert call(capsys, "finetune", "sequence-classification", "--model", encoder, "--train", str(train),
                "--num-epochs", "1", "--out", str(tmp_path / "out"))[0] == 0  # fmt: skip
    for number in (few, many):
        path, output = tmp_path / f"{number}.txt", tmp_path / f"{number}.jsonl"
        path.write_text("".join(f"{text}\n" for text, _ in rows(1_000)) * (number // 1_000))
        code = (
            "import sys, resource; from bertkit.cli import run; code = run(sys.argv[1:]); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "predict", "--model", str(tmp_path / "out"), "--input", str(path),
             "--out", str(output)], capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        with open(output) as file:
            assert sum(1 for _ in file) == number
        peaks.append(int(done.stderr.splitlines()[-1]))
    assert peaks[0] > 0 and peaks[1] < peaks[0] + 40_000  # kB


def test_rows_are_read_as_they_are_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the file: the next rows are read when the predictions of the last ones were taken."""
    monkeypatch.setattr("bertkit.inference.runner._ITEMS_AT_A_TIME", 10)
    model, num_read = model_of(MultipleChoice()), 0

    def questions() -> Iterator[ChoiceQuestion]:
        nonlocal num_read
        for number in range(100):
            num_read += 1
            yield ChoiceQuestion("who", ("cat", "dog"), id=str(number))

    task, layout = model.trained.task, model.trained.layout
    rows = fitting(task, model.tokenizer, layout, questions(), [])
    results = predict._rows(model, rows, InferenceReport())
    for number, row in enumerate(results):
        assert row["id"] == str(number) and num_read - number <= 20
    assert num_read == number + 1 == 100


def test_output_that_cannot_be_written_is_refused_first(tmp_path: Path, encoder: str, capsys) -> None:
    train = write(tmp_path / "train.csv", rows())
    for out in (train, train / "below" / "out"):
        code, _, error = call(
            capsys, "finetune", "sequence-classification", "--model", encoder, "--train", str(train), "--out", str(out)
        )
        assert code == 2 and error.count("\n") == 1 and "train.csv is not a folder" in error
        with pytest.raises(UsageError, match="is not a folder"):
            Finetuning(out, encoder, "sequence-classification").start([])


def test_loss_that_is_shown_as_zero_is_not_falling() -> None:
    assert still_falling([1.0, 0.5, 0.0004, 0.0004, 0.0001, 0.0001]) is None
    assert still_falling([1.0, 0.9, 0.8, 0.7, 0.6, 0.5])


def test_similarity_predictions_show_their_texts(tmp_path: Path, encoder: str, capsys) -> None:
    model = load(encoder, device="cpu")
    model.checkpoint.trained = TrainedTask(Similarity(), Layout(24))
    model.save(tmp_path / "model")
    pairs, texts = tmp_path / "pairs.jsonl", tmp_path / "texts.txt"
    pairs.write_text(json.dumps({"anchor": "a cat", "positive": "the cat"}) + "\n")
    texts.write_text("a cat\n")
    base = ["predict", "--model", str(tmp_path / "model"), "--input"]
    code, (result,), error = call(capsys, *base, str(pairs))
    assert code == 0 and list(result)[:3] == ["query", "positives", "score"] and result["query"] == "a cat", error
    code, results, error = call(capsys, *base, str(texts))
    assert code == 2 and not results and "line 1: has no second text" in error


def test_json_lines_are_written_to_jsonl_only(tmp_path: Path, encoder: str, capsys) -> None:
    train, out = write(tmp_path / "train.csv", rows()), str(tmp_path / "x.csv")
    for command in ("predict", "mine"):
        code, _, error = call(capsys, command, "--model", encoder, "--input", str(train), "--out", out)
        assert code == 2 and "x.csv: unknown extension '.csv', expected .jsonl" in error


SHARED_OPTIONS = {"train", "out", "model", "dev", "columns", "skip_bad", "recipe", "resume", "device"}
NOT_GENERATIVE = {"label_names", "defaults", "sweep"}


def names_of(command: str, task: str) -> set[str]:
    """The options of a command for a task, in Python's spelling."""
    arguments = app()[command][task].assemble_argument_collection()
    return {argument.name.removeprefix("--").replace("-", "_") for argument in arguments if argument.show}


@pytest.mark.parametrize("task", tasks_of(TextTask))
def test_command_of_a_task_has_its_options_and_no_others(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = TASKS[task]
    settings = FinetuningSettings().all_values().keys()
    assert names_of("finetune", task) == SHARED_OPTIONS | NOT_GENERATIVE | settings | kind.options.keys()
    assert run(["finetune", task, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, option in kind.options.items():
        assert f"--{name.replace('_', '-')}" in shown and " ".join(option.help.split()) in shown
    for name, value in kind.training_defaults.items():
        argument = next(
            one for one in app()["finetune"][task].assemble_argument_collection() if one.name == OPTION[name]
        )
        assert argument.show_default == str(value)


OPTION = {"learning_rate": "--learning-rate", "num_epochs": "--num-epochs"}


@pytest.mark.parametrize("task", tasks_of(JudgedTask))
def test_check_of_a_task_has_its_options_of_reading(task: str) -> None:
    reading = {name for name, option in TASKS[task].options.items() if option.is_of_reading}
    of_check = {"train", "model", "columns", "label_names", "skip_bad", "report", "precision", "device"}
    assert names_of("check", task) == of_check | reading


@pytest.mark.parametrize("task", tasks_of(GenerativeTask))
def test_generative_tasks_take_all_their_settings(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert names_of("finetune", task) == SHARED_OPTIONS | SequenceSettings().all_values().keys()
    assert run(["finetune", task, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("--num-beams", "--label-smoothing", "--betas FLOAT FLOAT", "[default: 0.9 0.98]", "[default: 64]",
                 "[default: inverse-square-root]"):  # fmt: skip
        assert part in shown


@pytest.mark.parametrize(
    ("task", "option", "having"),
    [
        ("cross-encoder", "--directions both", "similarity"),
        ("similarity", "--num-beams 2", "seq2seq, causal-language-model"),
        ("seq2seq", "--class-weights balanced", "sequence-classification, multi-label-classification, "
         "token-classification, siamese-classification"),
        ("seq2seq", "--lora-rank=4", "sequence-classification, few-shot-classification, multi-label-classification, "
         "regression, ..."),
    ],
)  # fmt: skip
def test_option_of_another_task_is_refused_by_name(
    task: str, option: str, having: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["finetune", task, "--train", "train.csv", "--out", "out", *option.split()]
    assert run(arguments) == 2
    name = option.split()[0].partition("=")[0]
    assert f"{name} is an option of {having}, not of {task}: omit it" in capsys.readouterr().err
    assert run(["finetune", task, "--train", "train.csv", "--out", "out", "--no-such-thing"]) == 2
    assert "Unknown option: --no-such-thing" in capsys.readouterr().err


def test_optimizer_schedule_and_steps_are_those_of_pre_training(tmp_path: Path, encoder: str, capsys) -> None:
    train, out = write(tmp_path / "train.csv", rows(40)), tmp_path / "out"
    code, (result,), error = call(
        capsys, "finetune", "sequence-classification", "--model", encoder, "--train", str(train), "--out", str(out),
        "--optimizer", "muon", "--schedule", "cosine", "--num-steps", "8", "--learning-rate", "0.01", "--warmup",
        "0.25", "--matrix-learning-rate", "0.03", "--betas", "0.8", "0.9", "--batch-size", "10",
    )  # fmt: skip
    assert code == 0 and result["step"] == 8, error
    settings = json.loads((out / "run" / "settings.json").read_text())["settings"]
    assert settings["num_epochs"] is None and settings["betas"] == [0.8, 0.9] and settings["optimizer"] == "muon"
    log = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = [event["learning_rate"] for event in log if event["event"] == "step"]
    assert rates == pytest.approx([0.01 * SCHEDULES["cosine"](0.25).factor(step / 8) for step in range(8)])


def test_length_of_a_run_is_set_once(tmp_path: Path) -> None:
    for other in ({"num_epochs": 2}, {"minutes": 1.0}):
        with pytest.raises(UsageError, match=f"num_steps=5 and {next(iter(other))}=[12] both set the length: omit one"):
            FinetuningSettings.of(num_steps=5, **other)
    settings = FinetuningSettings.of(num_steps=5, betas=(0.7, 0.8), eps=1e-8, optimizer="adamw-2018").completed(PAPER)
    training = settings.of_loop(steps_per_epoch=3)
    assert (training.num_steps, training.learning_rate, training.evaluate_every) == (5, 2e-5, 3)
    assert training.optimizer == OPTIMIZERS["adamw-2018"](betas=(0.7, 0.8), eps=1e-8)
    for wrong in ({"optimizer": "sgd"}, {"schedule": "none"}, {"betas": (0.9, 1.0)}, {"num_steps": 0}, {"eps": 0.0},
                  {"matrix_learning_rate": -1.0, "optimizer": "muon"}, {"precision": "int8"}):  # fmt: skip
        with pytest.raises(UsageError, match=f"{next(iter(wrong))}=.*: expected"):
            FinetuningSettings.of(**wrong)


RECIPE = """
head = "drawn"
num_epochs = 2

[training]
learning_rate = 0.01
betas = [0.8, 0.9]

[task]
label_smoothing = 0.1
"""


def test_recipe_file_has_the_names_of_the_options(tmp_path: Path, encoder: str, capsys) -> None:
    train, recipe, out = write(tmp_path / "train.csv", rows(20)), tmp_path / "recipe.toml", tmp_path / "out"
    recipe.write_text(RECIPE)
    code, (result,), error = call(
        capsys, "finetune", "sequence-classification", "--model", encoder, "--train", str(train), "--out", str(out),
        "--recipe", str(recipe), "--num-epochs", "1", "--batch-size", "10",
    )  # fmt: skip
    assert code == 0 and result["step"] == 2, error
    settings = json.loads((out / "run" / "settings.json").read_text())["settings"]
    expected = {"head": "drawn", "num_epochs": 1, "batch_size": 10, "learning_rate": 0.01, "betas": [0.8, 0.9]}
    assert settings == settings | expected and load(out).trained.task.label_smoothing == 0.1


@pytest.mark.parametrize("task", ["sequence-classification", "seq2seq"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("learning_rate = 0.01", "recipe.toml: unknown setting 'learning_rate'; expected one of training, "),
        (
            "[training]\nmax_length = 9",
            "recipe.toml, [training]: unknown setting 'max_length'; expected one of num_steps",
        ),
        ("[training]\nseed = -1", "recipe.toml, [training]: --seed -1: expected an integer from 0"),
        ("num_epochs = 0", "recipe.toml: --num-epochs 0: expected an integer of at least 1"),
        ("training = 3", "recipe.toml, [training]: expected a section of settings"),
        ("[task]\nsize = 3", "recipe.toml, [task]: unknown setting 'size'"),
        ("[training", "recipe.toml is not TOML"),
        (None, "recipe.toml: No such file"),
    ],
)
def test_invalid_recipe_files_are_refused(
    task: str, content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    if content is not None:
        recipe.write_text(content)
    arguments = ["finetune", task, "--train", "train.csv", "--out", str(tmp_path / "out"), "--recipe", str(recipe)]
    assert run(arguments) == 2 and not (tmp_path / "out").exists()
    assert message in capsys.readouterr().err
