"""Options of tasks as arguments of commands: those of training, and those that decide how labeled files are read."""

from collections.abc import Mapping
from dataclasses import make_dataclass, replace
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.errors import UsageError
from bertkit.tasks import TASKS, TextTask
from bertkit.tasks.task import Option


def _options() -> dict[str, Option]:
    """The options of all tasks by name, each with the help of every task that has it."""
    options: dict[str, Option] = {}
    for kind in TASKS.values():
        for name, option in kind.options.items():
            before = options.setdefault(name, option)
            if option.help not in before.help:
                options[name] = replace(before, help=f"{before.help} {option.help}")
    return options


def _arguments(class_name: str, options: Mapping[str, Option]) -> Any:
    """A dataclass of options, None unless they are given, whose fields are arguments of a command."""
    arguments = [
        (name, Annotated[option.type | None, Parameter(help=option.help, consume_multiple=True)], None)
        for name, option in options.items()
    ]
    return Parameter(name="*")(make_dataclass(class_name, arguments, frozen=True, namespace={"__module__": __name__}))


TaskOptions: Any = _arguments("TaskOptions", _options())
"""Options of all tasks."""

ReadingOptions: Any = _arguments(
    "ReadingOptions", {name: option for name, option in _options().items() if option.is_of_reading}
)
"""Options of all tasks that decide how labeled files are read."""

NO_OPTIONS, AS_FOUND = TaskOptions(), ReadingOptions()


def given_options(arguments: Any) -> dict[str, Any]:
    """The options that were given, by name."""
    return {name: value for name, value in vars(arguments).items() if value is not None}


def check_options_of(task: str, options: Mapping[str, Any], tasks: Mapping[str, type[TextTask]]) -> None:
    """Check that a task has all options.

    Raises:
        UsageError: it lacks one; the message names the tasks that have it.
    """
    for name in options:
        if name not in tasks[task].options:
            having = [other for other, kind in tasks.items() if name in kind.options]
            shown = f"--{name.replace('_', '-')}"
            raise UsageError(f"{shown} is an option of {', '.join(having)}, not of {task}: omit it")
