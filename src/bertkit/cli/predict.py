"""bertkit predict"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bertkit.cli.models import EXACT, Compute, change_trained, open_model
from bertkit.cli.output import InputFile, OutPath, SkipBad, Values, emit, note
from bertkit.files.json_files import json_value, write_json_lines
from bertkit.files.whole_files import check_writable

if TYPE_CHECKING:
    from bertkit.inference import InferenceReport
    from bertkit.model import Model

_ECHOED = ("id", "text", "pair", "question", "context", "choices", "query", "positives", "negatives")
"""Fields of an example that its result row repeats; without the context of a question, which may be very long."""


def command(
    input: InputFile,
    *,
    model: str,
    out: OutPath | None = None,
    columns: Values = None,
    skip_bad: SkipBad = False,
    no_answer_threshold: float | None = None,
    words: str | None = None,
    label_names: Values = None,
    compute: Compute = EXACT,
) -> None:
    """Run a fine-tuned model on every row of a file, in the order of the rows.

    Parameters
    ----------
    model
        A fine-tuned model: a folder, a hub name, or the import name of an installed model package.
    input
        csv, tsv, jsonl or parquet, or txt with a text on each line; "-" is standard input.
    out
        A jsonl file, written atomically; by default rows go to stdout.
    columns
        Columns by role, such as text=sentence, where their names are not recognized.
    no_answer_threshold
        Predict no answer where its score exceeds that of the best answer by more than this; by default the model's
        stored threshold.
    words
        For taggers, the rule for splitting texts into words, punctuation or spaces; by default the model's.
    label_names
        Names of the labels of a model that has LABEL_0 and so on.
    """
    from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_cut, note_reading, note_skipped
    from bertkit.inference import InferenceReport
    from bertkit.inference.fitting_rows import fitting
    from bertkit.tasks import ExampleFile, TextSet

    if out is not None:
        check_writable(out, input, endings=(".jsonl",))
    opened = open_model(model, compute)
    change_trained(opened, no_answer_threshold, words, label_names)
    report, bad_rows = InferenceReport(), bad_rows_of(skip_bad)
    task = opened.trained.task
    examples = task.read(ExampleFile(input, False, columns_of(columns), bad_rows=bad_rows))
    if task.example_type is TextSet:
        examples = (row.with_positive() for row in examples)
    too_long: list[str] = []
    if skip_bad:
        examples = fitting(task, opened.tokenizer, opened.trained.layout, examples, too_long)
    rows = _rows(opened, examples, report)
    if out is None:
        emit(rows)
    else:
        write_json_lines(out, map(json_value, rows))
        note(f"{out}: {report.num_texts} rows")
    note_reading(bad_rows)
    note_skipped([*bad_rows.rows, *too_long])
    note_cut(report)


def _rows(model: "Model", examples: Iterator[Any], report: "InferenceReport") -> Iterator[dict[str, Any]]:
    for part, predictions in model.predict_stream(examples, report=report):
        for example, prediction in zip(part, predictions, strict=True):
            echoed = {name: getattr(example, name, None) for name in _ECHOED}
            if echoed["question"] is not None:
                del echoed["context"]
            if not echoed["id"]:
                del echoed["id"]
            yield {name: value for name, value in echoed.items() if value not in (None, ())} | asdict(prediction)
