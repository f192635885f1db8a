"""Losses and their parameters as options of a task."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import get_type_hints

from bertkit.errors import UsageError
from bertkit.tasks.losses import OBJECTIVES
from bertkit.tasks.losses.loss import ROW_KINDS, SentenceLoss
from bertkit.tasks.task import Option


def losses_of(task: str, *needs: str) -> dict[str, type[SentenceLoss]]:
    """The losses of a task that need these kinds of rows, by default all, by objective."""
    return {
        objective: loss
        for objective, loss in OBJECTIVES.items()
        if task in loss.tasks and (not needs or loss.needs in needs)
    }


def loss_class(task: str, objective: str) -> type[SentenceLoss]:
    """A loss of a task by its objective.

    Raises:
        UsageError: another name.
    """
    losses = losses_of(task)
    if objective not in losses:
        raise UsageError(f"objective={objective!r}: expected one of {', '.join(losses)}")
    return losses[objective]


def parameters_of(task: str) -> dict[str, dict[str, Field]]:
    """The parameters of the losses of a task: for each name its field in the loss of each objective that has it."""
    parameters: dict[str, dict[str, Field]] = {}
    for objective, loss in losses_of(task).items():
        for part in fields(loss):
            parameters.setdefault(part.name, {})[objective] = part
    return parameters


class LossOptions(Mapping[str, Option]):
    """The options of a task with losses: the objective, the parameters of all its losses, and ``others``.

    Losses that are registered later are included.
    """

    def __init__(self, task: str, others: Mapping[str, Option]) -> None:
        self._task, self._others = task, others

    def _all(self) -> dict[str, Option]:
        usual = [
            f"{objective} for {' or '.join(ROW_KINDS[kind] for kind in loss.default_for)}"
            + (f" ({loss.expected_scores()})" if loss.needs == "any" and loss.expected_scores() else "")
            for objective, loss in losses_of(self._task).items()
            if loss.default_for
        ]
        names = ", ".join(losses_of(self._task))
        options = {"objective": Option(str, f"For {self._task}: {names}; by default {', '.join(usual)}.")}
        for name, of_objectives in parameters_of(self._task).items():
            objective = next(iter(of_objectives))
            objectives_by_help: dict[str, list[str]] = {}
            for each, part in of_objectives.items():
                default = "" if part.default in (None, MISSING) else f" (default {part.default})"
                objectives_by_help.setdefault(part.metadata["help"], []).append(each + default)
            help = [f"For {self._task} with {', '.join(each)}: {help}." for help, each in objectives_by_help.items()]
            options[name] = Option(get_type_hints(OBJECTIVES[objective])[name], " ".join(help))
        return options | dict(self._others)

    def __getitem__(self, name: str) -> Option:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
