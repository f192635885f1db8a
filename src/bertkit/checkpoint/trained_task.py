"""The task of a model folder, from ``bertkit.json`` or else from the config."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertkit import tasks
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.checkpoint.own_record import NAME, read_section
from bertkit.errors import CheckpointError, UsageError
from bertkit.files.json_files import member
from bertkit.tokenizer.layout import Layout


def read_task(
    folder: Path, heads: Collection[str], label_names: Sequence[str] | None, problem_type: str | None, longest: int
) -> TrainedTask | None:
    """The task that a stored head was trained for.

    Args:
        longest: maximum sequence length of the model, used if no length is stored.

    Raises:
        CheckpointError: a malformed record, or an unknown task.
    """
    record, names = read_section(folder, "task"), None if label_names is None else tuple(label_names)
    if record is None:
        known = (tasks.published_task(head, names, problem_type) for head in heads)
        task = next((task for task in known if task is not None), None)
        return None if task is None else TrainedTask(task, Layout(longest, "truncate"))
    trained = replace(task_of_record(record, folder / NAME, names, longest), card=_card(folder))
    return trained if trained.task.head in ("", *heads) else None


def task_of_record(
    record: dict[str, Any], path: Path, label_names: tuple[str, ...] | None, longest: int | None
) -> TrainedTask:
    """The task from a record of `task_json`, which was read from ``path``.

    Args:
        longest: the maximum sequence length, used if no length is stored.

    Raises:
        CheckpointError: a malformed record, or an unknown task.
    """
    settings = member(record, "settings", dict, path, {})
    task = tasks.stored_task(member(record, "name", str, path, ""), label_names, settings, where=path)
    metrics = member(record, "metrics", dict, path, {})
    on_long: Any = member(record, "on_long", str, path, "truncate")
    try:
        layout = Layout(member(record, "max_length", int, path, longest), on_long, member(record, "stride", int, path))
    except UsageError as error:
        raise CheckpointError(f"{path}: {error}") from None
    numbers = {str(name): float(member(metrics, name, float, path, math.nan)) for name in metrics}
    return TrainedTask(task, layout, numbers)


def _card(folder: Path) -> str:
    path = folder / "README.md"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def task_json(trained: TrainedTask) -> dict[str, Any]:
    """The record of a task in ``bertkit.json``; its model card is a separate file."""
    layout = trained.layout
    return {
        "name": trained.task.name,
        "settings": tasks.task_settings(trained.task),
        "max_length": layout.max_length,
        "on_long": layout.on_long,
        "stride": layout.stride,
        "metrics": trained.metrics,
    }
