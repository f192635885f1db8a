"""bertkit calibrate"""

from dataclasses import asdict
from os.path import expanduser
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.cli.models import EXACT, Compute, open_trained
from bertkit.cli.output import emit, note
from bertkit.errors import DataError, UsageError


def command(
    data: Path,
    *,
    model: Path,
    error: float | None = None,
    recall: float | None = None,
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    skip_bad: bool = False,
    compute: Compute = EXACT,
) -> None:
    """Choose a threshold on labeled examples that keeps a promise on others like them, and store it in the model.

    Parameters
    ----------
    data
        Labeled examples that the model was not trained on: csv, tsv, jsonl or parquet; for an extraction model texts
        with spans, or CoNLL.
    model
        The folder of a classifier or of an extraction model, which is changed.
    error
        Of a classifier: the largest share of all texts that may get a wrong label; by default 0.05. For texts of
        which it is not sure enough, it then abstains.
    recall
        Of an extraction model: the smallest share of entities that must be found; by default 0.95.
    columns
        Columns by role, such as text=sentence label=polarity, where their names are not recognized.
    skip_bad
        Skip rows that cannot be used, and count them.
    """
    from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_reading, note_skipped
    from bertkit.evidence.promises import promise_error, promise_recall, store_error, store_recall
    from bertkit.extraction.opening import open_extractor
    from bertkit.extraction.settings import is_extraction
    from bertkit.locate import is_adapter
    from bertkit.tasks.example_file import labeled_file
    from bertkit.tasks.reading.tagged import read_tagged

    folder, bad_rows = Path(expanduser(model)), bad_rows_of(skip_bad)
    if not folder.is_dir() or is_adapter(str(folder)):
        raise UsageError(f"{model} is not a folder of a whole model, where the threshold is stored: save it first")
    finds_entities = is_extraction(folder)
    if (error if finds_entities else recall) is not None:
        raise UsageError("--error is for a classifier, and --recall for an extraction model: choose the other one")
    roles = columns_of(columns)
    promise: Any
    if finds_entities:
        rows = list(read_tagged(data, columns=roles, scheme="BIO", snap_spans=True, bad_rows=bad_rows))
        _check_rows(rows, data)
        extractor = open_extractor(folder, precision=compute.precision, device=compute.device)
        promise = promise_recall(extractor, rows, 0.95 if recall is None else recall)
        store_recall(folder, promise)
    else:
        opened = open_trained(str(folder), compute)
        task = opened.trained.task
        rows = list(task.read(labeled_file(task, data, columns=roles, bad_rows=bad_rows)))
        _check_rows(rows, data)
        promise = promise_error(opened, rows, 0.05 if error is None else error)
        store_error(folder, opened)
    note_reading(bad_rows)
    note_skipped(bad_rows.rows)
    emit([asdict(promise)])
    note(f"{folder}: stored; predictions and extraction use it from now on")


def _check_rows(rows: list[Any], data: Path) -> None:
    if not rows:
        raise DataError(f"{data} has no rows: expected labeled examples")
