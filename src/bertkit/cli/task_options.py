"""Options of tasks and settings of training as arguments of commands, None unless they are given."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, make_dataclass
from typing import Annotated, Any, get_type_hints

from cyclopts import App, Parameter

from bertkit.cli import misplaced_option
from bertkit.errors import UsageError
from bertkit.tasks import TASKS, TextTask

HELP = {
    "columns": "Columns by role, such as text=sentence label=polarity, where their names are not recognized.",
    "label_names": "Names of labels that are integers in the files, in order from 0.",
    "skip_bad": "Skip rows that cannot be used, and count them.",
    "device": "auto, cpu, cuda or mps.",
    "out": "The folder of the model to write.",
    "dev": "Examples that select the best weights; without them the last weights are kept.",
    "resume": (
        "Resume the run in the folder, or start it if there is none. A finished run continues if --num-epochs or "
        "--num-steps is larger than before."
    ),
}
"""Help of parameters that the commands of tasks share."""


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


def options_of(kinds: Iterable[type[TextTask]], *, of_reading: bool = False) -> Any:
    """A dataclass with the options of tasks; ``of_reading``: those that decide how labeled files are read."""
    options = [item for kind in kinds for item in kind.options.items() if item[1].is_of_reading or not of_reading]
    arguments = [
        (name, _argument(option.type, option.default, help=option.help, consume_multiple=True), None)
        for name, option in dict(options).items()
    ]
    return _class("TaskOptions", arguments)


def settings_of(kind: type, defaults: Mapping[str, Any]) -> Any:
    """A dataclass with the fields of a class of settings; help shows its defaults, or these."""
    hints = get_type_hints(kind)
    arguments = [
        (part.name, _argument(hints[part.name], defaults.get(part.name, part.default)), None) for part in fields(kind)
    ]
    return _class(kind.__name__, arguments, bases=(kind,), __post_init__=lambda self: None)


def summary_of(kind: type[TextTask]) -> str:
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


def _argument(kind: Any, default: Any, **how: Any) -> Any:
    if default is not None:
        how["show_default"] = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return Annotated[kind | None, Parameter(**how)]


def _class(name: str, arguments: list[Any], bases: tuple[type, ...] = (), **members: Any) -> Any:
    namespace = {"__module__": __name__, **members}
    made = make_dataclass(name, arguments, bases=bases, frozen=True, namespace=namespace)
    return Parameter(name="*", parse=bool(arguments))(made)
