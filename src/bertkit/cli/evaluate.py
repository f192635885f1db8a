"""bertkit evaluate [retrieval | similarity | grammar]"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from bertkit.cli.models import EXACT, Compute, open_trained
from bertkit.cli.output import Columns, ModelName, SkipBad, Values, emit, note
from bertkit.errors import UsageError
from bertkit.files.whole_files import check_writable, whole_file
from bertkit.locate import locate

if TYPE_CHECKING:
    from bertkit.evidence import Evidence
    from bertkit.model import Model


command = App(name="evaluate")
for name, summary in {
    "retrieval": "Evaluate vectors or a cross-encoder on queries and their relevant documents.",
    "similarity": "Evaluate vectors or a cross-encoder on scored pairs of texts.",
    "grammar": "Evaluate a masked LM on grammatical minimal pairs.",
}.items():
    command.command(f"bertkit.cli.evaluate_{name}:command", name=name, help=summary)


@command.default
def examples(
    data: Path,
    *,
    model: ModelName,
    columns: Columns = None,
    skip_bad: SkipBad = False,
    no_answer_threshold: float | None = None,
    words: str | None = None,
    snap_spans: bool = False,
    label_names: Values = None,
    report: Path | None = None,
    train: Path | None = None,
    seeds: Values = None,
    card: bool = False,
    compute: Compute = EXACT,
) -> None:
    """Evaluate a fine-tuned model on labeled examples of its task; or a model on a benchmark, with one of the commands.

    Parameters
    ----------
    data
        Labeled examples of the task that the model was trained for: csv, tsv, jsonl or parquet; for some tasks
        CoNLL or SQuAD json. Labels are matched by name; an unknown label is an error.
    no_answer_threshold
        Predict no answer where its score exceeds that of the best answer by more than this; by default the
        model's stored threshold. The threshold with the best F1 is among the metrics.
    words
        For taggers: the rule of words, punctuation or spaces; by default the model's.
    snap_spans
        For taggers: move spans that begin or end inside a word to its borders, and count them.
    label_names
        Names of labels that are integers in the data or LABEL_0 and so on in the model, in order from 0.
    report
        For classifiers and taggers: an HTML report with a JSON file next to it: confidence intervals, each label,
        confusions, calibration, likely label errors, lengths; with --train also texts that are in the training data,
        and a baseline.
    train
        With --report or --card: the training data of the model.
    seeds
        With --report or --card: models of the same task trained with other seeds, for the spread of scores.
    card
        Write the scores into the README.md of the model's folder, as a separate section; for classifiers
        and taggers also the figures of the report.
    """
    from bertkit.reports.report_file import checked_report

    if (train is not None or seeds) and report is None and not card:
        raise UsageError("--train and --seeds require --report or --card, which show their results")
    folder = Path(expanduser(model))
    if card:
        if not folder.is_dir():
            raise UsageError(f"--card writes into the model's folder, but {model} is not a folder")
        check_writable(folder / "README.md")
    for other in seeds or ():
        locate(other)
    if report is not None:
        checked_report(report, data)
    title = f"{folder.name} on {data.name}"
    opened = open_trained(model, compute, no_answer_threshold, words, label_names, are_of_data=True)
    how = {"class_names": label_names, "snap_spans": snap_spans}
    done = _evaluate_task(opened, how, data, columns, skip_bad, report, train, title, card, seeds or [])
    if card:
        _add_to_card(folder / "README.md", data, done)


@dataclass(frozen=True)
class _Evaluation:
    """The results of an evaluation."""

    task: str
    num_examples: int
    num_set_aside: int
    metrics: dict[str, float]
    evidence: "Evidence | None"  # if requested


def _evaluate_task(
    model: "Model",
    how: dict[str, Any],
    data: Path,
    columns: list[str] | None,
    skip_bad: bool,
    report: Path | None,
    train: Path | None,
    title: str,
    card: bool,
    seeds: list[str],
) -> _Evaluation:
    """Print the metrics, and write the requested report."""
    from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_cut, note_reading, note_skipped
    from bertkit.evidence import gather_evidence
    from bertkit.inference import InferenceReport
    from bertkit.inference.fitting_rows import fitting
    from bertkit.reports.evidence import findings_of, write_evidence_report
    from bertkit.tasks import JudgedTask
    from bertkit.tasks.example_file import labeled_file

    task, counts = model.trained.task, InferenceReport()
    file = partial(labeled_file, task, columns=columns_of(columns), **how)
    skipped: dict[Path, list[Any]] = {}

    def rows_of(path: Path) -> Iterator[Any]:
        bad_rows, too_long = bad_rows_of(skip_bad), []
        examples = task.read(file(path, bad_rows=bad_rows))
        yield from fitting(task, model.tokenizer, model.trained.layout, examples, too_long) if skip_bad else examples
        note_reading(bad_rows)
        skipped[path] = [*bad_rows.rows, *too_long]

    evidence = None
    others = train is not None or seeds  # refused for tasks without evidence
    if report is None and not others and not (card and isinstance(task, JudgedTask)):
        metrics = model.evaluate(rows_of(data), report=counts)
    else:
        rows, training_rows = list(rows_of(data)), None if train is None else list(rows_of(train))
        evidence = gather_evidence(model, rows, training_rows, seeds=seeds)
        if report is not None:
            write_evidence_report(evidence, report, title=title)
        metrics, lengths = {name: score.value for name, score in evidence.scores.items()}, evidence.lengths
        counts = InferenceReport(
            evidence.num_examples, num_texts_cut=lengths.num_cut, num_tokens_cut=lengths.num_tokens_cut
        )
    for some in skipped.values():
        note_skipped(some)
    if evidence is None:
        note_cut(counts)
    else:
        for kind, sentence in findings_of(evidence):
            if kind == "warning":
                note(sentence)
    if "unanswerable_accuracy" in metrics and "best_f1_threshold" not in metrics:
        note("some questions have no answer, but this model always predicts one: try --no-answer-threshold 0")
    done = _Evaluation(task.name, counts.num_texts, len(skipped[data]), metrics, evidence)
    _print(done)
    return done


def _print(done: _Evaluation) -> None:
    measured = {} if done.evidence is None else done.evidence.scores
    if sys.stdout.isatty():
        note(f"{done.task}: {done.num_examples} examples")
        intervals = {name: {"low": results.low, "high": results.high} for name, results in measured.items()}
        emit({"metric": name, "value": value, **intervals.get(name, {})} for name, value in done.metrics.items())
        return
    row: dict[str, Any] = {"task": done.task, "num_examples": done.num_examples, "rows_skipped": done.num_set_aside}
    intervals = {name: [results.low, results.high] for name, results in measured.items()}
    emit([row | done.metrics | ({"intervals": intervals} if intervals else {})])


def _add_to_card(card: Path, data: Path, done: _Evaluation) -> None:
    from bertkit.reports.model_card import scores_section, with_section

    heading, body = scores_section(data, done.num_examples, done.num_set_aside, done.metrics, done.evidence)
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    with whole_file(card) as temporary:
        temporary.write_text(with_section(text, heading, body), encoding="utf-8", newline="\n")
    note(f"{card}: {heading}")
