"""Registry of tasks by name, and tasks from model directories."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from bertkit.errors import CheckpointError, UsageError
from bertkit.tasks.alignment import Alignment
from bertkit.tasks.cross_encoder import CrossEncoding
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.extraction import Extraction
from bertkit.tasks.few_shot import FewShotClassification
from bertkit.tasks.generative import CausalLanguageModel, SequenceToSequence
from bertkit.tasks.multiple_choice import MultipleChoice
from bertkit.tasks.question_answering import QuestionAnswering
from bertkit.tasks.regression import OrdinalRegression, Regression
from bertkit.tasks.sequence_classification import MultiLabelClassification, SequenceClassification
from bertkit.tasks.siamese import SiameseClassification
from bertkit.tasks.similarity import Similarity
from bertkit.tasks.task import RowTask, TextTask
from bertkit.tasks.token_classification import TokenClassification

_KINDS: tuple[type[RowTask], ...] = (
    SequenceClassification,
    FewShotClassification,
    MultiLabelClassification,
    Regression,
    OrdinalRegression,
    TokenClassification,
    QuestionAnswering,
    MultipleChoice,
    Similarity,
    SiameseClassification,
    CrossEncoding,
    Alignment,
    SequenceToSequence,
    CausalLanguageModel,
    Extraction,
)

TASKS: dict[str, type[RowTask]] = {task.name: task for task in _KINDS}

_Kind = TypeVar("_Kind", bound=RowTask)


def tasks_of(kind: type[_Kind]) -> dict[str, type[_Kind]]:
    """Tasks of a kind by name: `TextTask`; `JudgedTask`, with evidence and with checks of training data;
    `GenerativeTask`; `RowTask`, all of them."""
    return {name: task for name, task in TASKS.items() if issubclass(task, kind)}


def task_kind(name: str, kind: type[_Kind] = TextTask) -> type[_Kind]:
    """Task class by name.

    Raises:
        UsageError: no task of this kind.
    """
    tasks = tasks_of(kind)
    if name not in tasks:
        raise UsageError(f"task {name!r}: expected one of {', '.join(tasks)}")
    return tasks[name]


def task_settings(task: TextTask) -> dict[str, Any]:
    """The settings of a task, without label names, which are in ``config.json``."""
    names = [part.name for part in fields(task)]  # pyrefly: ignore
    return {name: getattr(task, name) for name in names if name != "label_names"}


def stored_task(name: str, label_names: tuple[str, ...] | None, settings: Mapping[str, Any], where: object) -> TextTask:
    """The task recorded in a model directory.

    Raises:
        CheckpointError: no such task, an unknown setting, or an invalid value.
    """
    tasks: Mapping[str, Any] = tasks_of(TextTask)
    if name not in tasks:
        raise CheckpointError(f"{where}: task {name!r} is not one of {', '.join(tasks)}")
    make = tasks[name]
    known = {part.name for part in fields(make)} - {"label_names"}
    if unknown := settings.keys() - known:
        shown = f"{', '.join(sorted(unknown))!r:.60}"
        raise CheckpointError(f"{where}: task.settings has {shown}: {name} has {', '.join(sorted(known)) or 'none'}")
    try:
        return make(label_names=label_names, **settings)
    except UsageError as error:
        raise CheckpointError(f"{where}: task.settings of {name}: {error}") from None


def published_task(head: str, label_names: tuple[str, ...] | None, problem_type: str | None) -> TextTask | None:
    """The task of a published head without a recorded task, by its config; None if unknown."""
    tasks = (kind.of_published(label_names, problem_type) for kind in tasks_of(TextTask).values() if kind.head == head)
    return next((task for task in tasks if task is not None), None)


def read_examples(task: str, path: str | Path, **reading: Any) -> Iterator[Any]:
    """Read the examples of a file for a task, one at a time; ``reading`` are fields of `ExampleFile`."""
    return task_kind(task, RowTask).read(ExampleFile(path, **reading))
