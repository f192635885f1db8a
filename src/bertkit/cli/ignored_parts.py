"""Options of every command that opens a model: tensors and config keys to ignore."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from bertkit.checkpoint.ignored_parts import ignoring
from bertkit.cli.output import Values, note

if TYPE_CHECKING:
    from cyclopts import App


@Parameter(name="*")
@dataclass(frozen=True)
class IgnoredParts:
    """Parts of models to ignore.

    Parameters
    ----------
    ignore_tensors
        Unexpected tensors of a model that is opened, to ignore: names, or patterns such as 'cls.extra.*'.
    ignore_config_keys
        Unknown keys of the config.json of a model that is opened, to ignore.
    """

    ignore_tensors: Values = None
    ignore_config_keys: Values = None


NOTHING = IgnoredParts()
SOURCES = {"model", "models", "inspected", "options", "store", "teacher"}
"""Parameters of commands by which they open models."""


def accept_ignored_parts(commands: "App") -> None:
    """Add the options to a command that opens models, unless it has them already; they apply to all that it opens."""
    function: Callable[..., Any] | None = commands.default_command
    if function is None:
        return
    names = (signature := inspect.signature(function)).parameters.keys()
    if {"ignore_tensors", "ignored"} & names or not SOURCES & names:
        return

    @wraps(function)
    def with_options(*arguments: Any, ignored: IgnoredParts = NOTHING, **options: Any) -> Any:
        tensors, keys = ignored.ignore_tensors or (), ignored.ignore_config_keys or ()
        with ignoring(tensors, keys) as matched:
            result = function(*arguments, **options)
        for option, values in (("--ignore-tensors", tensors), ("--ignore-config-keys", keys)):
            if absent := [value for value in values if value not in matched]:
                note(f"{option} {' '.join(absent)}: not in any model that was opened")
        return result

    added = inspect.Parameter("ignored", inspect.Parameter.KEYWORD_ONLY, default=NOTHING, annotation=IgnoredParts)
    with_options.__annotations__ = {**function.__annotations__, "ignored": IgnoredParts}
    with_options.__signature__ = signature.replace(  # pyrefly: ignore
        parameters=[*signature.parameters.values(), added]
    )
    commands.default_command = with_options
