"""bertkit evaluate [retrieval | similarity | grammar]"""

import sys
from collections.abc import Iterator, Mapping
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from bertkit.cli.models import EXACT, Compute, change_trained, open_model
from bertkit.cli.output import Columns, ModelName, SkipBad, Values, emit, note
from bertkit.errors import UsageError
from bertkit.files.whole_files import check_writable, whole_file
from bertkit.locate import locate

if TYPE_CHECKING:
    from bertkit.evidence import Measured


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
    opened = open_model(model, compute)
    change_trained(opened, no_answer_threshold, words, label_names, are_of_data=True)

    from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_cut, note_reading, note_skipped
    from bertkit.evidence import gather_evidence
    from bertkit.inference import InferenceReport
    from bertkit.inference.fitting_rows import fitting
    from bertkit.reports.evidence import findings_of, write_evidence_report
    from bertkit.tasks import JudgedTask
    from bertkit.tasks.example_file import labeled_file

    task, counts = opened.trained.task, InferenceReport()
    how = {"class_names": label_names, "snap_spans": snap_spans, "columns": columns_of(columns)}
    skipped: dict[Path, list[Any]] = {}

    def rows_of(path: Path) -> Iterator[Any]:
        bad_rows, too_long = bad_rows_of(skip_bad), []
        examples = task.read(labeled_file(task, path, bad_rows=bad_rows, **how))
        yield from fitting(task, opened.tokenizer, opened.trained.layout, examples, too_long) if skip_bad else examples
        note_reading(bad_rows)
        skipped[path] = [*bad_rows.rows, *too_long]

    evidence = None
    others = train is not None or seeds  # refused for tasks without evidence
    if report is None and not others and not (card and isinstance(task, JudgedTask)):
        metrics = opened.evaluate(rows_of(data), report=counts)
    else:
        rows, training_rows = list(rows_of(data)), None if train is None else list(rows_of(train))
        evidence = gather_evidence(opened, rows, training_rows, seeds=seeds or ())
        if report is not None:
            write_evidence_report(evidence, report, title=f"{folder.name} on {data.name}")
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
    num_skipped = len(skipped[data])
    facts = {"task": task.name, "num_examples": counts.num_texts, "rows_skipped": num_skipped}
    _print(facts, metrics, {} if evidence is None else evidence.scores)
    if card:
        from bertkit.reports.model_card import scores_section, with_section

        heading, body = scores_section(data, counts.num_texts, num_skipped, metrics, evidence)
        file = folder / "README.md"
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        with whole_file(file) as temporary:
            temporary.write_text(with_section(text, heading, body), encoding="utf-8", newline="\n")
        note(f"{file}: {heading}")


def _print(facts: dict[str, Any], metrics: Mapping[str, float], measured: "Mapping[str, Measured]") -> None:
    if sys.stdout.isatty():
        note(f"{facts['task']}: {facts['num_examples']} examples")
        intervals = {name: {"low": results.low, "high": results.high} for name, results in measured.items()}
        emit({"metric": name, "value": value, **intervals.get(name, {})} for name, value in metrics.items())
        return
    intervals = {name: [results.low, results.high] for name, results in measured.items()}
    emit([{**facts, **metrics, **({"intervals": intervals} if intervals else {})}])
