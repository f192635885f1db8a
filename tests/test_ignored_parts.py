"""What an error tells one to ignore in a model is an option of every command that opens models."""

import json
from pathlib import Path

import pytest
import torch
from examples_of_tasks import call, model_of
from random_models import our_model
from safetensors.torch import load_file, save_file

import bertkit
from bertkit.checkpoint.ignored_parts import ignoring
from bertkit.cli import COMMANDS, run
from bertkit.errors import CheckpointError
from bertkit.tasks import SequenceClassification

pytestmark = pytest.mark.usefixtures("one_thread")

IGNORED = ["--ignore-tensors", "extra.*", "--ignore-config-keys", "strange", "odd"]
FAST = ["--num-epochs", "1", "--batch-size", "4"]


def with_unknown_parts(folder: Path) -> Path:
    """A folder with two tensors and two config keys that bertkit does not know."""
    tensors = load_file(folder / "model.safetensors")
    tensors |= {"extra.weight": torch.zeros(2), "extra.bias": torch.zeros(2)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"strange": 1, "odd": [2]}))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("odd") / "model"
    model = model_of(SequenceClassification(("no", "yes")))
    model.save(path)
    return with_unknown_parts(path)


@pytest.fixture
def data(tmp_path: Path) -> str:
    rows = [f"{word} {label},{label}\n" for word in "the of and un cat dog".split() for label in ("no", "yes")]
    (tmp_path / "data.csv").write_text("text,label\n" + "".join(rows))
    return str(tmp_path / "data.csv")


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "--model", "MODEL", "--input", "DATA"],
        ["evaluate", "--model", "MODEL", "--data", "DATA"],
        ["evaluate", "--model", "MODEL", "--data", "DATA", "--seeds", "MODEL", "--report", "OUT.html"],
        ["check", "sequence-classification", "--model", "MODEL", "--train", "DATA"],
        ["finetune", "sequence-classification", "--model", "MODEL", "--train", "DATA", "--out", "OUT", *FAST],
        ["distill", "--teacher", "DEEP", "--train", "DATA", "--layers", "2", "--out", "OUT", *FAST],
        ["embed", "--model", "MODEL", "--input", "DATA"],
        ["similarity", "the cat", "a dog", "--model", "MODEL"],
        ["pairs", "--model", "MODEL", "--input", "DATA"],
        ["index", "DATA", "--model", "MODEL", "--store", "OUT"],
        ["inspect", "attention", "the cat", "--model", "MODEL", "--out", "OUT.html"],
        ["words", "nearest", "cat", "--model", "MODEL"],
        ["vocab", "extend", "DATA", "--model", "MODEL", "--out", "OUT", "--min-frequency", "1"],
        ["rank", "the cat", "--model", "MODEL", "--input", "DATA"],
    ],
    ids=lambda arguments: " ".join(arguments[: 1 + (arguments[0] in ("inspect", "words", "vocab"))]),
)  # fmt: skip
def test_commands_ignore_what_their_errors_name(folder, data, tmp_path, capsys, arguments) -> None:
    names = {"MODEL": str(folder), "DATA": data, "OUT": str(tmp_path / "out"), "OUT.html": str(tmp_path / "out.html")}
    if "DEEP" in arguments:
        deep = our_model("sequence_classification", 3, 2, num_hidden_layers=3, max_position_embeddings=24)
        deep.checkpoint.label_names, deep.checkpoint.trained = (
            ("no", "yes"),
            model_of(SequenceClassification(("no", "yes"))).checkpoint.trained,
        )
        deep.save(tmp_path / "deep")
        names["DEEP"] = str(with_unknown_parts(tmp_path / "deep"))
    if arguments[0] == "rank":
        our_model("sequence_classification", 3, 1, max_position_embeddings=24).save(tmp_path / "ranker")
        names["MODEL"] = str(with_unknown_parts(tmp_path / "ranker"))
    arguments = [names.get(argument, argument) for argument in arguments]
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert "has unknown keys (odd, strange)" in error and "pass --ignore-config-keys 'odd' 'strange', or" in error
    assert run([*arguments, *IGNORED[2:]]) == 2
    error = capsys.readouterr().err
    assert "holds tensors that this model lacks: extra.bias, extra.weight" in error
    assert "; pass --ignore-tensors 'extra.*'" in error
    assert run([*arguments, *IGNORED]) == 0, capsys.readouterr().err
    assert "not in any model" not in capsys.readouterr().err


def test_parts_that_no_model_has_are_named(folder, data, capsys) -> None:
    base = ["predict", "--model", str(folder), "--input", data, *IGNORED]
    code, rows, error = call(capsys, *base, "absent", "--ignore-tensors", "none.*")
    assert code == 0 and len(rows) == 12
    assert "--ignore-tensors none.*: not in any model that was opened" in error
    assert "--ignore-config-keys absent: not in any model that was opened" in error


def test_parts_are_ignored_within_the_context_alone(folder) -> None:
    with ignoring(["extra.bias", "extra.weight"], ["strange", "odd"]) as matched:
        with_parts = bertkit.load(folder)
    assert matched == {"extra.bias", "extra.weight", "strange", "odd"}
    arguments = {"ignore_tensors": ["extra.*"], "ignore_config_keys": ["strange", "odd"]}
    assert bertkit.load(folder, **arguments).predict(["the cat"]) == with_parts.predict(["the cat"])
    with pytest.raises(CheckpointError, match="has unknown keys"):
        bertkit.load(folder)


def test_options_stand_once_in_commands_that_open_models(capsys) -> None:
    without = set()
    for command in COMMANDS:
        assert run([command, "--help"]) == 0
        shown = capsys.readouterr().out
        if "Commands:" not in shown:  # not a group
            assert shown.count("--ignore-tensors") <= 1, command
            if "--ignore-tensors" not in shown:
                without.add(command)
    assert without == {"compare-directions", "data", "doctor", "report"}
