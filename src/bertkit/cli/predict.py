"""bertkit predict"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from bertkit.cli.models import EXACT, Compute, open_trained
from bertkit.cli.output import emit, note
from bertkit.files.whole_files import check_writable, whole_file

if TYPE_CHECKING:
    from bertkit.inference import PredictReport
    from bertkit.model import Model

_ECHOED = ("id", "text", "pair", "question", "context", "choices")
"""What a row of results repeats of its example, but for the context of a question, which may be as long as a book."""


def command(
    *,
    model: str,
    input: Annotated[str, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)],
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    skip_bad: bool = False,
    no_answer_threshold: float | None = None,
    compute: Compute = EXACT,
) -> None:
    """What a trained model says of every row of a file, in the order of the rows.

    Parameters
    ----------
    model
        A model that was trained for a task: a folder, a hub name, or the import name of an installed model package.
    input
        csv, tsv, jsonl or parquet, or txt with a text on each line; "-" is standard input.
    output
        A jsonl file, which appears whole; without it the rows go to stdout.
    columns
        Columns by role, such as text=sentence, where their names are not recognized.
    skip_bad
        Set rows aside that cannot be read, and count them.
    no_answer_threshold
        A question has no answer where that scores higher than the best one by more than so much; by default as the
        model's folder says.
    """
    from bertkit.cli.labeled_files import columns_of, tell_of, tell_of_cut
    from bertkit.inference import PredictReport
    from bertkit.tasks import ExampleFile
    from bertkit.tasks.reading import BadRows

    if output is not None:
        check_writable(output)
    opened = open_trained(model, compute, no_answer_threshold)
    report, bad_rows = PredictReport(), BadRows(skip=skip_bad)
    examples = opened.trained.task.read(ExampleFile(input, False, columns_of(columns), bad_rows=bad_rows))
    rows = _rows(opened, examples, report)
    if output is None:
        emit(rows)
    else:
        with whole_file(output) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        note(f"{output}: {report.num_examples} rows")
    tell_of(bad_rows.rows)
    tell_of_cut(report)


def _rows(model: "Model", examples: Iterator[Any], report: "PredictReport") -> Iterator[dict[str, Any]]:
    for part, predictions in model.predict_stream(examples, report=report):
        for example, prediction in zip(part, predictions, strict=True):
            echoed = {name: getattr(example, name, None) for name in _ECHOED}
            if echoed["question"] is not None:
                del echoed["context"]
            yield {name: value for name, value in echoed.items() if value not in (None, "")} | asdict(prediction)
