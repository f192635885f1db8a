"""bertkit check TASK: a command for each task, with its options"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import Columns, Device, LabelNames, SkipBad, emit, note
from bertkit.cli.task_options import command_attribute, given_options, options_of, summary_of
from bertkit.tasks import ExampleFile, JudgedTask, tasks_of


def _for_task(kind: type[JudgedTask]) -> Callable[..., None]:
    """The command of a task."""
    reading_type = options_of([kind], of_reading=True)
    as_found = reading_type()

    def check(
        *,
        train: Path,
        model: str = EMBEDDING_MODEL,
        columns: Columns = None,
        label_names: LabelNames = None,
        skip_bad: SkipBad = False,
        reading: reading_type = as_found,
        report: Path | None = None,
        precision: Literal["float32", "bfloat16"] = "float32",
        device: Device = "auto",
    ) -> None:
        from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_reading, note_skipped
        from bertkit.finetuning.cross_validation import check_training_data
        from bertkit.reports.report_file import checked_report
        from bertkit.reports.training_data import write_training_data_report

        if report is not None:
            checked_report(report, train)
        options, roles, bad_rows = given_options(reading), columns_of(columns), bad_rows_of(skip_bad)
        labels = kind.labels_in(options)
        examples = list(kind.read(ExampleFile(train, True, roles, labels, bad_rows, options, label_names)))
        kind.check_columns(examples, roles)
        note_reading(bad_rows)
        note_skipped(bad_rows.rows)
        checked = check_training_data(model, kind.name, examples, options=options, precision=precision, device=device)
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

    check.__doc__ = """Check training data before training: imbalance, repeated texts, likely label errors.

    Labels are compared with predictions of classifiers fitted to other rows, on features of a frozen encoder.

    Parameters
    ----------
    train
        Examples with labels: csv, tsv, jsonl or parquet; for tags CoNLL.
    model
        The encoder: a folder, a hub name, or the import name of an installed model package.
    report
        An HTML file for the findings, with a JSON file next to it.
    precision
        Precision of the encoder.
    """
    return check


__getattr__ = command_attribute(
    "check", lambda: ((task.name, summary_of(task), _for_task(task)) for task in tasks_of(JudgedTask).values())
)
