"""bertkit evaluate retrieval"""

from pathlib import Path

from bertkit.cli.evaluated_vectors import Against, ScoreReport, give, remarks_of
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_encoder, open_model
from bertkit.cli.output import Columns, ModelName, note
from bertkit.files.whole_files import check_writable, whole_file


def command(
    collection: Path,
    /,
    *,
    model: ModelName = EMBEDDING_MODEL,
    columns: Columns = None,
    cross_encoder: str | None = None,
    against: Against = None,
    run_file: Path | None = None,
    report: ScoreReport = None,
    compute: Compute = EXACT,
) -> None:
    """Evaluate vectors or a cross-encoder on queries and their relevant documents.

    Scores are those of trec_eval, with confidence intervals over queries.

    Parameters
    ----------
    collection
        A folder in the BEIR layout, with corpus.jsonl, queries.jsonl and qrels/test.tsv; a SQuAD json file, whose
        questions retrieve their paragraphs; or a table of texts with labels: each text retrieves the others with its
        label.
    cross_encoder
        A cross-encoder that scores the 100 best documents of each query again.
    run_file
        Write the rankings to this file, in the format of trec_eval.
    """
    from bertkit.cli.labeled_files import columns_of
    from bertkit.evidence.collections import collection_files, read_collection
    from bertkit.evidence.retrieval import check_ids, measured_retrieval, rerank, retrieval_scores, retrieve, write_run
    from bertkit.reports.report_file import checked_report
    from bertkit.words.opening import encoder_path

    if run_file is not None:
        check_writable(run_file, *collection_files(collection))
    if report is not None:
        checked_report(report, *collection_files(collection))
    queries = read_collection(collection, columns_of(columns))
    if run_file is not None:
        check_ids(queries)
    for name in (model, against):
        if name is not None:
            encoder_path(name)
    judge = None
    if cross_encoder is not None:
        judge = open_model(cross_encoder, compute)
        judge.rank("query", ["document"])  # refuses several labels before the search
    encoder = open_encoder(model, compute)
    remarks = remarks_of(model, encoder, compared_by=("cosine", "dot"))
    rankings = retrieve(encoder, queries)
    if judge is not None:
        rankings = rerank(judge, queries, rankings)
    if run_file is not None:
        with whole_file(run_file) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            write_run(rankings, file.write)
    scores = retrieval_scores(queries.judgments, rankings)
    measured, differences = measured_retrieval(scores), {}
    if against is not None:
        encoder = open_encoder(against, compute)
        remarks += remarks_of(against, encoder, compared_by=("cosine", "dot"))
        others = retrieval_scores(queries.judgments, retrieve(encoder, queries))
        differences = measured_retrieval({name: scores[name] - others[name] for name in scores})
    sizes = f"{collection}: {len(queries.judgments)} queries, {len(queries.documents)} documents"
    sizes = ". ".join([sizes, *remarks])
    note(sizes)
    if queries.num_without_positives:
        note(f"{queries.num_without_positives} judged queries without relevant documents are skipped")
    name = model if cross_encoder is None else f"{cross_encoder} on the best 100 of {model}"
    give(name, sizes, measured, against, differences, report)
