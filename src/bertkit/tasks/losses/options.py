"""The losses of a task, and their parameters as its options."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from bertkit.errors import UsageError
from bertkit.tasks.losses import OBJECTIVES, SentenceLoss
from bertkit.tasks.task import Option

_KINDS = {
    "pairs": "rows without scores",
    "scores": "pairs with scores",
    "binary": "pairs with 0 and 1",
    "teacher": "texts with scores of a teacher",
}


def losses_of(task: str, *needs: str) -> dict[str, type[SentenceLoss]]:
    """The losses of a task by objective; with ``needs``, those that need one of these kinds of rows."""
    losses = {objective: loss for objective, loss in OBJECTIVES.items() if task in loss.tasks}
    return {objective: loss for objective, loss in losses.items() if not needs or loss.needs in needs}


def loss_class(task: str, objective: str) -> type[SentenceLoss]:
    """A loss of a task by its objective.

    Raises:
        UsageError: another name.
    """
    losses = losses_of(task)
    if objective not in losses:
        raise UsageError(f"objective={objective!r}: expected one of {', '.join(losses)}")
    return losses[objective]


def parameters_of(task: str) -> dict[str, list[str]]:
    """The parameters of the losses of a task, each with the objectives that have it."""
    parameters: dict[str, list[str]] = {}
    for objective, loss in losses_of(task).items():
        for part in fields(loss):
            parameters.setdefault(part.name, []).append(objective)
    return parameters


class LossOptions:
    """The attribute ``options`` of a task: its objective, the parameters of its losses, and further options.

    Losses that are registered later are included.
    """

    def __init__(self, **options: Option) -> None:
        self._options = options

    def __get__(self, instance: Any, owner: type[Any]) -> Mapping[str, Option]:
        losses = losses_of(owner.name)
        usual = [
            f"{objective} for {' or '.join(map(_KINDS.__getitem__, loss.default_for))}"
            for objective, loss in losses.items()
            if loss.default_for
        ]
        help = f"For {owner.name}: {', '.join(losses)}; by default the first that fits: {', '.join(usual)}."
        options = {"objective": Option(str, help)}
        for objective, loss in losses.items():
            hints = get_type_hints(loss)
            for part in fields(loss):
                help = f"For {owner.name} with {objective}: {part.metadata['help']} (default {part.default})."
                if part.name in options:
                    help = f"{options[part.name].help} {help}"
                options[part.name] = Option(hints[part.name], help)
        return options | self._options
