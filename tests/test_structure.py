"""The house plan, tested: rooms and their order, what each may import, public names, file names."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import bertkit

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "bertkit"

ROOMS = [  # each imports only rooms above it
    "errors",
    "files",
    "locate",
    "device",
    "executor",
    "compiled",
    "randomness",
    "tokenizer",
    "batch",
    "transformer",
    "heads",
    "corpus",
    "tasks",
    "objectives",
    "checkpoint",
    "training",
    "inference",
    "neighbors",
    "pages",
    "model",
    "evidence",
    "reports",
    "pretraining",
    "finetuning",
    "estimators",
    "cli",
]
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def opening_file(room: str) -> Path:
    folder = SOURCE / room
    return folder / "__init__.py" if folder.is_dir() else SOURCE / f"{room}.py"


def imported_rooms(file: Path) -> set[str]:
    modules: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are written out in full"
            modules += (
                [f"bertkit.{alias.name}" for alias in node.names] if node.module == "bertkit" else [node.module or ""]
            )
    modules = [bertkit._HOMES.get(module.removeprefix("bertkit."), module) for module in modules]
    names = {module.split(".")[1] for module in modules if module.startswith("bertkit.")} - {"__version__"}
    return names - {room_of(file)}


def rooms_in_strings(file: Path) -> set[str]:
    """Rooms that strings name as modules, such as programs for another interpreter; docstrings aside."""
    tree = ast.parse(file.read_text())
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node.body[0] for node in ast.walk(tree) if isinstance(node, places) and ast.get_docstring(node)]
    docstrings = {id(node.value) for node in documented if isinstance(node, ast.Expr)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named = [re.findall(r"\bbertkit\.(\w+)", node.value) for node in strings if id(node) not in docstrings]
    return {room for rooms in named for room in rooms} & set(ROOMS) - {room_of(file)}


def may_import(room: str) -> set[str]:
    docstring = ast.get_docstring(ast.parse(opening_file(room).read_text()))
    assert docstring, f"{room} has no docstring"
    (line,) = re.findall(r"^May import: (.*?)\.$", docstring, re.MULTILINE | re.DOTALL)
    names = " ".join(line.split())
    if names == "every room":
        return set(ROOMS) - {room}
    return set() if names == "nothing" else set(names.split(", "))


def test_every_folder_and_file_is_a_room():
    found = {room_of(file) for file in FILES} - {"__init__"}
    assert found == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_open_with_what_they_take_give_and_import(room):
    docstring = ast.get_docstring(ast.parse(opening_file(room).read_text()))
    assert re.search(r"^Takes: \S", docstring, re.MULTILINE)
    assert re.search(r"^Gives: \S", docstring, re.MULTILINE)
    above = set(ROOMS[: ROOMS.index(room)])
    assert may_import(room) <= above


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_keep_the_order(file):
    if file == SOURCE / "__init__.py":
        return
    assert imported_rooms(file) | rooms_in_strings(file) <= may_import(room_of(file))


def test_an_import_in_a_string_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("test_structure.SOURCE", tmp_path)
    file = tmp_path / "pretraining.py"
    file.write_text('"""As `bertkit.model` does."""\nPROGRAM = "from bertkit.cli import main; main()"\n')
    assert rooms_in_strings(file) == {"cli"}


def test_no_forbidden_file_names():
    forbidden = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "managers"}
    assert not [file for file in FILES if set(file.relative_to(SOURCE).with_suffix("").parts) & forbidden]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_files_can_be_read_in_one_sitting_and_say_what_they_are(file):
    text = file.read_text()
    assert len(text.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(text))


def test_public_names_exist_and_are_all():
    assert set(bertkit.__all__) == {*bertkit._HOMES, "__version__"}
    for name in bertkit.__all__:
        assert getattr(bertkit, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = bertkit.no_such_name


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_names_in_all_exist_and_docstring_examples_hold(file):
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
    for name in getattr(module, "__all__", ()):
        assert hasattr(module, name)
    assert doctest.testmod(module).failed == 0
