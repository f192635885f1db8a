"""Pages of the reference, written from the code itself when the documentation is built (docs/conf.py)."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from docstring_parser import parse

import bertkit
from bertkit.cli import app
from bertkit.serving.app import Application
from bertkit.serving.service import Service
from bertkit.serving.settings import ServerSettings

SETTINGS = {  # classes of settings, and where they are set
    "bertkit.pretraining.recipe.Recipe": "The tree of a pre-training run: `bertkit pretrain --set data.max_seqlen=64`",
    "bertkit.pretraining.recipe.ModelSettings": "`model.` of a pre-training run",
    "bertkit.pretraining.recipe.VocabularySettings": "`vocabulary.` of a pre-training run",
    "bertkit.pretraining.recipe.DataSettings": "`data.` of a pre-training run",
    "bertkit.training.settings.TrainingSettings": "The training loop: `[training]` of the recipe of any run",
    "bertkit.training.optimizers.AdamWSettings": "`optimizer` adamw, and adamw-2018",
    "bertkit.training.optimizers.muon_settings.MuonSettings": "`optimizer` muon",
    "bertkit.training.schedules.Schedule": "`schedule`: the settings of all kinds",
    "bertkit.finetuning.settings.FinetuningSettings": "Options of `bertkit finetune`, and arguments of estimators",
    "bertkit.sequence_training.settings.SequenceSettings": "Options of `bertkit finetune seq2seq`",
    "bertkit.training.distillation.DistillationSettings": "`[distillation]` of the recipe of `bertkit distill`",
    "bertkit.words.settings.WordTraining": "Options of `bertkit words train`",
    "bertkit.words.settings.PairTraining": "Options of `bertkit words train-pairs`",
    "bertkit.comparison.settings.ComparisonSettings": "Options of `bertkit compare-directions`",
    "bertkit.generation.settings.GenerationSettings": "Options of `bertkit generate`",
    "bertkit.serving.settings.ServerSettings": "Options of `bertkit serve`",
}
ROOMS = (  # whose further names the guides use, or that public methods take or return
    "tokenizer", "vocabulary_extension", "tasks", "inference", "neighbors", "clusters", "generation", "inspection",
    "evidence", "export", "search",
)  # fmt: skip
NO_MEMBERS_OF = "object, Module, Generic, tuple, dict, Exception, BaseEstimator"


def write_reference(folder: Path) -> None:
    """Write a page each for Python, the command line, HTTP, settings and exceptions."""
    folder.mkdir(parents=True, exist_ok=True)
    service = SimpleNamespace(settings=ServerSettings(), respond=None)  # of no models, as only the document is wanted
    document = Application(cast(Service, service)).openapi
    errors = _automatic("automodule", "bertkit.errors", "members", "show-inheritance")
    pages = {
        "python": _python(),
        "rooms": _rooms(),
        "command_line": _command_line(),
        "http": _http(document),
        "settings": _settings(),
        "exceptions": f"# Exceptions and warnings\n\n{errors}",
    }
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8", newline="\n")


def _automatic(directive: str, name: str, *options: str) -> str:
    lines = [f".. {directive}:: {name}", *(f"   :{option}:" for option in options)]
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def _python() -> str:
    """Public names by the room that they come from."""
    rooms: dict[str, list[str]] = {}
    for name in _classes_and_functions("bertkit"):
        rooms.setdefault(getattr(bertkit, name).__module__.split(".")[1], []).append(name)
    rooms.pop("errors", None)  # on a page of its own
    parts = ["# Python\n", "Every name is imported from `bertkit`: `import bertkit`, then `bertkit.load(...)`.\n"]
    for room, names in rooms.items():
        inherited = f"inherited-members: {NO_MEMBERS_OF}"
        parts += [_about(room), *(_documented("bertkit", name, inherited) for name in names)]
    return "\n".join(parts)


def _rooms() -> str:
    """Names of rooms that are not names of bertkit."""
    about = "Names for special uses are imported from their room, as in `from bertkit.search import Equal`."
    parts = ["# Python: names of rooms\n", f"{about}\n"]
    for room in ROOMS:
        names = [name for name in _classes_and_functions(f"bertkit.{room}") if name not in bertkit.__all__]
        parts += [_about(room), *(_documented(f"bertkit.{room}", name) for name in names)]
    return "\n".join(parts)


def _classes_and_functions(module: str) -> list[str]:
    opened = import_module(module)
    values = {name: getattr(opened, name) for name in opened.__all__}
    return [name for name, value in values.items() if inspect.isclass(value) or inspect.isfunction(value)]


def _about(room: str) -> str:
    return f"## {room}\n\n{(import_module(f'bertkit.{room}').__doc__ or '').partition(chr(10))[0]}\n"


def _documented(module: str, name: str, *options: str) -> str:
    if inspect.isclass(getattr(import_module(module), name)):
        directive = _automatic("autoclass", f"{module}.{name}", "members", *options)
    else:
        directive = _automatic("autofunction", f"{module}.{name}")
    return f"### {name}\n\n{directive}"


def _command_line() -> str:
    text = app().generate_docs(output_format="markdown")
    return re.sub(r"\A# bertkit\n", "# Command line\n", text)


def _http(document: dict[str, Any]) -> str:
    parts = ["# HTTP\n", "The routes of `bertkit serve`; a running server has the same document at `/openapi.json`.\n"]
    for path, verbs in sorted(document["paths"].items()):
        for verb, route in verbs.items():
            parts += [f"## `{verb.upper()} {path}`\n", f"{route.get('description') or route.get('summary', '')}\n"]
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            for schema in _objects(document, body):
                required, rows = schema.get("required", []), []
                for name, field in schema["properties"].items():
                    default = "required" if name in required else _code(field.get("default"))
                    rows.append((f"`{name}`", _type(field), default, _cell(field.get("description", ""))))
                parts.append(_table("field", rows))
    return "\n".join(parts)


def _objects(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for option in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        yield from _objects(document, option)
    if schema.get("properties"):
        yield schema


def _type(field: dict[str, Any]) -> str:
    options = [*field.get("anyOf", []), *field.get("oneOf", [])]
    if options:
        return " or ".join(dict.fromkeys(_type(option) for option in options))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    name = field.get("type") or field.get("$ref", "any").rpartition("/")[2]
    return f"array of {_type(field['items'])}" if name == "array" and field.get("items") else str(name)


def _settings() -> str:
    parts = ["# Settings\n"]
    for path, where in SETTINGS.items():
        module, _, name = path.rpartition(".")
        kind = getattr(import_module(module), name)
        assert is_dataclass(kind), path
        parts += [f"## {name}\n", f"{where}. {inspect.cleandoc(kind.__doc__ or '').partition(chr(10))[0]}\n"]
        rows = [(f"`{field}`", _code(type_), _code(value), _cell(note)) for field, type_, value, note in _fields(kind)]
        parts.append(_table("name", rows))
    return "\n".join(parts)


def _table(first: str, rows: list[tuple[str, str, str, str]]) -> str:
    lines = [f"| {first} | type | default | |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _fields(kind: type) -> Iterator[tuple[str, str, str | None, str]]:
    """Name, type, default and comment of each field of a dataclass, base classes first, from the source."""
    for base in kind.__bases__:
        if is_dataclass(base):
            yield from _fields(base)
    described = {one.arg_name: one.description or "" for one in parse(kind.__doc__ or "").params}
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation):
            end = node.end_lineno or node.lineno
            comments = [line.partition("  # ")[2] for line in lines[node.lineno - 1 : end]]
            following = iter(lines[end:])
            default = None if node.value is None else ast.unparse(node.value)
            name = ast.unparse(node.target)
            note = described.get(name) or " ".join(filter(None, comments)) or _docstring_below(following)
            yield name, ast.unparse(node.annotation), default, note


def _docstring_below(lines: Iterator[str]) -> str:
    line = next(lines, "").strip()
    return line.strip('"') if line.startswith('"""') else ""


def _code(value: Any) -> str:
    return "" if value is None else f"`{_cell(str(value))}`"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
