"""bertkit check"""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import emit, note
from bertkit.cli.task_options import AS_FOUND, ReadingOptions, check_options_of, given_options
from bertkit.tasks import ExampleFile, judged_tasks, task_kind


def command(
    task: Annotated[str, Parameter(help=f"{', '.join(judged_tasks())}.")],
    /,
    *,
    train: Path,
    model: str = EMBEDDING_MODEL,
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    label_names: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    skip_bad: bool = False,
    reading: ReadingOptions = AS_FOUND,
    report: Path | None = None,
    precision: Literal["float32", "bfloat16"] = "float32",
    device: str = "auto",
) -> None:
    """Check training data of classifiers and taggers before training: imbalance, repeated texts, likely label errors.

    Labels are compared with predictions of classifiers fitted to other rows, on features of a frozen encoder.

    Parameters
    ----------
    train
        Examples with labels: csv, tsv, jsonl or parquet; for tags CoNLL.
    model
        The encoder: a folder, a hub name, or the import name of an installed model package.
    columns
        Columns by role, such as text=sentence label=polarity, where their names are not recognized.
    label_names
        Names of labels that are integers in the file, in order from 0.
    skip_bad
        Skip rows that cannot be used, and count them.
    report
        An HTML file for the findings, with a JSON file next to it.
    precision
        Precision of the encoder.
    device
        auto, cpu, cuda or mps.
    """
    from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_reading, note_skipped
    from bertkit.finetuning.cross_validation import check_training_data
    from bertkit.reports.report_file import checked_report
    from bertkit.reports.training_data import write_training_data_report

    if report is not None:
        checked_report(report, train)
    kind, roles, bad_rows = task_kind(task, judged_tasks()), columns_of(columns), bad_rows_of(skip_bad)
    options = given_options(reading)
    check_options_of(task, options, judged_tasks())
    labels = kind.labels_in(options)
    examples = list(kind.read(ExampleFile(train, True, roles, labels, bad_rows, options, label_names)))
    kind.check_columns(examples, roles)
    note_reading(bad_rows)
    note_skipped(bad_rows.rows)
    checked = check_training_data(model, task, examples, options=options, precision=precision, device=device)
    for _, sentence in checked.findings():
        note(sentence)
    if report is None and checked.has_rows:
        note("--report FILE.html lists these rows")
    if report is not None:
        write_training_data_report(checked, report, title=f"{train.name} before training")
    row: dict[str, Any] = {
        "task": checked.task, "num_examples": checked.num_examples, "num_labels": checked.num_labels,
        "rows_skipped": len(bad_rows.rows), "num_repeated": checked.num_repeated,
        "num_contradicting": checked.num_contradicting, "num_likely_label_errors": checked.label_errors.num_likely,
        f"frozen_{checked.metric}": checked.scores[checked.metric].value,
    }  # fmt: skip
    emit([row] if not sys.stdout.isatty() else ({"fact": name, "value": value} for name, value in row.items()))
