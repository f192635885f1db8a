"""A file of examples, and how to read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.files import BadRows

if TYPE_CHECKING:
    from bertkit.tasks.task import RowTask, TextTask


class GuessRank(IntEnum):
    """What a file must have for its task to be guessed; the lower ones are tried first."""

    OWN_COLUMNS = 1
    LABELS = 2
    TEXTS = 3


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


def read_train_and_dev(
    kind: type["RowTask"],
    train: Sequence[str | Path],
    dev: str | Path | None = None,
    *,
    columns: Mapping[str, str] = {},
    options: Mapping[str, Any] = {},
    class_names: Sequence[str] | None = None,
    bad_rows: BadRows | None = None,
) -> tuple[list[Any], list[Any]]:
    """Training examples, and dev examples that are read with the labels of the training examples.

    Args:
        options: of `TextTask.of_examples`.
        class_names, bad_rows: as in `ExampleFile`.

    Raises:
        DataError: a row that cannot be used, unless ``bad_rows`` skips it; or a label column without a 1.
    """
    labels = kind.labels_in(options)
    files = [ExampleFile(path, True, columns, labels, bad_rows, options, class_names) for path in train]
    examples = [kind.in_dataset(example, number) for number, file in enumerate(files) for example in kind.read(file)]
    kind.check_columns(examples, columns)
    return examples, [] if dev is None else list(kind.read_dev(replace(files[0], path=dev), examples))
