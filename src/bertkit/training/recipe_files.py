"""Settings from TOML files: those of a part are a section with its name."""

import tomllib
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from bertkit.errors import RecipeError, UsageError
from bertkit.tasks.settings import Choice, Settings

Tree = TypeVar("Tree", bound=Settings)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; raises a UsageError for a file that is missing or not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"recipe {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None


def read_settings(defaults: Tree, content: Any, where: str) -> Tree:
    """Settings with the values of a section, and of its sections for their parts; a `Choice` and its settings have no
    section of their own.

    Raises:
        RecipeError: an unknown name or an invalid value; the message begins with ``where`` and the section.
    """
    parts = {part.name: getattr(defaults, part.name) for part in fields(defaults)}  # pyrefly: ignore
    choices = {name: part for name, part in parts.items() if isinstance(part, Choice)}
    sections = {name for name, part in parts.items() if isinstance(part, Settings) and name not in choices}
    of_kinds = [name for part in choices.values() for kind in part.kinds().values() for name in kind().values()]
    check_names(list(dict.fromkeys([*parts, *of_kinds])), content, where)
    own = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
    read = {name: read_settings(parts[name], own.pop(name), f"{where}, [{name}]") for name in sections & own.keys()}
    try:
        return replace(defaults, **read).changed(**own)  # pyrefly: ignore
    except UsageError as error:
        raise RecipeError(f"{where}: {error}") from None


def read_recipe_file(path: Path | None, defaults: Tree, options: Collection[str] = ()) -> tuple[Tree, dict[str, Any]]:
    """Settings of a recipe file, or the defaults, and the options of the task in its section ``[task]``.

    Args:
        defaults: the settings that the file changes.
        options: names of the options that the task has.

    Raises:
        UsageError: as `read_toml` and `read_settings`.
    """
    content = {} if path is None else read_toml(path)
    of_task = content.pop("task", {})
    check_names(options, of_task, f"{path}, [task]")
    return read_settings(defaults, content, str(path)), of_task


def check_names(names: Collection[str], content: Any, where: str) -> None:
    """Raise a RecipeError unless the content of a file is a section with no other names."""
    if not isinstance(content, dict):
        raise RecipeError(f"{where}: expected a section of settings")
    for name in content:
        if name not in names:
            raise RecipeError(f"{where}: unknown setting {name!r}; expected one of {', '.join(names)}")
