"""bertkit evaluate"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.evaluate_vectors import evaluate_collection, evaluate_pairs
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, PRETRAINED_MODEL, Compute, open_model, open_trained
from bertkit.cli.output import emit, note
from bertkit.errors import UsageError
from bertkit.files.whole_files import whole_file
from bertkit.locate import locate

if TYPE_CHECKING:
    from bertkit.evidence import Evidence
    from bertkit.model import Model


def command(
    *,
    data: Path | None = None,
    suite: Path | None = None,
    model: str | None = None,
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    skip_bad: bool = False,
    no_answer_threshold: float | None = None,
    words: str | None = None,
    snap_spans: bool = False,
    label_names: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    report: Path | None = None,
    train: Path | None = None,
    seeds: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    smaller: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    card: bool = False,
    method: Literal["plain", "l2r"] | None = None,
    limit: int | None = None,
    collection: Path | None = None,
    cross_encoder: str | None = None,
    against: str | None = None,
    run_file: Path | None = None,
    pairs: Path | None = None,
    compute: Compute = EXACT,
) -> None:
    """Evaluate a model: on labeled data of its task, on grammatical minimal pairs, or, for vectors, on retrieval and
    scored pairs.

    Parameters
    ----------
    data
        Labeled examples of the task that the model was trained for: csv, tsv, jsonl or parquet; for some tasks
        CoNLL or SQuAD json. Labels are matched by name; an unknown label is an error.
    suite
        Grammatical minimal pairs, a file or a folder: jsonl as in BLiMP, txt as in Zorro. The score is the share of
        pairs in which the grammatical sentence is the more likely one.
    model
        A folder, a hub name, or the import name of an installed model package. With --suite it needs a masked LM head;
        by default bert-base-uncased.
    columns
        With --data, --pairs or a --collection in a table: columns by role, such as text=sentence label=polarity, where
        their names are not recognized.
    skip_bad
        With --data: skip rows that cannot be used, and count them.
    no_answer_threshold
        With --data: predict no answer where its score exceeds that of the best answer by more than this; by default the
        model's stored threshold. The threshold with the best F1 is among the metrics.
    words
        With --data, for taggers: the rule of words, punctuation or spaces; by default the model's.
    snap_spans
        With --data, for taggers: move spans that begin or end inside a word to its borders, and count them.
    label_names
        With --data: names of labels that are integers in the data or LABEL_0 and so on in the model, in order from 0.
    report
        An HTML report with a JSON file next to it. With --collection or --pairs: the scores, with confidence intervals.
        With --data, for classifiers and taggers: confidence intervals, each label, confusions, calibration, likely
        label errors, lengths; with --train also texts that are in the training data, and a baseline.
    train
        With --report or --card: the training data of the model.
    seeds
        With --report or --card: models of the same task trained with other seeds, for the spread of scores.
    smaller
        With --report or --card: models of the same task trained on fewer examples, by their number, such as
        500=model-of-500 1000=model-of-1000, for the learning curve.
    card
        With --data: write the scores into the README.md of the model's folder, as a separate section; for classifiers
        and taggers also the figures of the report.
    method
        With --suite, how likelihood is measured: plain (default), each token from all others; l2r, without the later
        pieces of the same word.
    limit
        With --suite: number of pairs of each paradigm to use, from the start.
    collection
        Retrieval, with scores as in trec_eval and confidence intervals over queries: a folder in the BEIR layout, with
        corpus.jsonl, queries.jsonl and qrels/test.tsv; a SQuAD json file, whose questions retrieve their paragraphs; or
        a table of texts with labels: each text retrieves the others with its label.
    cross_encoder
        With --collection: a cross-encoder that scores the 100 best documents of each query again.
    against
        With --collection or --pairs: another model, for the paired differences.
    run_file
        With --collection: write the rankings to this file, in the format of trec_eval.
    pairs
        Scored pairs, csv, tsv, jsonl or parquet: correlations of the scores with the cosines of a sentence encoder or
        the scores of a cross-encoder; for scores of 0 and 1, average precision and the best threshold.
    """
    from bertkit.reports.report_file import checked_report

    if collection is not None or pairs is not None:
        others = (data, suite, train, seeds, smaller, method, limit, no_answer_threshold, words, label_names)
        is_other = any(other is not None for other in others) or card or skip_bad or snap_spans
        if is_other or (collection and pairs) or (pairs and (cross_encoder or run_file)):
            raise UsageError(
                "--collection takes only --model, --columns, --cross-encoder, --against, --run-file, --report, "
                "--precision and --device; --pairs takes only --model, --columns, --against, --report, --precision and "
                "--device"
            )
        model = model or EMBEDDING_MODEL
        if collection is not None:
            evaluate_collection(collection, model, columns, cross_encoder, against, run_file, report, compute)
        elif pairs is not None:
            evaluate_pairs(pairs, model, columns, against, report, compute)
        return
    if cross_encoder or against or run_file:
        raise UsageError(
            "--cross-encoder and --run-file require --collection, --against requires --collection or --pairs"
        )
    if (data is None) == (suite is None):
        raise UsageError(
            "evaluate requires one of --data (labeled examples of a task), --suite (minimal pairs), --collection "
            "(queries and documents) and --pairs (scored pairs)"
        )
    if data is not None:
        if method is not None or limit is not None:
            raise UsageError("--method and --limit require --suite")
        if model is None:
            raise UsageError("--data requires --model, a model that was trained for a task")
        if (train is not None or seeds or smaller) and report is None and not card:
            raise UsageError("--train, --seeds and --smaller require --report or --card, which show their results")
        folder = Path(expanduser(model))
        if card and not folder.is_dir():
            raise UsageError(f"--card writes into the model's folder, but {model} is not a folder")
        by_size = _by_size(smaller)
        for other in [*(seeds or ()), *by_size.values()]:
            locate(other)
        if report is not None:
            checked_report(report, data)
        title = f"{folder.name} on {data.name}"
        opened = open_trained(model, compute, no_answer_threshold, words, label_names, are_of_data=True)
        how = {"class_names": label_names} | ({"snap_spans": True} if snap_spans else {})
        done = _evaluate_task(opened, how, data, columns, skip_bad, report, train, title, card, seeds or [], by_size)
        if card:
            _add_to_card(folder / "README.md", data, done)
    elif suite is not None:
        of_data = (no_answer_threshold, report, train, words, label_names)
        if columns or skip_bad or card or seeds or smaller or snap_spans or any(one is not None for one in of_data):
            raise UsageError(
                "--columns, --skip-bad, --no-answer-threshold, --words, --snap-spans, --label-names, --report, "
                "--train, --seeds, --smaller and --card "
                "require --data"
            )
        _evaluate_grammar(model or PRETRAINED_MODEL, suite, method or "plain", limit, compute)


def _by_size(given: list[str] | None) -> dict[int, str]:
    """``["500=a", "1000=b"]`` as a dict.

    Raises:
        UsageError: an entry that is not NUM=MODEL, or a number given twice.
    """
    models: dict[int, str] = {}
    for entry in given or ():
        number, _, name = entry.partition("=")
        if not number.isdecimal() or int(number) in (0, *models) or not name:
            raise UsageError(f"--smaller {entry!r}: expected NUM=MODEL, each number once, such as 1000=model-of-1000")
        models[int(number)] = name
    return models


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
    smaller: dict[int, str],
) -> _Evaluation:
    """Print the metrics, and write the requested report."""
    from bertkit.cli.labeled_files import bad_rows_of, columns_of, fitting, note_cut, note_reading, note_skipped
    from bertkit.evidence import gather_evidence
    from bertkit.inference import PredictReport
    from bertkit.reports.evidence import findings_of, write_evidence_report
    from bertkit.tasks import JudgedTask
    from bertkit.tasks.example_file import labeled_file

    task, counts = model.trained.task, PredictReport()
    file = partial(labeled_file, task, columns=columns_of(columns), **how)
    skipped: dict[Path, list[Any]] = {}

    def rows_of(path: Path) -> Iterator[Any]:
        bad_rows, too_long = bad_rows_of(skip_bad), []
        examples = task.read(file(path, bad_rows=bad_rows))
        yield from fitting(model, examples, too_long) if skip_bad else examples
        note_reading(bad_rows)
        skipped[path] = [*bad_rows.rows, *too_long]

    evidence = None
    others = train is not None or seeds or smaller  # refused for tasks without evidence
    if report is None and not others and not (card and isinstance(task, JudgedTask)):
        metrics = model.evaluate(rows_of(data), report=counts)
    else:
        rows, training_rows = list(rows_of(data)), None if train is None else list(rows_of(train))
        evidence = gather_evidence(model, rows, training_rows, seeds=seeds, smaller=smaller)
        if report is not None:
            write_evidence_report(evidence, report, title=title)
        metrics, lengths = {name: score.value for name, score in evidence.scores.items()}, evidence.lengths
        counts = PredictReport(evidence.num_examples, num_cut=lengths.num_cut, num_tokens_cut=lengths.num_tokens_cut)
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
    done = _Evaluation(task.name, counts.num_examples, len(skipped[data]), metrics, evidence)
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


def _evaluate_grammar(
    model: str, suite: Path, method: Literal["plain", "l2r"], limit: int | None, compute: Compute
) -> None:
    from bertkit.evidence import read_suite, score_minimal_pairs

    paradigms = read_suite(suite, limit)
    score = score_minimal_pairs(open_model(model, compute), paradigms, method=method)
    emit({"method": score.method, **row} for row in score.rows())
    if sys.stdout.isatty():
        note("accuracy: the good sentence is strictly more likely; interval: 95 %")
