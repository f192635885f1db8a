"""bertkit evaluate for sentence encoders and cross-encoders."""

from pathlib import Path

from bertkit.cli.models import Compute, open_encoder, open_model
from bertkit.cli.output import emit, note
from bertkit.files.whole_files import check_writable, whole_file


def evaluate_collection(
    folder: Path, model: str, cross_encoder: str | None, against: str | None, run_file: Path | None, compute: Compute
) -> None:
    """Print the retrieval scores of a model, or of a cross-encoder on its best 100 documents, with confidence
    intervals; with ``against`` also paired differences.

    Args:
        against: another sentence encoder to compare with.
        run_file: write the rankings to this file, in the format of trec_eval.
    """
    from bertkit.evidence.retrieval import (
        measured_retrieval,
        read_collection,
        rerank,
        retrieval_scores,
        retrieve,
        write_run,
    )

    if run_file is not None:
        check_writable(run_file)
    collection = read_collection(folder)
    rankings = retrieve(open_encoder(model, compute), collection)
    if cross_encoder is not None:
        rankings = rerank(open_model(cross_encoder, compute), collection, rankings)
    scores = retrieval_scores(collection.judgments, rankings)
    measured, differences = measured_retrieval(scores), {}
    if against is not None:
        others = retrieval_scores(collection.judgments, retrieve(open_encoder(against, compute), collection))
        differences = measured_retrieval({name: scores[name] - others[name] for name in scores})
    if run_file is not None:
        with whole_file(run_file) as temporary, temporary.open("w", encoding="utf-8") as file:
            write_run(rankings, file.write)
    num_queries, num_documents = len(collection.judgments), len(collection.documents)
    note(f"{folder}: {num_queries} queries, {num_documents} documents")
    if collection.num_without_positives:
        note(f"{collection.num_without_positives} judged queries without relevant documents are skipped")
    rows = []
    for name, score in measured.items():
        row = {"metric": name, "value": score.value, "low": score.low, "high": score.high}
        if name in differences:
            other = differences[name]
            row |= {"difference": other.value, "difference_low": other.low, "difference_high": other.high}
        rows.append(row)
    emit(rows)


def evaluate_pairs(data: Path, model: str, compute: Compute) -> None:
    """Print how well the cosines of a sentence encoder agree with scored pairs, with confidence intervals."""
    from bertkit.evidence.pair_scores import measured_pairs
    from bertkit.tasks import ExampleFile, Similarity

    rows = list(Similarity.read(ExampleFile(data)))
    measured = measured_pairs(open_encoder(model, compute), rows)
    note(f"{data}: {len(rows)} pairs")
    emit({"metric": name, "value": one.value, "low": one.low, "high": one.high} for name, one in measured.items())
