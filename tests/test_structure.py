"""Structure of the package: rooms and their order, allowed imports, public names, file names."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import bertkit
from bertkit.later import modules_of_names

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "bertkit"

ROOMS = [  # each imports only rooms above it
    "version",
    "errors",
    "later",
    "files",
    "locate",
    "device",
    "executor",
    "machine_code",
    "compiled",
    "randomness",
    "tokenizer",
    "batch",
    "transformer",
    "heads",
    "architectures",
    "vocabulary_extension",
    "corpus",
    "documents",
    "tasks",
    "objectives",
    "checkpoint",
    "training",
    "inference",
    "neighbors",
    "clusters",
    "pages",
    "advice",
    "extraction",
    "redaction",
    "model",
    "generation",
    "words",
    "mining",
    "inspection",
    "evidence",
    "export",
    "search",
    "integrations",
    "reports",
    "pretraining",
    "comparison",
    "finetuning",
    "sequence_training",
    "estimators",
    "serving",
    "sizing",
    "cli",
]
TRAINING = {
    *("comparison", "export", "finetuning", "generation", "inspection", "objectives", "pretraining"),
    *("sequence_training", "training", "vocabulary_extension"),
}
"""Rooms that import torch."""

WITH_TORCH = {
    *("architectures/encoder_decoder.py", "checkpoint/conversion.py", "checkpoint/encoder_decoder.py"),
    *(f"extraction/{name}.py" for name in ("training", "training_data", "training_folder", "training_network")),
    *("transformer/prepared/decoder.py", "transformer/prepared/weight_versions.py"),
    *("words/contrastive.py", "words/job.py", "words/training.py"),
    *(f"transformer/kernels/{name}.py" for name in ("device_attention", "device_steps", "trained_steps")),
    *(f"transformer/kernels/{name}.py" for name in ("triton_attention", "triton_cache", "triton_products")),
}
"""Files of other rooms that import torch, where these are used; all others use it by `later`."""

FACES = {"__init__", "__main__"}  # of the package, outside the order: import bertkit, python -m bertkit
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
    modules = [modules_of_names("bertkit").get(module.removeprefix("bertkit."), module) for module in modules]
    names = {module.split(".")[1] for module in modules if module.startswith("bertkit.")}
    return names - {room_of(file)}


def rooms_in_strings(file: Path) -> set[str]:
    """Rooms that strings name as modules, such as programs for another interpreter; docstrings aside."""
    tree = ast.parse(file.read_text())
    indices = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node.body[0] for node in ast.walk(tree) if isinstance(node, indices) and ast.get_docstring(node)]
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
    results = {room_of(file) for file in FILES} - FACES
    assert results == set(ROOMS)


def test_rooms_open_with_what_they_take_give_and_import():
    wrong = []
    for index, room in enumerate(ROOMS):
        docstring = ast.get_docstring(ast.parse(opening_file(room).read_text())) or ""
        wrong += [
            f"{room} lacks {word}" for word in ("Takes", "Gives") if not re.search(rf"^{word}: \S", docstring, re.M)
        ]
        wrong += [
            f"{room} may import {other}, which is not above it" for other in may_import(room) - set(ROOMS[:index])
        ]
    assert not wrong, wrong


@pytest.mark.full
def test_imports_keep_the_order():
    wrong = {
        str(file.relative_to(SOURCE)): sorted(further)
        for file in FILES
        if room_of(file) not in FACES
        and (further := (imported_rooms(file) | rooms_in_strings(file)) - may_import(room_of(file)))
    }
    assert not wrong, f"imports that the docstring of the room does not name: {wrong}"


def test_import_in_a_string_is_detected(tmp_path, monkeypatch):
    monkeypatch.setattr("test_structure.SOURCE", tmp_path)
    file = tmp_path / "pretraining.py"
    file.write_text('"""As `bertkit.model` does."""\nPROGRAM = "from bertkit.cli import main; main()"\n')
    assert rooms_in_strings(file) == {"cli"}


def imports_torch(file: Path) -> bool:
    """Whether importing a file imports torch by name."""
    statements = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [
        [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
        for node in statements
    ]
    return any(name.partition(".")[0] == "torch" for each in names for name in each)


def test_only_rooms_that_train_import_torch():
    importing = {file for file in FILES if imports_torch(file)}
    others = {str(file.relative_to(SOURCE)) for file in importing if room_of(file) not in TRAINING}
    assert others == WITH_TORCH
    assert {room_of(file) for file in importing} >= TRAINING


def test_no_forbidden_file_names():
    forbidden = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "managers"}
    assert not [file for file in FILES if set(file.relative_to(SOURCE).with_suffix("").parts) & forbidden]


@pytest.mark.full
def test_files_are_short_and_have_docstrings():
    texts = {str(file.relative_to(SOURCE)): file.read_text() for file in FILES}
    long = {name: number for name, text in texts.items() if (number := len(text.splitlines())) > 400}
    assert not long, f"files of more than 400 lines: {long}"
    silent = [name for name, text in texts.items() if not ast.get_docstring(ast.parse(text))]
    assert not silent, f"files without a docstring: {silent}"


def writes_text(node: ast.AST) -> bool:
    """True for a call that opens a file to write text."""
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    modes = [
        part.value for part in (*node.args, *(one.value for one in node.keywords)) if isinstance(part, ast.Constant)
    ]
    return name == "write_text" or (name == "open" and any(mode in ("w", "a", "x", "r+", "w+", "wt") for mode in modes))


@pytest.mark.full
def test_lines_end_alike_on_every_system():
    calls = [(file, node) for file in FILES for node in ast.walk(ast.parse(file.read_text())) if writes_text(node)]
    wrong = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file, node in calls
        if "newline" not in {keyword.arg for keyword in node.keywords}
    ]
    assert calls and not wrong, f"text is written without newline=: {wrong}"


PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("[a-z]*.md"),
    *(ROOT / "docs").glob("[!_r]*/*.md"),
    ROOT / "docs/reference/index.md",
    *(ROOT / "benchmarks").glob("*.md"),
]


def test_files_named_in_scripts_and_pages_exist():
    for path in (*PAGES, ROOT / "Makefile", *(ROOT / "tools").glob("*.*")):
        for name in re.findall(
            r"\b(?:tests|tools|benchmarks|examples)/[\w./-]+\.(?:py|sh|json|md)\b", path.read_text()
        ):
            assert (ROOT / name).is_file(), f"{path.name} names {name}"


def headings(page: Path) -> set[str]:
    """The anchors of a page: each heading in lowercase, without punctuation, with hyphens for spaces."""
    lines = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL), re.M)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def test_links_of_pages_lead_to_files_and_headings():
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())]
    assert len(links) > 100
    wrong = []
    for page, link in links:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" in link or (target.exists() and (not anchor or anchor in headings(target))):
            continue
        wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert not wrong


def test_public_names_exist_and_are_all():
    assert {"Model", "load", "SequenceRegressor"} <= set(bertkit.__all__) <= set(dir(bertkit))
    names: dict[str, object] = {}
    exec("from bertkit import *", names)
    for name in bertkit.__all__:
        assert names[name] is getattr(bertkit, name)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = bertkit.no_such_name


@pytest.mark.full
def test_names_in_all_exist_and_docstring_examples_hold():
    missing, failed = [], []
    for file in FILES:
        parts = file.relative_to(SOURCE.parent).with_suffix("").parts
        try:
            module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
        except ModuleNotFoundError as error:
            if error.name != "triton":  # comes with torch for CUDA
                raise
            continue
        missing += [f"{module.__name__}.{name}" for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
        if ">>>" in file.read_text() and doctest.testmod(module).failed:
            failed.append(module.__name__)
    assert not missing, f"names of __all__ that do not exist: {missing}"
    assert not failed, f"examples in docstrings that fail: {failed}"
