"""A file of examples, and how to read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.files import BadRows

if TYPE_CHECKING:
    from bertkit.tasks.task import TextTask


@dataclass(frozen=True)
class ExampleFile:
    """A file of examples, with reading options.

    Attributes:
        labeled: False: labels are not read.
        columns: names by role, if they are not recognized.
        label_names: allowed labels, for tasks with label names; None: any.
        bad_rows: receives unusable rows, and notes; None: such a row is an error.
        options: options of `TextTask.of_examples` that reading depends on, or `TextTask.reading_options`.
        class_names: names of labels that the file has as integers from 0.
    """

    path: str | Path
    labeled: bool = True
    columns: Mapping[str, str] = field(default_factory=dict)
    label_names: Sequence[str] | None = None
    bad_rows: BadRows | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    class_names: Sequence[str] | None = None


def labeled_file(
    task: "TextTask",
    path: str | Path,
    *,
    columns: Mapping[str, str] = {},
    class_names: Sequence[str] | None = None,
    bad_rows: BadRows | None = None,
    **options: Any,
) -> ExampleFile:
    """A file of labeled examples, read with the labels and reading options of a task.

    Args:
        options: options of reading that are not settings of the task, such as "snap_spans"; False: as without it.

    Raises:
        UsageError: an option that the task does not have.
    """
    options = {name: value for name, value in options.items() if value is not False}
    task.check_options(options)
    return ExampleFile(path, True, columns, task.known_labels, bad_rows, options | task.reading_options, class_names)
