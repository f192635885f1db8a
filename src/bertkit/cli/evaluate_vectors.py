"""bertkit evaluate for sentence encoders and cross-encoders."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.cli.models import Compute, open_encoder, open_model
from bertkit.cli.output import emit, note
from bertkit.files.whole_files import check_not_input, check_writable, whole_file

if TYPE_CHECKING:
    from bertkit.evidence import Measured
    from bertkit.inference.text_encoder import TextEncoder


def evaluate_collection(
    path: Path,
    model: str,
    columns: list[str] | None,
    cross_encoder: str | None,
    against: str | None,
    run_file: Path | None,
    report: Path | None,
    compute: Compute,
) -> None:
    """Print the retrieval scores of a model, or of a cross-encoder on its best 100 documents, with confidence
    intervals; with ``against`` also paired differences.

    Args:
        against: another sentence encoder to compare with.
        run_file: write the rankings to this file, in the format of trec_eval.
        report: write a page and its figures as JSON.
    """
    from bertkit.cli.labeled_files import columns_of
    from bertkit.evidence.collections import collection_files, read_collection
    from bertkit.evidence.retrieval import check_ids, measured_retrieval, rerank, retrieval_scores, retrieve, write_run
    from bertkit.reports.report_file import checked_report
    from bertkit.words.opening import encoder_path

    if run_file is not None:
        check_writable(run_file)
        check_not_input(run_file, *collection_files(path))
    if report is not None:
        checked_report(report, *collection_files(path))
    collection = read_collection(path, columns_of(columns))
    if run_file is not None:
        check_ids(collection)
    for name in (model, against):
        if name is not None:
            encoder_path(name)
    judge = None
    if cross_encoder is not None:
        judge = open_model(cross_encoder, compute)
        judge.rank("query", ["document"])  # refuses several labels before the search
    encoder = open_encoder(model, compute)
    remarks = _remarks(model, encoder, compared_by=("cosine", "dot"))
    rankings = retrieve(encoder, collection)
    if judge is not None:
        rankings = rerank(judge, collection, rankings)
    if run_file is not None:
        with whole_file(run_file) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            write_run(rankings, file.write)
    scores = retrieval_scores(collection.judgments, rankings)
    measured, differences = measured_retrieval(scores), {}
    if against is not None:
        encoder = open_encoder(against, compute)
        remarks += _remarks(against, encoder, compared_by=("cosine", "dot"))
        others = retrieval_scores(collection.judgments, retrieve(encoder, collection))
        differences = measured_retrieval({name: scores[name] - others[name] for name in scores})
    sizes = f"{path}: {len(collection.judgments)} queries, {len(collection.documents)} documents"
    sizes = ". ".join([sizes, *remarks])
    note(sizes)
    if collection.num_without_positives:
        note(f"{collection.num_without_positives} judged queries without relevant documents are skipped")
    name = model if cross_encoder is None else f"{cross_encoder} on the best 100 of {model}"
    _give(name, sizes, measured, against, differences, report)


def evaluate_pairs(
    data: Path,
    model: str,
    columns: list[str] | None,
    against: str | None,
    report: Path | None,
    compute: Compute,
) -> None:
    """Print how well the cosines of a sentence encoder, or the scores of a cross-encoder, agree with scored pairs, with
    confidence intervals; with ``against``, another of these, also paired differences."""
    from bertkit.cli.labeled_files import columns_of
    from bertkit.evidence.pair_scores import measured_pairs, scores_of_pairs
    from bertkit.reports.report_file import checked_report
    from bertkit.tasks import ExampleFile, Similarity
    from bertkit.words.opening import encoder_path

    if report is not None:
        checked_report(report, data)
    if against is not None:
        encoder_path(against)
    rows = list(Similarity.read(ExampleFile(data, columns=columns_of(columns))))
    encoder = open_encoder(model, compute)
    scores, differences, remarks = scores_of_pairs(encoder, rows), {}, _remarks(model, encoder)
    measured = measured_pairs(rows, scores)
    if against is not None:
        encoder = open_encoder(against, compute)
        differences = measured_pairs(rows, scores, scores_of_pairs(encoder, rows))
        remarks += _remarks(against, encoder)
    sizes = ". ".join([f"{data}: {len(rows)} pairs", *remarks])
    note(sizes)
    _give(model, sizes, measured, against, differences, report)


def _remarks(name: str, encoder: "TextEncoder", compared_by: tuple[str, ...] = ("cosine",)) -> list[str]:
    """What to say of a model that is not published with one of the similarities that are used here."""
    settings = encoder.sentence_settings
    other = "" if settings.similarity in compared_by else settings.other_than_cosine
    return [f"{name} is published with the {other}, and is compared by the cosine"] if other else []


def _give(
    model: str,
    sizes: str,
    measured: Mapping[str, "Measured"],
    against: str | None,
    differences: Mapping[str, "Measured"],
    report: Path | None,
) -> None:
    """Print the scores, and write the report."""
    rows = []
    for name, score in measured.items():
        row = {"metric": name, "value": score.value, "low": score.low, "high": score.high}
        if name in differences:
            other = differences[name]
            row |= {"difference": other.value, "difference_low": other.low, "difference_high": other.high}
        rows.append(row)
    if report is not None:
        from bertkit.reports.vectors import write_vector_report

        write_vector_report(report, model, sizes, measured, against, differences)
    emit(rows)
