"""The reader of each task's files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertkit.errors import UsageError
from bertkit.files import BadRows
from bertkit.tasks.reading.choices import read_choices
from bertkit.tasks.reading.questions import read_questions
from bertkit.tasks.reading.tagged import read_tagged
from bertkit.tasks.reading.texts import LabelKind, read_labeled_texts
from bertkit.tasks.tags import guess_scheme

_LABEL_KINDS: Mapping[str, LabelKind] = {
    "sequence-classification": "class",
    "few-shot-classification": "class",
    "multi-label-classification": "set",
    "regression": "number",
    "ordinal-regression": "class",
}


def read_examples(
    task: str,
    path: str | Path,
    *,
    labeled: bool = True,
    columns: Mapping[str, str] = {},
    label_names: Sequence[str] | None = None,
    bad_rows: BadRows | None = None,
) -> Iterator[Any]:
    """The examples of a file for a task of that name, one at a time.

    Args:
        labeled: False: labels are not read.
        columns: names by role, where they cannot be told from the names.
        label_names: the labels there may be, where the task has names; None: any.
        bad_rows: takes the rows that cannot be used; None: such a row is an error.

    Raises:
        DataError: a file or a row that cannot be used.
        UsageError: a task without a reader, or columns for one that has none.
    """
    if task in _LABEL_KINDS:
        kind = _LABEL_KINDS[task] if labeled else None
        return read_labeled_texts(path, kind, columns=columns, label_names=label_names, bad_rows=bad_rows)
    if task == "token-classification":
        scheme = None if label_names is None else guess_scheme(label_names)
        return read_tagged(
            path, labeled=labeled, columns=columns, scheme=scheme, label_names=label_names, bad_rows=bad_rows
        )
    if task == "question-answering":
        return read_questions(path, labeled=labeled, columns=columns, bad_rows=bad_rows)
    if task == "multiple-choice":
        if columns:
            raise UsageError("files of multiple choice have columns of fixed names: leave columns out")
        return read_choices(path, labeled=labeled, bad_rows=bad_rows)
    raise UsageError(f"there is no reader for the task {task!r}")
