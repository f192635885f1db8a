"""bertkit data"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.output import Columns, LabelNames, OutPath, emit, note
from bertkit.cli.task_options import check_options_of, given_options, options_of
from bertkit.errors import DataError, UsageError
from bertkit.files import extension
from bertkit.files.json_files import write_json_lines
from bertkit.files.whole_files import check_writable
from bertkit.tasks import TASKS, SequenceClassification
from bertkit.tasks.reading.labels import MULTI_LABEL

if TYPE_CHECKING:
    from bertkit.files import BadRows

ReadingOptions: Any = options_of(TASKS.values(), of_reading=True)
AS_FOUND = ReadingOptions()
_OTHER_TASK = (" column", "'choices'", " is a folder")
"""Parts of errors for a file that is not for the task."""
_NO_CONLL = (" fields, the first line has ", " has no tag: ", " has an empty field, the word")
"""Parts of errors for a txt file that has a text, not a word, on each line."""
_SHOWN = 3  # skipped rows


def command(
    file: Path,
    /,
    *,
    task: str | None = None,
    columns: Columns = None,
    label_names: LabelNames = None,
    reading: ReadingOptions = AS_FOUND,
    out: OutPath | None = None,
) -> None:
    """Show what a file of labeled examples holds and how it would be read: format, task, labels, an example, doubts.

    Parameters
    ----------
    file
        csv, tsv, jsonl, parquet, CoNLL, SQuAD json, or a file of an annotation tool; a folder of brat.
    task
        Read it for this task; by default the first task that can read it.
    out
        Write the examples to this file, in bertkit's jsonl format.
    """
    from bertkit.advice import spelled_alike
    from bertkit.cli.labeled_files import columns_of
    from bertkit.tasks import ExampleFile, GuessRank, RowTask, task_kind
    from bertkit.tasks.reading import BadRows
    from bertkit.tasks.reading.formats import format_of

    if out is not None:
        check_writable(out, file, endings=(".jsonl",))
    options = given_options(reading)
    if task is None:
        kinds = sorted((kind for kind in TASKS.values() if kind.guess_rank), key=lambda kind: kind.guess_rank or 0)
    else:
        kinds = [task_kind(task, RowTask)]
        check_options_of(task, options)
    errors: list[str] = []
    for kind in kinds:
        name = kind.name
        if task is None and kind.guess_rank == GuessRank.TEXTS and _likely(errors, file):
            continue
        bad_rows, roles = BadRows(skip=True), columns_of(columns)
        request = ExampleFile(file, True, roles, kind.labels_in(options), bad_rows, options, label_names)
        try:
            examples = list(kind.read(request))
        except (DataError, UsageError) as error:
            errors.append(f"{name}: {error}")
            continue
        if task is None and len(bad_rows.rows) > len(examples):
            errors.append(f"{name}: {bad_rows.rows[0]}")
            continue
        said = [*bad_rows.noted(), *(row.why for row in bad_rows.rows)]
        if task is None and any(MULTI_LABEL in sentence for sentence in said):
            continue
        if task is None and (why := kind.contradiction(examples)):
            errors.append(f"{name}: {file} has {why}")
            continue
        labels = Counter(label for example in examples for label in example.labels)
        break
    else:
        likely = _likely(errors, file) or [error for error in errors if ": columns: unknown" not in error] or errors
        reason, number = Counter(error.partition(": ")[2] for error in likely).most_common(1)[0]
        if task is not None or (number > 1 and 2 * number > len(likely)):  # the fault of the file
            raise DataError(reason)
        reason = next((error for error in likely if error.startswith(SequenceClassification.name)), likely[-1])
        raise DataError(f"{file} cannot be read for any task; {reason}; --task says why it is not for another one")
    form = format_of(file)
    is_read_as_form = form is not None and (str(file), f"read as {form.name}") in bad_rows.notes
    facts = {
        "file": str(file), "format": form.name if is_read_as_form else file.suffix.lstrip(".") or "CoNLL", "task": name,
        "num_examples": len(examples), "rows_skipped": len(bad_rows.rows), "num_labels": len(labels),
    }  # fmt: skip
    emit([facts | {"labels": dict(labels.most_common()), "example": examples[0].row()}])
    for sentence in [*_likely(errors, file), *_doubts(bad_rows, spelled_alike(labels))]:
        note(sentence)
    if out is not None:
        write_json_lines(out, (example.row() for example in examples))
        note(f"{out}: {len(examples)} rows")


def _likely(errors: list[str], file: Path) -> list[str]:
    """The errors of tasks whose columns the file has."""
    reasons = _OTHER_TASK + (_NO_CONLL if extension(file) == ".txt" else ())
    return [error for error in errors if not any(reason in error for reason in reasons)]


def _doubts(bad_rows: "BadRows", alike: str) -> Iterator[str]:
    yield from bad_rows.noted()
    if alike:
        yield alike
    if bad_rows.rows:
        yield f"{len(bad_rows.rows)} rows cannot be used:"
        yield from (f"  {row}" for row in bad_rows.rows[:_SHOWN])
