"""bertkit calibrate"""

from dataclasses import asdict
from os.path import expanduser
from pathlib import Path
from typing import Any

from bertkit.checkpoint.own_record import NAME as OWN_RECORD
from bertkit.cli.models import EXACT, Compute, open_model
from bertkit.cli.output import Columns, SkipBad, emit, note
from bertkit.errors import DataError, UsageError
from bertkit.files.whole_files import check_writable


def command(
    data: Path,
    *,
    model: Path,
    error: float | None = None,
    recall: float | None = None,
    entity_precision: float | None = None,
    columns: Columns = None,
    skip_bad: SkipBad = False,
    compute: Compute = EXACT,
) -> None:
    """Choose a threshold on labeled examples that keeps a promise on others like them, and store it in the model.

    Parameters
    ----------
    data
        Labeled examples that the model was not trained on: csv, tsv, jsonl or parquet; for an extraction model texts
        with spans, or CoNLL.
    model
        The folder of a classifier, a tagger or an extraction model, which is changed.
    error
        Of a classifier: the largest share of the answered texts that may get a wrong label, on average over draws of
        the examples; by default 0.05. For texts of which it is not sure enough, it then abstains.
    recall
        Of a tagger or extraction model: the smallest share of entities that must be found; by default 0.95.
    entity_precision
        Of these instead: the smallest share of the found entities that must be right.
    """
    from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_reading, note_skipped
    from bertkit.evidence.promises import SHARES, promise, promises_of, store_promise
    from bertkit.locate import is_adapter
    from bertkit.tasks.example_file import labeled_file
    from bertkit.tasks.reading.tagged import read_tagged

    folder, bad_rows, roles = Path(expanduser(model)), bad_rows_of(skip_bad), columns_of(columns)
    if not folder.is_dir() or is_adapter(str(folder)):
        raise UsageError(f"{model} is not a folder of a whole model, where the threshold is stored: save it first")
    check_writable(folder / OWN_RECORD)
    asked = {"error": error, "recall": recall, "precision": entity_precision}
    shares = {kind: share for kind, share in asked.items() if share is not None}
    if len(shares) > 1:
        raise UsageError(f"{' and '.join(shares)} are asked for: a threshold keeps one promise, so give one of them")
    opened = open_model(str(folder), compute)
    able = promises_of(opened)
    kind = next(iter(shares or able), None)
    if kind not in able:
        able_to = " or ".join(able) or "nothing: expected a classifier with one label for each text, or a tagger"
        raise UsageError(f"{model} can promise {able_to}" + (f", and no {kind}" if kind and able else ""))
    if opened.is_extractor:
        rows = list(read_tagged(data, columns=roles, scheme="BIO", snap_spans=True, bad_rows=bad_rows))
    else:
        task: Any = opened.trained.task
        rows = list(task.read(labeled_file(task, data, columns=roles, bad_rows=bad_rows)))
    if not rows:
        raise DataError(f"{data} has no rows: expected labeled examples")
    kept = promise(opened, rows, kind, shares.get(kind, SHARES[kind]))
    store_promise(folder, opened, kept)
    note_reading(bad_rows)
    note_skipped(bad_rows.rows)
    emit([asdict(kept)])
    note(f"{folder}: stored; predictions and extraction use it from now on")
