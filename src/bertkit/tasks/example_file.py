"""A file of examples, and how to read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertkit.files import BadRows


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
