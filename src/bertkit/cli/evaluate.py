"""bertkit evaluate"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.models import EXACT, PRETRAINED_MODEL, Compute, open_model, open_trained
from bertkit.cli.output import emit, note
from bertkit.errors import UsageError
from bertkit.whole_files import whole_file

if TYPE_CHECKING:
    from bertkit.model import Model


def command(
    *,
    data: Path | None = None,
    suite: Path | None = None,
    model: str | None = None,
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    skip_bad: bool = False,
    no_answer_threshold: float | None = None,
    card: bool = False,
    method: Literal["plain", "l2r"] | None = None,
    limit: int | None = None,
    compute: Compute = EXACT,
) -> None:
    """Measure what a model knows: its task, on labelled data, or grammar, on minimal pairs.

    Parameters
    ----------
    data
        Examples with labels for the task that the model was trained for: csv, tsv or jsonl; for some tasks CoNLL or
        SQuAD json. Labels are matched by name; one that the model does not know is an error.
    suite
        Grammatical minimal pairs, a file or a folder: jsonl as of BLiMP, txt as of Zorro. The score is the share of
        pairs in which the good sentence is the more likely one.
    model
        A folder, a hub name, or the import name of an installed model package. With --suite it needs a masked LM head;
        bert-base-uncased if none is named.
    columns
        With --data: which column is what, such as text=sentence label=polarity, where the names do not tell.
    skip_bad
        With --data: set rows aside that cannot be used, and count them.
    no_answer_threshold
        With --data: a question has no answer where that scores higher than the best one by more than so much; by
        default as the model's folder says. The threshold with the best F1 is among the metrics.
    card
        With --data: write the scores into the README.md of the model's folder, as a section of its own.
    method
        With --suite, how likelihood is measured: plain, each token from all others; l2r, without the later pieces of
        its own word. By default plain.
    limit
        With --suite: only the first so many pairs of each paradigm.
    """
    if (data is None) == (suite is None):
        raise UsageError("evaluate takes one of --data, labelled examples of a task, and --suite, minimal pairs")
    if data is not None:
        if method is not None or limit is not None:
            raise UsageError("--method and --limit go with --suite")
        if model is None:
            raise UsageError("--data needs --model: a model that was trained for a task")
        folder = Path(model).expanduser()
        if card and not folder.is_dir():
            raise UsageError(f"--card writes into the model's folder, and {model} is none")
        opened = open_trained(model, compute, no_answer_threshold)
        _evaluate_task(opened, data, columns, skip_bad, folder / "README.md" if card else None)
    elif suite is not None:
        if columns or skip_bad or no_answer_threshold is not None or card:
            raise UsageError("--columns, --skip-bad, --no-answer-threshold and --card go with --data")
        _evaluate_grammar(model or PRETRAINED_MODEL, suite, method or "plain", limit, compute)


def _evaluate_task(model: "Model", data: Path, columns: list[str] | None, skip_bad: bool, card: Path | None) -> None:
    from bertkit.cli.labelled_files import columns_of, tell_of, tell_of_cut
    from bertkit.inference import PredictReport
    from bertkit.tasks.reading import BadRows, read_examples

    task, report, bad_rows = model.trained.task, PredictReport(), BadRows(skip=skip_bad)
    examples = read_examples(
        task.name, data, columns=columns_of(columns), label_names=task.known_labels, bad_rows=bad_rows
    )
    metrics = model.evaluate(examples, report=report)
    tell_of(bad_rows.rows)
    tell_of_cut(report)
    if "unanswerable_accuracy" in metrics and "best_f1_threshold" not in metrics:
        note(
            "some questions have no answer, and this model always gives one: --no-answer-threshold 0 lets it give none"
        )
    row: dict[str, Any] = {"task": task.name, "num_examples": report.num_examples, "rows_set_aside": len(bad_rows.rows)}
    emit([row | metrics])
    if card is not None:
        from bertkit.finetuning import scores_section, with_section

        section = scores_section(data, task.name, report.num_examples, len(bad_rows.rows), metrics)
        text = card.read_text(encoding="utf-8") if card.is_file() else ""
        with whole_file(card) as temporary:
            temporary.write_text(with_section(text, *section), encoding="utf-8")
        note(f"{card}: the section '{section[0]}' is new")


def _evaluate_grammar(
    model: str, suite: Path, method: Literal["plain", "l2r"], limit: int | None, compute: Compute
) -> None:
    from bertkit.evidence import read_suite, score_minimal_pairs

    paradigms = read_suite(suite, limit)
    score = score_minimal_pairs(open_model(model, compute), paradigms, method=method)
    emit({"method": score.method, **row} for row in score.rows())
    if sys.stdout.isatty():
        note("accuracy: the good sentence is strictly more likely; interval: 95 %")
