"""Options of tasks and settings of training as arguments of commands, None unless they are given."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import make_dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from cyclopts import App, Parameter
from docstring_parser import parse

from bertkit.cli import misplaced_option
from bertkit.errors import UsageError
from bertkit.tasks import TASKS, RowTask
from bertkit.tasks.settings import Settings


def command_attribute(name: str, commands: Callable[[], Iterable[tuple[str, str, Callable[..., None]]]]) -> Any:
    """The ``__getattr__`` of a module whose ``command`` has a command for each task that is registered now.

    Args:
        name: the name of the command.
        commands: returns the name, summary and function of each of its commands.
    """

    def attribute(asked: str) -> App:
        if asked != "command":
            raise AttributeError(asked)
        command = App(name=name)
        for task, summary, function in commands():
            command.command(function, name=task, help=summary)
        return command

    return attribute


def options_of(kinds: Iterable[type[RowTask]], *, of_reading: bool = False) -> Any:
    """A dataclass with the options of tasks; ``of_reading``: those that decide how labeled files are read."""
    options = [item for kind in kinds for item in kind.options.items() if item[1].is_of_reading or not of_reading]
    arguments = [
        (name, _argument(option.type, option.default, help=option.help, consume_multiple=True), None)
        for name, option in dict(options).items()
    ]
    return _class("TaskOptions", arguments)


def settings_of(kind: type[Settings], defaults: Mapping[str, Any] = {}, without: Collection[str] = ()) -> Any:
    """A dataclass with all settings of a tree, and those of the other kinds of its choices; help shows its defaults, or
    these, and the text of the outermost class that describes a setting.

    Args:
        without: settings that are no options.
    """
    tree = kind()
    classes, values = [type(part) for part in tree.tree()], tree.values()
    help, hints = _help_of(classes), {name: hint for one in classes for name, hint in _hints(one).items()}
    for field, part in tree.choices().items():
        kinds = part.kinds()
        hints[field] = Literal[tuple(kinds)]  # pyrefly: ignore
        for other in kinds.values():
            for name, default in other().values().items():
                if name not in values:
                    having = " or ".join(key for key, one in kinds.items() if name in one().values())
                    values[name], hints[name] = default, _hints(other)[name]
                    help[name] = f"With --{field} {having}: {_help_of([other]).get(name, '')}"
    shown = {**values, **defaults}
    arguments = [
        (name, _argument(hints[name], shown.get(name), help=help.get(name), **_several(hints[name])), None)
        for name in values
        if name not in without
    ]
    return _class(kind.__name__, arguments)


def _hints(kind: type) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind).items() if get_origin(hint) is not ClassVar}


def _help_of(classes: Sequence[type]) -> dict[str, str]:
    """The text of each parameter that a class or a base class of it describes, that of the first one."""
    documents = [base.__doc__ or "" for one in classes for base in one.__mro__]
    return {one.arg_name: one.description or "" for text in reversed(documents) for one in parse(text).params}


def summary_of(kind: type[RowTask]) -> str:
    """The first paragraph of the docstring of a task."""
    return " ".join((kind.__doc__ or kind.name).partition("\n\n")[0].split())


def given_options(arguments: Any) -> dict[str, Any]:
    """The options that were given, by name."""
    return {name: value for name, value in vars(arguments).items() if value is not None}


def check_options_of(task: str, options: Collection[str]) -> None:
    """Check that a task has all options.

    Raises:
        UsageError: it lacks one; the message names the tasks that have it.
    """
    for name in options:
        if name not in TASKS[task].options:
            having = [other for other, kind in TASKS.items() if name in kind.options]
            raise UsageError(misplaced_option(f"--{name.replace('_', '-')}", task, having))


def _several(hint: Any) -> dict[str, Any]:
    return {"consume_multiple": True} if ... in get_args(hint) else {}


def _argument(kind: Any, default: Any, **how: Any) -> Any:
    if default is not None:
        how["show_default"] = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return Annotated[kind | None, Parameter(**how)]


def _class(name: str, arguments: list[Any]) -> Any:
    made = make_dataclass(name, arguments, frozen=True, namespace={"__module__": __name__})
    return Parameter(name="*", parse=bool(arguments))(made)
