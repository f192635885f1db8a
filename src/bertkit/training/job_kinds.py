"""Runs of tasks that are not over texts, known before torch is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bertkit.tasks.settings import Settings
from bertkit.tasks.task import RowTask

if TYPE_CHECKING:
    from bertkit.training.example_job import ExampleJob


@dataclass(frozen=True)
class JobKind:
    """The run of a kind of tasks: its default settings, and how it is made from ``out``, ``task`` (a name), ``model``
    and the other fields of an `ExampleJob`."""

    tasks: type[RowTask]
    settings: Settings
    make: Callable[..., ExampleJob]
